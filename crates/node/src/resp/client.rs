//! Commands about the connection: PING, ECHO, HELLO, AUTH, QUIT, RESET, SELECT, and CLIENT.

use std::{
    borrow::Cow,
    time::{Duration, Instant},
};

use minos_engine::Mode;
use minos_proto::resp::{Flag, Id, Version, compose, integer};

use super::{
    call::{Call, Done, Failure, NO_INTEGER, SYNTAX, end, fail, pause},
    rights, scratch,
    session::{Progress, Replies, RespSession},
    tracking::{self, Tracked},
};
use crate::{
    access::{LoggedIn, Reason},
    ops::{Client, Context, Next, Placement},
    server::pause::{Pause, Paused},
};

/// The version of Redis whose commands these are.
pub(super) const REDIS_VERSION: &str = "7.0.15";
/// Longest name of a connection or library in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// Connections that CLIENT LIST and CLIENT KILL look at in one step.
const CLIENTS_AT_ONCE: usize = 64;

const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure \
                           your configuration is correct?";
const LINES_TOO_LONG: &str = "ERR more connections are open than --max-buffer holds lines of";
const NO_TIMEOUT: &str = "ERR timeout is not an integer or out of range";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Executes a command of one word.
pub(super) fn connection<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::Ping if call.command.len() > 2 => {
            return fail("ERR wrong number of arguments for 'ping' command");
        }
        Id::Ping if session.is_subscribed && session.version == Version::Two => {
            compose::array(tx, 2);
            compose::bulk(tx, b"pong");
            compose::bulk(tx, call.argument(1));
        }
        Id::Ping if call.command.len() == 1 => compose::simple(tx, "PONG"),
        Id::Ping | Id::Echo => compose::bulk(tx, call.argument(1)),
        Id::Quit => {
            tx.extend_from_slice(compose::OK);
            return end(Next::Close);
        }
        Id::Reset => {
            session.reset();
            rename(cx, session, b"");
            compose::simple(tx, "RESET");
        }
        Id::Select => match integer(call.argument(1)).and_then(|index| i32::try_from(index).ok()) {
            Some(0) => tx.extend_from_slice(compose::OK),
            Some(_) => return fail("ERR DB index is out of range"),
            None => return fail(NO_INTEGER),
        },
        Id::Auth => {
            authenticate(cx, session, call, call.command.arguments(1).collect::<Vec<_>>().as_slice())?;
            tx.extend_from_slice(compose::OK);
        }
        _ => hello(cx, session, call, tx)?,
    }
    Ok(())
}

/// Takes a password, or a name and a password. On a server without users `default` needs none, and there is no other.
fn authenticate<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    arguments: &[&[u8]],
) -> Done<M> {
    let (name, password) = match (arguments, &session.guard) {
        ([_], None) => return fail(NO_PASSWORD),
        ([b"default", _], None) => return Ok(()),
        ([password], Some(_)) => (b"default".as_slice(), *password),
        ([name, password], _) => (*name, *password),
        _ => return fail(SYNTAX),
    };
    match session.guard.as_mut().map(|guard| guard.log_in(name, password, cx.counters)) {
        Some(LoggedIn::Yes) => Ok(()),
        Some(LoggedIn::Wait(task)) => pause(Next::Check(task)),
        Some(LoggedIn::No) => {
            rights::note_denial(cx, session, Reason::Auth, (call.command.name(), name));
            fail(WRONG_PASSWORD)
        }
        None => fail(WRONG_PASSWORD),
    }
}

fn hello<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let mut version = session.version;
    if let Some(asked) = call.command.argument(1) {
        version = match integer(asked) {
            Some(2) => Version::Two,
            Some(3) => Version::Three,
            Some(_) => return fail("NOPROTO unsupported protocol version"),
            None => return fail("ERR Protocol version is not an integer or out of range"),
        };
    }
    let mut arguments = call.command.arguments(2);
    let mut name = None;
    while let Some(word) = arguments.next() {
        match (word.to_ascii_lowercase().as_slice(), arguments.len()) {
            (b"auth", 2..) => {
                let pair = [arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default()];
                authenticate(cx, session, call, &pair)?;
            }
            (b"setname", 1..) => name = Some(checked_name(arguments.next().unwrap_or_default())?),
            _ => {
                let text = [b"ERR Syntax error in HELLO option '", word, b"'"].concat();
                return Err(Failure(text.into()).into());
            }
        }
    }
    if session.guard.as_mut().is_some_and(|guard| guard.user().is_none()) {
        return fail(rights::HELLO_STRANGER);
    }
    session.version = version;
    if let Some(name) = name {
        rename(cx, session, name);
    }
    let proto = if version == Version::Two { 2 } else { 3 };
    compose::map(tx, 7, version);
    for (field, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        compose::bulk(tx, field.as_bytes());
        compose::bulk(tx, value.as_bytes());
    }
    for (field, value) in [("proto", proto), ("id", told(session.id))] {
        compose::bulk(tx, field.as_bytes());
        compose::integer(tx, value);
    }
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        compose::bulk(tx, field.as_bytes());
        compose::bulk(tx, value.as_bytes());
    }
    compose::bulk(tx, b"modules");
    compose::array(tx, 0);
    Ok(())
}

/// The number of a connection as Redis tells it: the first one is 1.
pub(super) fn told(number: u64) -> i64 {
    number as i64 + 1
}

fn checked_name(name: &[u8]) -> Result<&[u8], Failure> {
    if name.len() > NAME_BYTES_MAX {
        return Err("ERR Client names cannot be longer than 1024 bytes".into());
    }
    if name.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".into());
    }
    Ok(name)
}

/// Gives the connection a name that CLIENT LIST shows to others too.
fn rename<M: Mode, P>(cx: &Context<'_, M, P>, session: &mut RespSession, name: &[u8]) {
    session.name = name.into();
    cx.admin.name_client(session.id, &String::from_utf8_lossy(name));
}

/// Executes a subcommand of CLIENT.
pub(super) fn client<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::ClientId => compose::integer(tx, told(session.id)),
        Id::ClientGetName if session.name.is_empty() => compose::null(tx, session.version),
        Id::ClientGetName => compose::bulk(tx, &session.name),
        Id::ClientGetRedir => tracking::redirection(session, tx),
        Id::ClientTrackingInfo => tracking::info(session, tx),
        Id::ClientInfo => {
            let mut text = String::new();
            cx.admin.list_clients(session.id, 1, &mut |client| tell(client, session, &mut text));
            compose::text(tx, &text, session.version);
        }
        Id::ClientList => return list(cx, session, call, tx),
        Id::ClientKill => return kill(cx, session, call, tx),
        Id::ClientReply => return reply(session, call, tx),
        Id::ClientPause => return pause_all(cx, session, call, tx),
        Id::ClientUnpause => {
            cx.admin.resume_clients();
            tx.extend_from_slice(compose::OK);
        }
        Id::ClientUnblock => return unblock(call, tx),
        _ => {
            set(cx, session, call)?;
            tx.extend_from_slice(compose::OK);
        }
    }
    Ok(())
}

/// Subcommands that answer with OK.
fn set<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<(), Failure> {
    match call.spec.id {
        Id::ClientSetName => {
            rename(cx, session, checked_name(call.argument(2))?);
            Ok(())
        }
        Id::ClientSetInfo => {
            let at = match call.argument(2).to_ascii_lowercase().as_slice() {
                b"lib-name" => 0,
                b"lib-ver" => 1,
                option => {
                    let text = [b"ERR Unrecognized option '", option, b"'"].concat();
                    return Err(Failure(text.into()));
                }
            };
            session.library[at] = checked_name(call.argument(3))?.into();
            Ok(())
        }
        Id::ClientTracking => tracking::track(cx, session, call),
        Id::ClientCaching => tracking::cache(session, call),
        Id::ClientNoTouch if call.is(2, "on") => Err("ERR CLIENT NO-TOUCH is not supported".into()),
        // No connection is closed for lack of memory.
        Id::ClientNoEvict if call.is(2, "on") => Ok(()),
        _ if call.is(2, "off") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

/// CLIENT PAUSE. It is answered once all workers know of it, so that nothing changes behind the reply.
fn pause_all<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    if session.progress.done == 0 {
        let pause = asked_pause(call)?;
        session.progress = Progress { done: 1, cursor: cx.admin.pause_clients(pause), ..Progress::default() };
    }
    if !cx.admin.is_taken_up(session.progress.cursor) {
        return pause(Next::Yield);
    }
    tx.extend_from_slice(compose::OK);
    Ok(())
}

fn asked_pause(call: &Call<'_>) -> Result<Pause, Failure> {
    let paused = match call.command.len() {
        3 => Paused::All,
        4 if call.is(3, "write") => Paused::Writes,
        4 if call.is(3, "all") => Paused::All,
        4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
        _ => return Err(too_many(call)),
    };
    let timeout_ms = integer(call.argument(2)).ok_or(NO_TIMEOUT)?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| "ERR timeout is negative")?;
    let until = Instant::now().checked_add(Duration::from_millis(timeout_ms)).ok_or(NO_TIMEOUT)?;
    Ok(Pause { paused, until })
}

/// The error for more arguments than a subcommand takes, as Redis says it.
fn too_many(call: &Call<'_>) -> Failure {
    let text = [
        b"ERR unknown subcommand or wrong number of arguments for '",
        call.argument(1),
        b"'. Try CLIENT HELP.",
    ];
    Failure(text.concat().into())
}

/// CLIENT UNBLOCK. No command blocks.
fn unblock<M: Mode>(call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    match call.command.len() {
        3 => {}
        4 if call.is(3, "timeout") || call.is(3, "error") => {}
        4 => return fail("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        _ => return Err(too_many(call).into()),
    }
    call.integer(2)?;
    compose::integer(tx, 0);
    Ok(())
}

/// True if a command waits for the end of CLIENT PAUSE. One that has begun does not, and nobody could end a pause of all
/// commands otherwise.
pub(super) fn is_paused(session: &RespSession, call: &Call<'_>) -> bool {
    let writes = |call: &Call<'_>| call.spec.flags.has(Flag::WRITE);
    match session.pause {
        None => false,
        Some(_) if session.is_midway() || call.spec.id == Id::ClientUnpause => false,
        Some(Paused::All) => true,
        Some(Paused::Writes) if call.spec.id == Id::Exec => {
            scratch::commands(&session.transaction.queued).any(|call| writes(&call))
        }
        Some(Paused::Writes) => writes(call),
    }
}

fn reply<M: Mode>(session: &mut RespSession, call: &Call<'_>, tx: &mut Vec<u8>) -> Done<M> {
    match call.argument(2).to_ascii_lowercase().as_slice() {
        b"on" => {
            session.replies = Replies::On;
            tx.extend_from_slice(compose::OK);
        }
        b"off" => session.replies = Replies::Off,
        b"skip" if session.replies == Replies::Off => {}
        b"skip" => session.replies = Replies::SkipNext,
        _ => return fail(SYNTAX),
    }
    Ok(())
}

/// CLIENT LIST. It pauses between steps.
fn list<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let is_wanted = match call.command.len() {
        2 => true,
        4 if call.is(2, "type") => is_normal(call.argument(3))?,
        4.. if call.is(2, "id") => return list_numbered(cx, session, call, tx),
        _ => return fail(SYNTAX),
    };
    let mut progress = std::mem::take(&mut session.progress);
    progress.done = 1;
    let mut text = String::new();
    let next = match is_wanted {
        true => cx
            .admin
            .list_clients(progress.cursor, CLIENTS_AT_ONCE, &mut |client| tell(client, session, &mut text)),
        false => None,
    };
    progress.found.extend_from_slice(text.as_bytes());
    if progress.found.len() > session.limits.command_bytes_max {
        return fail(LINES_TOO_LONG);
    }
    if let Some(next) = next {
        progress.cursor = next;
        session.progress = progress;
        return pause(Next::Yield);
    }
    compose::text(tx, &String::from_utf8_lossy(&progress.found), session.version);
    Ok(())
}

/// CLIENT LIST ID: those of these numbers that are open, in the order of the numbers.
fn list_numbered<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let mut text = String::new();
    for asked in call.command.arguments(3) {
        let Some(id) = integer(asked) else { return fail("ERR Invalid client ID") };
        let Ok(number) = u64::try_from(id.wrapping_sub(1)) else { continue };
        cx.admin.list_clients(number, 1, &mut |client| {
            if client.number == number {
                tell(client, session, &mut text);
            }
        });
        if text.len() > session.limits.command_bytes_max {
            return fail(LINES_TOO_LONG);
        }
    }
    compose::text(tx, &text, session.version);
    Ok(())
}

/// Which connections CLIENT KILL is to close.
#[derive(Default)]
struct Doomed<'a> {
    number: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// True if a condition fits no connection.
    fits_none: bool,
    skips_own: bool,
}

/// CLIENT KILL: a connection by its address, or all that meet conditions.
fn kill<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let is_by_address = call.command.len() == 3;
    let doomed = if is_by_address {
        Doomed { peer: Some(call.argument(2)), skips_own: false, ..Doomed::default() }
    } else {
        doomed(session, call)?
    };
    let (mut killed, mut from) = (0, Some(0));
    while let Some(at) = from.filter(|_| !doomed.fits_none) {
        let mut numbers = Vec::new();
        from = cx.admin.list_clients(at, CLIENTS_AT_ONCE, &mut |client| {
            let is_doomed = doomed.number.is_none_or(|number| number == client.number)
                && doomed.peer.is_none_or(|peer| peer == addresses(client)[0].as_bytes())
                && doomed.local.is_none_or(|local| local == addresses(client)[1].as_bytes())
                && doomed.user.is_none_or(|user| client.user.is_some_and(|name| name.as_bytes() == user));
            let is_spared = doomed.skips_own && client.number == session.id;
            numbers.extend((is_doomed && !is_spared).then_some(client.number));
        });
        // This connection goes once its reply has left.
        killed += numbers.into_iter().filter(|number| cx.admin.kill_client(*number)).count() as i64;
    }
    match killed {
        0 if is_by_address => return fail("ERR No such client"),
        _ if is_by_address => tx.extend_from_slice(compose::OK),
        _ => compose::integer(tx, killed),
    }
    Ok(())
}

/// The conditions of CLIENT KILL.
fn doomed<'a>(session: &RespSession, call: &Call<'a>) -> Result<Doomed<'a>, Failure> {
    let mut doomed = Doomed { skips_own: true, ..Doomed::default() };
    for at in (2..call.command.len()).step_by(2) {
        if at + 1 == call.command.len() {
            return Err(SYNTAX.into());
        }
        let value = call.argument(at + 1);
        match call.argument(at).to_ascii_lowercase().as_slice() {
            b"id" => match integer(value) {
                Some(id @ 1..) => doomed.number = Some(id as u64 - 1),
                _ => return Err("ERR client-id should be greater than 0".into()),
            },
            b"addr" => doomed.peer = Some(value),
            b"laddr" => doomed.local = Some(value),
            b"type" => doomed.fits_none |= !is_normal(value)?,
            b"user" if is_user(session, value) => doomed.user = session.guard.is_some().then_some(value),
            b"user" => return Err(Failure([b"ERR No such user '", value, b"'"].concat().into())),
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => doomed.skips_own = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => doomed.skips_own = false,
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(doomed)
}

/// True if there is a user of this name; without users, `default`.
fn is_user(session: &RespSession, name: &[u8]) -> bool {
    match &session.guard {
        None => name == b"default",
        Some(guard) => guard.authority().acl().user(name).is_some(),
    }
}

/// True for the type that all connections have.
fn is_normal(kind: &[u8]) -> Result<bool, Failure> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        kind => Err(Failure([b"ERR Unknown client type '", kind, b"'"].concat().into())),
    }
}

/// The path of the Unix socket by which a client came.
fn path<'a>(client: &Client<'a>) -> Option<&'a str> {
    client.local.strip_prefix("unix:")
}

/// The client's address and the server's, as Redis writes them: with a Unix socket both are its path.
fn addresses<'a>(client: &Client<'a>) -> [Cow<'a, str>; 2] {
    match path(client) {
        Some(path) => [(); 2].map(|()| format!("{path}:0").into()),
        None => [client.peer.into(), client.local.into()],
    }
}

/// Appends the line for a connection; that of the asking one has what only itself knows.
pub(super) fn tell(client: &Client<'_>, session: &RespSession, text: &mut String) {
    use std::fmt::Write as _;
    let Client { number, descriptor, name, user, age_s, idle_s, .. } = client;
    let [peer, local] = addresses(client);
    let resp = if session.version == Version::Two { 2 } else { 3 };
    let is_own = *number == session.id;
    let tracked = session.tracked.as_deref().filter(|_| is_own);
    let subscribed = u8::from(is_own && session.is_subscribed);
    let mut letters =
        "P".repeat(usize::from(subscribed)) + &tracked.map(Tracked::letters).unwrap_or_default();
    if path(client).is_some() {
        letters.push('U');
    } else if letters.is_empty() {
        letters.push('N');
    }
    let redirected = tracked.map_or(-1, Tracked::redirected);
    // Appending to a string does not fail.
    let _ = write!(
        text,
        "id={} addr={peer} laddr={local} fd={descriptor} name={name} age={age_s} idle={idle_s} flags={letters} db=0 \
         sub={subscribed} psub=0 ssub=0 multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
         tot-mem=0 events=r redir={redirected}",
        told(*number)
    );
    if let Some(user) = if session.guard.is_none() { Some("default") } else { *user } {
        let _ = write!(text, " user={user}");
    }
    if is_own {
        let [library, version] = session.library.each_ref().map(|name| String::from_utf8_lossy(name));
        let _ = write!(text, " resp={resp} lib-name={library} lib-ver={version}");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_unix_socket_both_addresses_are_its_path() {
        let of = |peer, local| {
            let (descriptor, age_s, idle_s) = (9, 0, 0);
            let client = Client { number: 1, descriptor, peer, local, name: "", user: None, age_s, idle_s };
            let mut text = String::new();
            tell(&client, &RespSession::relayed(Version::Two), &mut text);
            text
        };
        let line = of("", "unix:/run/minos");
        assert!(
            line.contains(" addr=/run/minos:0 laddr=/run/minos:0 ") && line.contains(" flags=U "),
            "{line}"
        );
        let line = of("127.0.0.1:5", "127.0.0.1:6379");
        assert!(
            line.contains(" addr=127.0.0.1:5 laddr=127.0.0.1:6379 ") && line.contains(" flags=N "),
            "{line}"
        );
    }
}
