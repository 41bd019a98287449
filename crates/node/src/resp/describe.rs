//! COMMAND, from the table of commands, and the HELP of each container.

use minos_engine::Mode;
use minos_proto::resp::{Flag, Group, Id, Spec, Version, compose, find, find_subcommand, specs, subcommands};

use super::{
    call::{Call, Done, Failure, SYNTAX, fail},
    glob,
    rights::categories_of,
    session::RespSession,
};

/// Executes COMMAND or one of its subcommands.
pub(super) fn command<M: Mode>(session: &RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let version = session.version;
    match call.spec.id {
        Id::CommandCount => compose::integer(tx, tops().count() as i64),
        Id::CommandOf => {
            compose::array(tx, tops().count());
            tops().for_each(|spec| describe(spec, version, tx));
        }
        Id::CommandInfo if call.command.len() == 2 => {
            compose::array(tx, tops().count());
            tops().for_each(|spec| describe(spec, version, tx));
        }
        Id::CommandInfo => {
            let (begin, bytes_max) = (tx.len(), session.limits.command_bytes_max);
            compose::array(tx, call.command.len() - 2);
            for name in call.command.arguments(2) {
                match named(name) {
                    Some(spec) => describe(spec, version, tx),
                    None => compose::null(tx, version),
                }
                check_length(tx, begin, bytes_max)?;
            }
        }
        Id::CommandDocs => docs(session, call, tx)?,
        Id::CommandGetKeys => keys(call, tx)?,
        _ => list(call, tx)?,
    }
    Ok(())
}

/// The commands that are no subcommands.
fn tops() -> impl Iterator<Item = &'static Spec> {
    specs().iter().filter(|spec| !spec.flags.has(Flag::SUBCOMMAND))
}

/// The command of this name, that of a subcommand included.
fn named(name: &[u8]) -> Option<&'static Spec> {
    match name.iter().position(|&byte| byte == b'|') {
        Some(at) => find_subcommand(find(&name[..at])?, &name[at + 1..]),
        None => find(name),
    }
}

/// The ten elements that Redis tells about a command.
fn describe(spec: &Spec, version: Version, tx: &mut Vec<u8>) {
    compose::array(tx, 10);
    compose::bulk(tx, spec.name.as_bytes());
    compose::integer(tx, spec.arity.into());
    compose::set(tx, spec.flag_names().count(), version);
    spec.flag_names().for_each(|name| compose::simple(tx, name));
    compose::integer(tx, spec.keys.first.into());
    compose::integer(tx, spec.keys.last.into());
    compose::integer(tx, spec.keys.step.into());
    compose::set(tx, categories_of(spec).count(), version);
    categories_of(spec).for_each(|name| compose::simple(tx, &format!("@{name}")));
    // Tips, and specifications of keys beyond those positions.
    compose::array(tx, 0);
    compose::array(tx, 0);
    compose::array(tx, subcommands(spec).count());
    subcommands(spec).for_each(|spec| describe(spec, version, tx));
}

fn docs(session: &RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let (asked, bytes_max): (Vec<&Spec>, _) = match call.command.len() {
        2 => (tops().collect(), usize::MAX),
        _ => (call.command.arguments(2).filter_map(named).collect(), session.limits.command_bytes_max),
    };
    let begin = tx.len();
    compose::map(tx, asked.len(), session.version);
    for spec in asked {
        document(spec, session.version, tx);
        check_length(tx, begin, bytes_max)?;
    }
    Ok(())
}

/// Refuses a reply, composed from `begin` on, that is too long: the same command may be asked for thousands of times.
fn check_length(tx: &mut Vec<u8>, begin: usize, bytes_max: usize) -> Result<(), Failure> {
    if tx.len() - begin > bytes_max {
        tx.truncate(begin);
        return Err("ERR the reply would be longer than --max-buffer".into());
    }
    Ok(())
}

/// A command's name and its documentation.
fn document(spec: &Spec, version: Version, tx: &mut Vec<u8>) {
    let subcommands: Vec<_> = subcommands(spec).collect();
    compose::bulk(tx, spec.name.as_bytes());
    compose::map(tx, if subcommands.is_empty() { 3 } else { 4 }, version);
    for (field, text) in
        [("summary", spec.summary), ("since", spec.since), ("group", Group::name(spec.group))]
    {
        compose::bulk(tx, field.as_bytes());
        compose::bulk(tx, text.as_bytes());
    }
    if !subcommands.is_empty() {
        compose::bulk(tx, b"subcommands");
        compose::map(tx, subcommands.len(), version);
        subcommands.into_iter().for_each(|spec| document(spec, version, tx));
    }
}

/// COMMAND GETKEYS.
fn keys(call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let words = call.command.len() - 2;
    let mut spec = find(call.argument(2)).ok_or("ERR Invalid command specified")?;
    if spec.flags.has(Flag::CONTAINER) && words > 1 {
        spec = find_subcommand(spec, call.argument(3)).ok_or("ERR Invalid command specified")?;
    }
    if !spec.takes(words) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let positions: Vec<_> = spec.keys.positions(words).collect();
    if positions.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    compose::array(tx, positions.len());
    let step = usize::from(spec.keys.step.max(1));
    let keys = call.command.arguments(2 + positions[0]).step_by(step).take(positions.len());
    keys.for_each(|key| compose::bulk(tx, key));
    Ok(())
}

/// COMMAND LIST with its filters. It lists subcommands too, which COMMAND COUNT does not count.
fn list(call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let wanted: Vec<&Spec> = match call.command.len() {
        2 => specs().iter().collect(),
        5 if call.is(2, "filterby") => {
            let filter = call.argument(4).to_ascii_lowercase();
            if filter.len() > glob::PATTERN_BYTES_MAX {
                return Err("ERR pattern is longer than 1024 bytes".into());
            }
            match call.argument(3).to_ascii_lowercase().as_slice() {
                b"module" => Vec::new(),
                b"aclcat" => {
                    let is_wanted = |spec: &&Spec| categories_of(spec).any(|name| name.as_bytes() == filter);
                    specs().iter().filter(is_wanted).collect()
                }
                b"pattern" => {
                    specs().iter().filter(|spec| glob::matches(&filter, spec.name.as_bytes())).collect()
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        _ => return Err(SYNTAX.into()),
    };
    compose::array(tx, wanted.len());
    wanted.into_iter().for_each(|spec| compose::bulk(tx, spec.name.as_bytes()));
    Ok(())
}

/// The HELP of a container.
pub(super) fn help<M: Mode>(call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let container = call.spec.name.split('|').next().unwrap_or_default();
    let Some(spec) = find(container.as_bytes()) else { return fail(SYNTAX) };
    compose::array(tx, 1 + 2 * subcommands(spec).count());
    let name = container.to_uppercase();
    compose::simple(tx, &format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for spec in subcommands(spec) {
        compose::simple(tx, &spec.name[container.len() + 1..].to_uppercase());
        compose::simple(tx, &format!("    {}.", spec.summary));
    }
    Ok(())
}
