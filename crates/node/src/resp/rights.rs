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
                                         HELLO AUTH <user> <pass> option can be used to authenticate the client and \
                                         select the RESP protocol version at the same time";
pub(super) const NO_KEY: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments";
/// For a command of a transaction that was allowed when it was queued.
const NO_MORE: &str = "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
                       command is no longer allowed for the following reason: ";

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
    let Some(guard) = session.guard.as_mut().filter(|_| !spec.flags.has(Flag::NO_AUTH)) else {
        return Ok(());
    };
    // One that was admitted goes on whatever its user has lost since: its reply may have begun, in which a refusal would be
    // an element. Work with the file is done, and its verdict would be that of the next such command.
    let goes_on = session.progress.done > 0
        || session.transaction.is_executing && spec.id == Id::Exec
        || guard.has_file_verdict() && matches!(spec.id, Id::AclLoad | Id::AclSave);
    if goes_on {
        return Ok(());
    }
    let Some(user) = guard.user() else {
        cx.counters.cmd_denied.count();
        return Err(STRANGER.into());
    };
    let is_allowed = |(place, key): &(usize, &[u8])| user.may_access(key, access_of(call, *place));
    let (reason, object) = if !user.may_run(RESP, spec.id as usize) {
        (Reason::Command, spec.name.as_bytes())
    } else if let Some((_, key)) = all_keys(call).enumerate().find(|key| !is_allowed(key)) {
        (Reason::Key, key)
    } else {
        return Ok(());
    };
    cx.counters.cmd_denied.count();
    let name = user.name().to_owned();
    note_denial(cx, session, reason, (object, name.as_bytes()));
    Err(refusal(reason, spec, session.transaction.is_executing))
}

#[cold]
fn refusal(reason: Reason, spec: &Spec, is_of_exec: bool) -> Failure {
    match (reason, is_of_exec) {
        (Reason::Key, false) => NO_KEY.into(),
        (_, false) => {
            format!("NOPERM this user has no permissions to run the '{}' command", spec.name).into()
        }
        (Reason::Key, true) => format!("{NO_MORE}no permission to touch the specified keys").into(),
        (_, true) => format!("{NO_MORE}no permission to execute the command or subcommand").into(),
    }
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
        let is_in_multi = session.transaction.is_open || session.transaction.is_executing;
        guard.denials().note((reason, is_in_multi), (object, user), || {
            let mut text = String::new();
            cx.admin.list_clients(session.id, 1, &mut |client| tell(client, session, &mut text));
            text
        });
    }
}

/// What a command does with a key, from the first, as Redis has it: a read is one of the value or of its expiry.
fn access_of(call: &Call<'_>, place: usize) -> Access {
    match call.spec.id {
        Id::StrLen | Id::Exists | Id::Type | Id::Touch | Id::Watch | Id::MemoryUsage => Access::Any,
        Id::ObjectEncoding | Id::ObjectFreq | Id::ObjectIdleTime | Id::ObjectRefCount => Access::Any,
        Id::Copy if place == 0 => Access::Read,
        Id::Copy => Access::Write,
        Id::Rename | Id::RenameNx if place > 0 => Access::Write,
        _ if !call.spec.flags.has(Flag::WRITE) => Access::Read,
        Id::SetNx | Id::SetEx | Id::PSetEx | Id::MSet | Id::MSetNx | Id::Del | Id::Unlink => Access::Write,
        Id::Expire | Id::PExpire | Id::ExpireAt | Id::PExpireAt | Id::Persist => Access::Write,
        Id::Append | Id::SetRange => Access::Write,
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
