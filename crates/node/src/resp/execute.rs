//! From a parsed command to its reply: the checks that all commands share, and the function of each.

use minos_base::limits::{ITEM_KEY_BYTES_MAX, KEY_BYTES_MAX};
use minos_engine::Mode;
use minos_proto::resp::{Command, Flag, Id, compose, find_subcommand};

use super::{
    acl, bits,
    call::{Call, Done, Failure, Interrupt, NO_MEMORY, end, fail, pause},
    client, config, count, describe,
    elsewhere::{self, ON_THE_MOVE, OTHER_SLOTS},
    expire, get, home, info, keys, lcs, object, rename, scan, server,
    session::{Progress, Replies, RespSession, Transaction},
    set, strings, tracking, transaction,
};
use crate::ops::{Context, Fetched, Lookup, Next, Placement, Work};
use crate::rack::{Intent, RackView};

/// Bytes of an unknown command's name, and of its arguments, in the error for it, as in Redis.
const SAID_BYTES_MAX: usize = 128;

/// Bytes of a value that count as a request of a visit.
const BYTES_OF_A_REQUEST: u64 = 4 << 10;

/// A command of a client; one that no table knows as it came.
pub(super) struct Request<'a> {
    pub(super) call: Result<Call<'a>, Command<'a>>,
}

/// How the service of a connection goes on behind a command.
pub(super) enum Outcome<M: Mode> {
    /// With the next command.
    Done,
    /// As this says; the command has ended.
    Ended(Next<M>),
    /// As this says, and then with this command again.
    Paused(Next<M>),
}

/// Executes a command, and appends its reply to `tx` if the client wants it.
#[inline]
pub(super) fn run<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    request: &Request<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Outcome<M> {
    let start = tx.len();
    let outcome = match checked(cx, session, request, requests_left, tx) {
        Ok(()) => Outcome::Done,
        Err(interrupt) => interrupted(cx, session, *interrupt, tx),
    };
    if M::HAS_FLASH || cx.rack.is_some_and(RackView::is_managed) {
        note_change(cx, session, request, &outcome);
    }
    if session.progress.done != 0 && !matches!(outcome, Outcome::Paused(_)) {
        session.progress = Progress::default();
    }
    if session.tracked.is_some()
        && !matches!(outcome, Outcome::Paused(_))
        && let Ok(call) = &request.call
    {
        tracking::end_caching(session, call);
    }
    if session.replies == Replies::On { outcome } else { muted(cx, session, outcome, start, tx) }
}

#[cold]
fn interrupted<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    interrupt: Interrupt<M>,
    tx: &mut Vec<u8>,
) -> Outcome<M> {
    match interrupt {
        Interrupt::Error(text) => {
            cx.counters.resp_errors.count();
            compose::error(tx, &text);
            session.progress = Progress::default();
            Outcome::Done
        }
        Interrupt::Ended(next) => Outcome::Ended(next),
        Interrupt::Paused(next) => Outcome::Paused(next),
    }
}

/// Notes that replies may have to wait until a change is durable. A large store notes it when it ends.
fn note_change<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    request: &Request<'_>,
    outcome: &Outcome<M>,
) {
    let is_write = request.call.as_ref().is_ok_and(|call| call.spec.flags.has(Flag::WRITE));
    let is_later = matches!(outcome, Outcome::Ended(Next::Away(Work::Receive { .. } | Work::Finish { .. })));
    if is_write {
        session.has_changed |= !is_later && cx.may_owe();
        cx.fetched.into_iter().for_each(Fetched::outdate);
    }
}

/// Drops the reply to a command whose client does not want it.
#[cold]
fn muted<M: Mode, P>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    outcome: Outcome<M>,
    start: usize,
    tx: &mut Vec<u8>,
) -> Outcome<M> {
    if session.mutes() {
        tx.truncate(start);
        cx.holes.close_up(start);
    }
    match outcome {
        Outcome::Paused(Next::Away(Work::Send { .. })) if session.mutes() => Outcome::Paused(Next::Yield),
        Outcome::Paused(next) => Outcome::Paused(next),
        Outcome::Ended(Next::Away(Work::Send { .. })) if session.mutes() => {
            session.unmute();
            Outcome::Done
        }
        outcome => {
            session.unmute();
            outcome
        }
    }
}

impl RespSession {
    /// True if the client does not want the reply to the command that is executed.
    pub(super) fn mutes(&self) -> bool {
        matches!(self.replies, Replies::Off | Replies::Skip)
    }

    /// Goes on to the next command.
    pub(super) fn unmute(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
    }
}

/// Checks a command, and queues or executes it.
#[inline]
fn checked<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    request: &Request<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let mut subcommand = None;
    let call = find(cx, request, &mut subcommand);
    let call =
        match call.and_then(|call| check(cx, call).and_then(|()| Ok((call, admit(cx, session, call)?)))) {
            Ok((call, true)) => call,
            Ok((_, false)) => return pause(Next::Unpaused),
            // A page in a browser sends its commands behind a head like this.
            Err(_) if request.call.as_ref().is_err_and(|command| is_http(command.name())) => {
                return end(Next::Close);
            }
            Err(failure) => return Err(refused(cx, session, request, failure).into()),
        };
    if session.transaction.is_open && !call.spec.flags.has(Flag::AT_ONCE) {
        let queued = transaction::queue(session, call, tx);
        if queued.is_err() {
            cx.counters.resp_rejected.count(call.spec.id);
        }
        return queued;
    }
    let done = execute(cx, session, call, requests_left, tx);
    match &done {
        // The whole is counted where it was asked for.
        _ if session.is_part => {}
        Ok(()) => cx.counters.resp_calls.count(call.spec.id),
        Err(interrupt) => count_interrupted(cx, call.spec.id, interrupt),
    }
    done
}

/// Counts a command that has not ended with its result.
fn count_interrupted<M: Mode, P>(cx: &Context<'_, M, P>, id: Id, interrupt: &Interrupt<M>) {
    match interrupt {
        // It is executed again.
        Interrupt::Paused(_) => {}
        Interrupt::Ended(_) => cx.counters.resp_calls.count(id),
        Interrupt::Error(text) => {
            // Redis looks for these before it executes a command.
            let refusals = [NO_MEMORY, OTHER_SLOTS, ON_THE_MOVE];
            let is_refused = refusals.iter().any(|refusal| **text == *refusal.as_bytes());
            cx.counters.end_with_error(id, !is_refused);
        }
    }
}

#[inline]
fn execute<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    if let Some(rack) = cx.rack.filter(|_| call.spec.id != Id::Get && !session.is_part)
        && let Some(done) = elsewhere::execute(cx, rack, session, call, tx)
    {
        return done;
    }
    match call.spec.id {
        Id::Get => get::get(cx, session, call, tx),
        Id::Set => set::set(cx, session, call, tx),
        _ => others(cx, session, call, requests_left, tx),
    }
}

/// The refusal of a whole transaction.
pub(super) fn aborted(Failure(text): Failure) -> Failure {
    let why = text.strip_prefix(b"ERR ").unwrap_or(&text);
    Failure([b"EXECABORT Transaction discarded because of: ", why].concat().into())
}

/// Notes that a command was refused: it ends the transaction if it is EXEC, and breaks it otherwise.
#[cold]
fn refused<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    request: &Request<'_>,
    failure: Failure,
) -> Failure {
    let call = request.call.as_ref().ok().filter(|_| !session.is_part);
    if let Some(call) = call.and_then(|call| Call::of(call.command)) {
        cx.counters.resp_rejected.count(call.spec.id);
    }
    if request.call.as_ref().is_ok_and(|call| call.spec.id == Id::Exec) {
        session.transaction = Transaction::default();
        return aborted(failure);
    }
    session.transaction.is_broken |= session.transaction.is_open;
    failure
}

/// Refuses a command that the client may not use now. False for one that waits for the end of CLIENT PAUSE.
#[inline]
pub(super) fn admit<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
) -> Result<bool, Failure> {
    if session.is_plain { Ok(true) } else { tracking::check(cx, session, call) }
}

/// The command, or the subcommand that it names, which is put into `subcommand`. Others are too large to be copied.
#[inline]
fn find<'r, 'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &'r Request<'a>,
    subcommand: &'r mut Option<Call<'a>>,
) -> Result<&'r Call<'a>, Failure> {
    match &request.call {
        Ok(call) if call.spec.flags.has(Flag::CONTAINER) && call.command.len() > 1 => {
            Ok(subcommand.insert(with_subcommand(cx, call)?))
        }
        Ok(call) => Ok(call),
        Err(command) => Err(unknown(command)),
    }
}

/// Refuses a command whose arguments are impossible.
#[inline]
fn check<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>) -> Result<(), Failure> {
    if !call.spec.takes(call.command.len()) {
        return Err(format!("ERR wrong number of arguments for '{}' command", call.spec.name).into());
    }
    let keys = call.spec.keys;
    if keys.first > 0 {
        let is_one = keys.is_single();
        let bad = match is_one {
            true => bad_key(cx, call.argument(usize::from(keys.first))),
            false => {
                keys.positions(call.command.len()).zip(all_keys(call)).find_map(|(_, key)| bad_key(cx, key))
            }
        };
        if let Some(text) = bad {
            cx.counters.resp_bad_keys.count();
            return Err(text.into());
        }
    }
    Ok(())
}

/// The keys of a command.
pub(super) fn all_keys<'a>(call: &Call<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let keys = call.spec.keys;
    let count = keys.positions(call.command.len()).count();
    call.command.arguments(usize::from(keys.first)).step_by(usize::from(keys.step.max(1))).take(count)
}

/// The keys that a command has not done yet, if it is done with so many arguments.
pub(super) fn keys_left<'a>(call: &Call<'a>, done: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    all_keys(call).skip(done.saturating_sub(1) / usize::from(call.spec.keys.step.max(1)))
}

/// The error for a key that is none.
#[inline]
pub(super) fn bad_key<M: Mode, P>(cx: &Context<'_, M, P>, key: &[u8]) -> Option<&'static str> {
    match key.len() {
        1..=KEY_BYTES_MAX => None,
        0 => Some("ERR key is empty"),
        // Items with longer ones do not move.
        _ if cx.rack.is_some() => Some("ERR key is longer than 250 bytes"),
        bytes if bytes <= ITEM_KEY_BYTES_MAX => None,
        _ => Some("ERR key is longer than 65536 bytes"),
    }
}

#[cold]
fn with_subcommand<'a, M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'a>) -> Result<Call<'a>, Failure> {
    let name = call.argument(1);
    let Some(spec) = find_subcommand(call.spec, name) else {
        let said = until_nul(&name[..name.len().min(SAID_BYTES_MAX)]);
        let container = call.spec.name.to_uppercase();
        let text = [b"ERR unknown subcommand '", said, b"'. Try ", container.as_bytes(), b" HELP."].concat();
        return Err(Failure(text.into()));
    };
    let first = usize::from(spec.keys.first);
    let key = if first > 0 { call.command.argument(first) } else { None };
    Ok(Call { spec, lookup: key.map(|key| Lookup::of(cx, key, || Intent::ReadCopy)), ..*call })
}

/// True for the first word of a line in the head of an HTTP request, as Redis looks for it.
#[cold]
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// The error for a command that nobody knows, in Redis' words.
#[cold]
fn unknown(command: &Command<'_>) -> Failure {
    let name = command.name();
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(until_nul(&name[..name.len().min(SAID_BYTES_MAX)]));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for argument in command.arguments(1) {
        let said = text.len() - start;
        if said >= SAID_BYTES_MAX {
            break;
        }
        let argument = until_nul(argument);
        text.push(b'\'');
        text.extend_from_slice(&argument[..argument.len().min(SAID_BYTES_MAX - said)]);
        text.extend_from_slice(b"' ");
    }
    Failure(text.into())
}

/// Redis prints texts as C does: up to a zero byte.
pub(super) fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// Executes a command other than the most frequent ones.
fn others<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    match call.spec.id {
        Id::SetNx | Id::SetEx | Id::PSetEx | Id::GetSet => set::set(cx, session, call, tx),
        Id::MGet => get::get_many(cx, session, call, requests_left, tx),
        Id::MSet => strings::set_many(cx, session, call, tx),
        Id::MSetNx => strings::set_many_new(cx, call, tx),
        Id::GetDel => strings::get_and_delete(cx, session, call, tx),
        Id::GetEx => strings::get_and_expire(cx, session, call, tx),
        Id::StrLen => strings::length(cx, call, tx),
        Id::Incr => count::add(cx, call, Ok(1), tx),
        Id::Decr => count::add(cx, call, Ok(-1), tx),
        Id::IncrBy => count::add(cx, call, call.integer(2), tx),
        Id::DecrBy => count::subtract(cx, call, tx),
        Id::IncrByFloat => count::add_decimal(cx, call, tx),
        Id::Lcs => lcs::lcs(cx, session, call, tx),
        Id::GetBit => bits::get(cx, call, tx),
        Id::Del | Id::Unlink => keys::delete(cx, session, call, requests_left, tx),
        Id::Exists | Id::Touch => keys::exist(cx, session, call, requests_left, tx),
        Id::Type => keys::kind(cx, call, tx),
        Id::Ttl | Id::PTtl | Id::ExpireTime | Id::PExpireTime => expire::tell(cx, call, tx),
        Id::Expire | Id::PExpire | Id::ExpireAt | Id::PExpireAt => expire::expire(cx, call, tx),
        Id::Persist => expire::persist(cx, call, tx),
        Id::Scan => scan::scan(cx, call, tx),
        Id::KeysOf => scan::keys(cx, session, call, tx),
        Id::RandomKey => scan::random(cx, session, tx),
        Id::DbSize => scan::size(cx, tx),
        Id::ObjectEncoding | Id::ObjectFreq | Id::ObjectIdleTime | Id::ObjectRefCount | Id::MemoryUsage => {
            object::tell(cx, session, call, tx)
        }
        Id::Append
        | Id::GetRange
        | Id::SubStr
        | Id::SetRange
        | Id::SetBit
        | Id::BitCount
        | Id::Rename
        | Id::RenameNx
        | Id::Copy
        | Id::Exec => through(cx, session, call, requests_left, tx),
        Id::Multi | Id::Discard | Id::Watch | Id::Unwatch => {
            transaction::execute(cx, session, call, requests_left, tx)
        }
        Id::Ping | Id::Echo | Id::Quit | Id::Reset | Id::Select | Id::Auth | Id::Hello => {
            client::connection(cx, session, call, tx)
        }
        _ => about(cx, session, call, tx),
    }
}

/// Executes a command that goes through whole values, at the worker for those.
fn through<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let bytes = home::go_home(cx, session, call)?;
    let done = match call.spec.id {
        Id::Append => strings::append(cx, call, tx),
        Id::GetRange | Id::SubStr => strings::range(cx, call, tx),
        Id::SetRange => strings::set_range(cx, call, tx),
        Id::SetBit => bits::set(cx, call, tx),
        Id::BitCount => bits::count(cx, call, tx),
        Id::Rename | Id::RenameNx => rename::rename(cx, call, tx),
        Id::Copy => rename::copy(cx, call, tx),
        _ => transaction::execute(cx, session, call, requests_left, tx),
    };
    // Other connections are served before the visit has gone through many bytes.
    *requests_left = requests_left.saturating_sub((bytes / BYTES_OF_A_REQUEST) as usize);
    done
}

/// Executes a command about clients or the server.
fn about<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let name = call.spec.name;
    match call.spec.id {
        Id::FlushDb | Id::FlushAll => server::flush(cx, call, tx),
        Id::Subscribe | Id::Unsubscribe => tracking::subscribe(session, call, tx),
        Id::SwapDb => server::swap(call, tx),
        Id::Time => server::time(tx),
        Id::Wait => server::wait(call, tx),
        Id::Info => info::info(cx, session, call, tx),
        Id::ConfigGet | Id::ConfigSet | Id::ConfigResetStat => config::execute(cx, session, call, tx),
        Id::SlowLogGet | Id::SlowLogLen | Id::SlowLogReset => server::slow_log(cx, call, tx),
        Id::LatencyLatest | Id::LatencyHistory | Id::LatencyReset | Id::LatencyHistogram => {
            server::latency(cx, session, call, tx)
        }
        _ if name.starts_with("acl|") && !name.ends_with("|help") => acl::execute(cx, session, call, tx),
        _ if name.starts_with("client|") && !name.ends_with("|help") => client::client(cx, session, call, tx),
        _ if name.starts_with("command") && !name.ends_with("|help") => describe::command(session, call, tx),
        _ if name.ends_with("|help") => describe::help(call, tx),
        // A container without a subcommand has too few arguments.
        _ => fail(format!("ERR wrong number of arguments for '{name}' command")),
    }
}
