//! The rights that Redis' commands need, on a server with users.

use minos_access::{Access, Categories, Entry};
use minos_base::limits::KEY_BYTES_MAX;
use minos_engine::Mode;
use minos_proto::resp::{Flag, Group, Id, Spec, TABLE};

use super::{
    call::{Call, Failure},
    client::tell,
    execute::all_keys,
    session::RespSession,
};
use crate::{
    access::{RESP, Reason},
    ops::Context,
};

const STRANGER: &str = "NOAUTH Authentication required.";
pub(super) const HELLO_STRANGER: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                                         HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client \
                                         and select the RESP protocol version at the same time";
const NO_KEY: &str = "NOPERM No permissions to access a key";

/// Redis' commands as rules name them, by their [`Id`].
pub(crate) const COMMANDS: &[Entry] = &entries();

const fn entries() -> [Entry; TABLE.len()] {
    let mut entries = [Entry { name: "", categories: Categories(0) }; TABLE.len()];
    let mut at = 0;
    while at < TABLE.len() {
        entries[at] = Entry { name: TABLE[at].name, categories: categories(&TABLE[at]) };
        at += 1;
    }
    entries
}

const fn categories(spec: &Spec) -> Categories {
    let group = match spec.group {
        _ if matches!(spec.id, Id::DbSize | Id::FlushDb | Id::FlushAll | Id::SwapDb) => Categories::KEYSPACE,
        _ if matches!(spec.id, Id::Wait) || is_about_commands(spec) => Categories::CONNECTION,
        Group::String => Categories::STRING,
        Group::Bitmap => Categories::BITMAP,
        Group::Generic => Categories::KEYSPACE,
        Group::Connection => Categories::CONNECTION,
        Group::Transactions => Categories::TRANSACTION,
        Group::PubSub => Categories::PUBSUB,
        Group::Server => Categories(0),
    };
    let speed = if spec.flags.has(Flag::FAST) { Categories::FAST } else { Categories::SLOW };
    let mut all = group.with(speed);
    if spec.flags.has(Flag::WRITE) {
        all = all.with(Categories::WRITE);
    }
    if spec.flags.has(Flag::READONLY) {
        all = all.with(Categories::READ);
    }
    if spec.flags.has(Flag::ADMIN) {
        all = all.with(Categories::ADMIN);
    }
    if spec.flags.has(Flag::ADMIN) || spec.flags.has(Flag::DANGEROUS) {
        all = all.with(Categories::DANGEROUS);
    }
    all
}

/// COMMAND and its subcommands.
const fn is_about_commands(spec: &Spec) -> bool {
    matches!(
        spec.id,
        Id::CommandOf
            | Id::CommandCount
            | Id::CommandInfo
            | Id::CommandDocs
            | Id::CommandGetKeys
            | Id::CommandList
            | Id::CommandHelp
    )
}

/// The names of a command's categories, in Redis' order.
pub(super) fn categories_of(spec: &Spec) -> impl Iterator<Item = &'static str> + use<> {
    let categories = COMMANDS[spec.id as usize].categories;
    Categories::NAMES.iter().filter(move |(_, each)| categories.meets(*each)).map(|(name, _)| *name)
}

/// Refuses a command that the client may not use.
pub(super) fn check<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let spec = call.spec;
    if session.guard.is_none() || spec.flags.has(Flag::NO_AUTH) {
        return Ok(());
    }
    let user = session.guard.as_mut().and_then(|guard| guard.user());
    let refusal: Failure = match user {
        None => STRANGER.into(),
        Some(user) if !user.may_run(RESP, spec.id as usize) => {
            format!("NOPERM User {} has no permissions to run the '{}' command", user.name(), spec.name)
                .into()
        }
        Some(user) if !all_keys(call).all(|key| user.may_access(key, access_of(call))) => NO_KEY.into(),
        Some(_) => return Ok(()),
    };
    cx.counters.cmd_denied.count();
    if let Some(user) = session.guard.as_mut().and_then(|guard| guard.user()).cloned() {
        let may_run = user.may_run(RESP, spec.id as usize);
        let forbidden = |key: &&[u8]| !user.may_access(key, access_of(call));
        let (reason, object) = match all_keys(call).find(forbidden).filter(|_| may_run) {
            Some(key) => (Reason::Key, key),
            None => (Reason::Command, spec.name.as_bytes()),
        };
        note_denial(cx, session, reason, (object, user.name().as_bytes()));
    }
    Err(refusal)
}

/// Notes for the operator that a client was refused something.
#[cold]
pub(super) fn note_denial<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    reason: Reason,
    (object, user): (&[u8], &[u8]),
) {
    if let Some(guard) = &session.guard {
        let object = &object[..object.len().min(KEY_BYTES_MAX)];
        let user = &user[..user.len().min(KEY_BYTES_MAX)];
        guard.denials().note((reason, session.transaction.is_open), (object, user), || {
            let mut text = String::new();
            cx.admin.list_clients(session.id, 1, &mut |client| tell(client, session, &mut text));
            text
        });
    }
}

/// What a command does with its keys.
fn access_of(call: &Call<'_>) -> Access {
    if !call.spec.flags.has(Flag::WRITE) {
        return Access::Read;
    }
    match call.spec.id {
        Id::SetNx | Id::SetEx | Id::PSetEx | Id::MSet | Id::MSetNx | Id::Del | Id::Unlink => Access::Write,
        Id::Expire | Id::PExpire | Id::ExpireAt | Id::PExpireAt | Id::Persist => Access::Write,
        // Unless it returns the old value.
        Id::Set if !call.command.arguments(3).any(|word| word.eq_ignore_ascii_case(b"get")) => Access::Write,
        _ => Access::Both,
    }
}

#[cfg(test)]
mod tests {
    use minos_proto::resp::{find, find_subcommand};

    use super::*;

    #[test]
    fn commands_are_found_by_their_numbers() {
        for spec in TABLE {
            assert_eq!(COMMANDS[spec.id as usize].name, spec.name);
        }
    }

    #[test]
    fn categories_follow_from_flags_and_group() {
        let of = |spec: &Spec| categories_of(spec).collect::<Vec<_>>();
        assert_eq!(of(find(b"get").unwrap()), ["read", "string", "fast"]);
        assert_eq!(of(find(b"flushall").unwrap()), ["keyspace", "write", "slow", "dangerous"]);
        assert_eq!(of(find(b"command").unwrap()), ["slow", "connection"]);
        let list = find_subcommand(find(b"client").unwrap(), b"list").unwrap();
        assert_eq!(of(list), ["admin", "slow", "dangerous", "connection"]);
    }
}
