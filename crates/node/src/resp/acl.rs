//! ACL: the users, who the client is, and what clients were refused.

use std::{fs::File, io::Read, sync::Arc, time::Instant};

use minos_access::{Categories, User};
use minos_engine::Mode;
use minos_proto::resp::{Id, compose, integer};

use super::{
    call::{Call, Done, Failure, NO_INTEGER, fail, pause},
    rights::COMMANDS,
    session::RespSession,
};
use crate::{
    access::{Guard, Task},
    ops::{Context, Next},
};

/// The user of all clients on a server without users.
const OPEN_USER: &[u8] = b"user default on nopass ~* +@all";
const NO_USERS: &str = "ERR this server has no users; they come from --acl";
const NO_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
                       ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file \
                       set) in order to store users in the Redis configuration.";
const NOT_SAVED: &str =
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information";
const NO_BITS: &str = "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
                       4096";
/// Bits of a password that GENPASS makes: without an argument, and at most.
const PASSWORD_BITS: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;
/// Denials that LOG shows without an argument.
const DENIALS_SHOWN: i64 = 10;

/// Executes a command about users. Changes hold until the file is read again, unless SAVE writes them there.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::AclGenPass => make_password(call, tx)?,
        Id::AclCat => categories(call, tx)?,
        Id::AclLoad | Id::AclSave => use_file(session, call, tx)?,
        Id::AclLog => log(session, call, tx)?,
        _ => users(session, call, tx)?,
    }
    if matches!(call.spec.id, Id::AclDelUser | Id::AclLoad) {
        // This one among them goes once its reply has left.
        cx.admin.kill_deleted();
    }
    Ok(())
}

fn users(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let version = session.version;
    let Some(guard) = &mut session.guard else {
        match call.spec.id {
            Id::AclWhoAmI => compose::bulk(tx, b"default"),
            Id::AclUsers | Id::AclList => {
                compose::array(tx, 1);
                compose::bulk(tx, if call.spec.id == Id::AclUsers { b"default" } else { OPEN_USER });
            }
            _ => return Err(NO_USERS.into()),
        }
        return Ok(());
    };
    let authority = Arc::clone(guard.authority());
    let acl = authority.acl();
    match call.spec.id {
        Id::AclWhoAmI => {
            let name = guard.user().map(|user| user.name().to_owned()).unwrap_or_default();
            compose::bulk(tx, name.as_bytes());
        }
        Id::AclUsers => {
            compose::array(tx, acl.users().count());
            acl.users().for_each(|user| compose::bulk(tx, user.name().as_bytes()));
        }
        Id::AclList => {
            compose::array(tx, acl.users().count());
            acl.users().for_each(|user| compose::bulk(tx, user.to_string().as_bytes()));
        }
        Id::AclGetUser => match acl.user(call.argument(2)) {
            Some(user) => tell(user, version, tx),
            None => compose::null(tx, version),
        },
        Id::AclDelUser if call.command.arguments(2).any(|name| name == b"default") => {
            return Err("ERR The 'default' user cannot be removed".into());
        }
        Id::AclDelUser => {
            let names = call.command.arguments(2).filter_map(|name| std::str::from_utf8(name).ok());
            let removed =
                authority.change(|acl| Ok::<_, Failure>(names.filter(|name| acl.remove(name)).count()))?;
            compose::integer(tx, removed as i64);
        }
        _ => {
            let words: Result<Vec<_>, _> = call.command.arguments(2).map(std::str::from_utf8).collect();
            let Ok([name, rules @ ..]) = words.as_deref() else {
                return Err("ERR names and rules are text".into());
            };
            let set = authority.change(|acl| acl.set_user(name, rules.iter().copied()));
            set.map_err(|error| format!("ERR Error in ACL SETUSER modifier {error}"))?;
            tx.extend_from_slice(compose::OK);
        }
    }
    Ok(())
}

/// GETUSER: what Redis tells of a user. There are no channels and no selectors.
fn tell(user: &User, version: compose::Version, tx: &mut Vec<u8>) {
    let flags = [Some(if user.is_on() { "on" } else { "off" }), user.is_open().then_some("nopass")];
    let flags: Vec<_> = flags.into_iter().flatten().collect();
    let passwords: Vec<_> = user.hashes().collect();
    compose::map(tx, 6, version);
    compose::bulk(tx, b"flags");
    compose::set(tx, flags.len(), version);
    flags.into_iter().for_each(|flag| compose::bulk(tx, flag.as_bytes()));
    compose::bulk(tx, b"passwords");
    compose::array(tx, passwords.len());
    passwords.into_iter().for_each(|hash| compose::bulk(tx, hash.as_bytes()));
    for (name, rules) in
        [("commands", user.command_rules()), ("keys", user.key_rules()), ("channels", String::new())]
    {
        compose::bulk(tx, name.as_bytes());
        compose::bulk(tx, rules.as_bytes());
    }
    compose::bulk(tx, b"selectors");
    compose::array(tx, 0);
}

/// LOAD and SAVE, which another thread does.
fn use_file<M: Mode>(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    let Some(guard) = &mut session.guard else { return fail(NO_FILE) };
    let loads = call.spec.id == Id::AclLoad;
    match guard.take_file_verdict() {
        None => pause(Next::Check(Box::new(if loads { Task::Load } else { Task::Save }))),
        Some(Ok(())) => {
            tx.extend_from_slice(compose::OK);
            Ok(())
        }
        Some(Err(error)) if loads => fail(format!(
            "ERR {error}. WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
        )),
        Some(Err(error)) => {
            tracing::error!(error, "the users are not saved");
            fail(NOT_SAVED)
        }
    }
}

/// GENPASS: random digits.
fn make_password(call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let bits = match call.command.len() {
        2 => PASSWORD_BITS,
        3 => call.integer(2)?,
        _ => return Err(too_many(call)),
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(NO_BITS.into());
    }
    let digits = (bits as usize).div_ceil(4);
    let mut random = vec![0; digits.div_ceil(2)];
    let filled = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
    filled.map_err(|error| Failure::from(format!("ERR no random bytes: {error}")))?;
    let mut password: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    password.truncate(digits);
    compose::bulk(tx, password.as_bytes());
    Ok(())
}

/// CAT: the categories, or the commands of one.
fn categories(call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let names: Vec<&str> = match call.command.len() {
        2 => Categories::NAMES.iter().map(|(name, _)| *name).collect(),
        3 => {
            let asked = String::from_utf8_lossy(call.argument(2));
            let Some(category) = Categories::named(&asked) else {
                return Err(Failure([b"ERR Unknown category '", call.argument(2), b"'"].concat().into()));
            };
            COMMANDS.iter().filter(|entry| entry.categories.meets(category)).map(|entry| entry.name).collect()
        }
        _ => return Err(too_many(call)),
    };
    compose::array(tx, names.len());
    names.into_iter().for_each(|name| compose::bulk(tx, name.as_bytes()));
    Ok(())
}

/// LOG: what clients were refused, latest first.
fn log(session: &RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Result<(), Failure> {
    let denials = session.guard.as_deref().map(Guard::denials);
    let count = match call.command.len() {
        2 => DENIALS_SHOWN,
        3 if call.is(2, "reset") => {
            denials.into_iter().for_each(|denials| denials.clear());
            tx.extend_from_slice(compose::OK);
            return Ok(());
        }
        3 => integer(call.argument(2)).ok_or(NO_INTEGER)?,
        _ => return Err(too_many(call)),
    };
    let latest =
        denials.map(|denials| denials.latest(usize::try_from(count).unwrap_or(0))).unwrap_or_default();
    let now = Instant::now();
    compose::array(tx, latest.len());
    for denial in latest {
        compose::map(tx, 7, session.version);
        compose::bulk(tx, b"count");
        compose::integer(tx, denial.count as i64);
        let context = if denial.is_in_multi { "multi" } else { "toplevel" };
        let texts: [(&str, &[u8]); 4] = [
            ("reason", denial.reason.name().as_bytes()),
            ("context", context.as_bytes()),
            ("object", &denial.object),
            ("username", &denial.user),
        ];
        for (name, text) in texts {
            compose::bulk(tx, name.as_bytes());
            compose::bulk(tx, text);
        }
        compose::bulk(tx, b"age-seconds");
        let age_ms = now.saturating_duration_since(denial.at).as_millis();
        compose::double(tx, age_ms as f64 / 1000.0, session.version);
        compose::bulk(tx, b"client-info");
        compose::bulk(tx, denial.client.trim_end().as_bytes());
    }
    Ok(())
}

/// The error for a subcommand with too many arguments, whose optional ones the table does not count.
fn too_many(call: &Call<'_>) -> Failure {
    let name = String::from_utf8_lossy(call.argument(1)).into_owned();
    format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try ACL HELP.").into()
}
