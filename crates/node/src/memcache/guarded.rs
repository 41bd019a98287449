//! Connections of a server with users: they must say who they are, and their commands are looked at.

use std::marker::PhantomData;

use minos_engine::Mode;
use minos_proto::memcache::{
    Command, Parsed, Request, Store, Value,
    binary::{Reply, Status, Wants, begins_login, compose, greeting},
    text,
};

use super::{
    answer::Answer,
    binary::Binary,
    rights,
    serve::{Dialect, serve_bursts},
    session::{Executed, MemcacheSession, Wire},
    text::Text,
};
use crate::{
    access::LoggedIn,
    ops::{Context, Lookup, Next, Placement},
};

/// Longest line before a login, and longest name and password together.
const LINE_BYTES_MAX: usize = 2048;
const LOGIN_BYTES_MAX: usize = 2048;

/// A form of the protocol whose commands need rights.
pub(super) struct Guarded<D>(PhantomData<D>);

impl<D: Dialect> Dialect for Guarded<D> {
    type Reply<'a> = D::Reply<'a>;
    type Refusal = D::Refusal;
    const IS_GUARDED: bool = true;

    #[inline]
    fn parse<'a>(
        session: &mut MemcacheSession,
        input: &'a [u8],
    ) -> Parsed<'a, Self::Reply<'a>, Self::Refusal> {
        session.goes_on = session.resume.is_some();
        D::parse(session, input)
    }

    fn refuse(refusal: Self::Refusal, tx: &mut Vec<u8>) {
        D::refuse(refusal, tx);
    }

    #[inline]
    fn execute<M: Mode, P: Placement>(
        cx: &mut Context<'_, M, P>,
        session: &mut MemcacheSession,
        command: &Command<'_, Self::Reply<'_>>,
        lookup: Option<Lookup<'_>>,
        requests_left: &mut usize,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        D::execute(cx, session, command, lookup, requests_left, tx)
    }
}

/// Refuses a command that the connection's user may not use; false if it may.
pub(super) fn refuse<M: Mode, P, R: Answer>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_, R>,
    tx: &mut Vec<u8>,
) -> bool {
    // The user was there when this burst began.
    let user = session.guard.as_mut().and_then(|guard| guard.user());
    let reason = match user {
        Some(user) => rights::forbidden(user, &command.request, session.goes_on),
        None => Some("unauthenticated".to_owned()),
    };
    let Some(reason) = reason else { return false };
    cx.counters.cmd_denied.count();
    if let Request::Store(Store { value, .. }) = &command.request
        && !matches!(value, Value::Whole(_))
    {
        session.swallow_bytes = value.bytes() + R::END_BYTES as u64;
    }
    command.reply.denied(&reason, tx);
    true
}

/// As [`super::serve`], of a connection with a guard.
pub(super) fn serve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut consumed = 0;
    while consumed < input.len() {
        let is_known = session.guard.as_mut().is_some_and(|guard| guard.user().is_some());
        if !is_known {
            // What a user had begun who is one no longer.
            session.pass_over_line();
            consumed += session.swallow(&input[consumed..]);
        }
        let rest = &input[consumed..];
        if rest.is_empty() {
            break;
        }
        let is_binary = session.wire == Some(Wire::Binary);
        // Clients log in with their first packets, and wait for the answer.
        let greets = is_binary && begins_login(rest);
        let (used, next) = match (is_binary, is_known) {
            (false, true) => serve_bursts::<Guarded<Text>, M, P>(cx, session, rest, requests_left, tx),
            (true, true) if !greets => {
                serve_bursts::<Guarded<Binary>, M, P>(cx, session, rest, requests_left, tx)
            }
            _ if *requests_left == 0 => return (consumed, Next::Yield),
            (false, false) => log_in_by_set(cx, session, rest, tx),
            (true, _) => log_in_by_packet(cx, session, rest, tx),
        };
        consumed += used;
        match next {
            Next::Continue if cx.holes.is_empty() => *requests_left = requests_left.saturating_sub(1),
            next => return (consumed, next),
        }
    }
    (consumed, Next::Continue)
}

/// Takes the first command, `set KEY FLAGS EXPTIME BYTES` with a name and a password as the value, as memcached does.
fn log_in_by_set<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
        let is_junk = input.len() > LINE_BYTES_MAX;
        let wanted_bytes = input.len() + 1;
        return if is_junk { (0, Next::Close) } else { (0, Next::NeedMore { wanted_bytes }) };
    };
    let line = &input[..=end];
    let Some(value_bytes) = login_bytes(line) else {
        tx.extend_from_slice(text::UNAUTHENTICATED);
        return (line.len(), Next::Continue);
    };
    if value_bytes > LOGIN_BYTES_MAX {
        tx.extend_from_slice(text::AUTH_FAILURE);
        return (0, Next::Close);
    }
    let whole = line.len() + value_bytes + text::LINE_END.len();
    let Some(value) = input.get(line.len()..whole) else {
        return (0, Next::NeedMore { wanted_bytes: whole });
    };
    let Some(value) = value.strip_suffix(text::LINE_END) else {
        tx.extend_from_slice(text::BAD_TERMINATION);
        return (whole, Next::Continue);
    };
    let at = value.iter().position(|&byte| byte == b' ').unwrap_or(value.len());
    let (name, password) = (&value[..at], value.get(at + 1..).unwrap_or_default());
    let Some(guard) = &mut session.guard else { return (0, Next::Close) };
    let line = match guard.log_in(name, password, cx.counters) {
        LoggedIn::Wait(task) => return (0, Next::Check(task)),
        LoggedIn::Yes => text::STORED,
        LoggedIn::No => text::AUTH_FAILURE,
    };
    tx.extend_from_slice(line);
    (whole, Next::Continue)
}

/// The length of the value in a line that may be a login.
fn login_bytes(line: &[u8]) -> Option<usize> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    if words.next() != Some("set") {
        return None;
    }
    words.nth(3)?.parse().ok()
}

/// Takes a packet of a login by SASL. Any other ends the connection, as with memcached.
fn log_in_by_packet<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let Some(greeting) = greeting(input) else {
        return (0, Next::NeedMore { wanted_bytes: input.len() + 1 });
    };
    let Some(guard) = &mut session.guard else { return (0, Next::Close) };
    let reply: Reply = greeting.reply;
    match greeting.wants {
        Wants::Mechanisms => compose::done(tx, reply, 0, b"PLAIN"),
        Wants::Version => compose::done(tx, reply, 0, text::VERSION_NUMBER.as_bytes()),
        Wants::Login { name, password } => match guard.log_in(name, password, cx.counters) {
            LoggedIn::Wait(task) => return (0, Next::Check(task)),
            LoggedIn::Yes => compose::done(tx, reply, 0, b"Authenticated"),
            LoggedIn::No => compose::error(tx, reply, Status::Auth),
        },
        Wants::OtherMechanism => compose::error(tx, reply, Status::Auth),
        Wants::Other => {
            compose::error(tx, reply, Status::Auth);
            return (0, Next::Close);
        }
    }
    (greeting.consumed, Next::Continue)
}
