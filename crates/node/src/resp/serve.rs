//! Serves the input of a connection: parses a burst of commands, executes each, says how the connection goes on.

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_proto::resp::{
    Begun, Command, Flag, Head, Id, Limits, Parsed, bulk_head, compose, find, parse, rewrite_inline,
};

use super::{
    call::Call,
    execute::{Outcome, Request, run},
    session::{Discard, RespSession},
    set, timed,
};
use crate::ops::{Context, Fetch, Lookup, Next, Placement};
use crate::{
    rack::{Forwards, Intent, RackView},
    tracking::set_origin,
};

/// Bounds of commands that were checked when they came.
pub(super) const CHECKED: Limits = Limits { bulk_bytes_max: u64::MAX, command_bytes_max: i64::MAX as usize };

/// A parsed command of a burst, and its end in the input.
struct Pending<'a> {
    request: Request<'a>,
    end: usize,
}

/// Parses and executes commands at the front of `input`, at most `requests_left`; replies go to `tx`. Returns the
/// number of bytes consumed.
pub(crate) fn serve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    session.mark_changes();
    // What was composed before is sent.
    session.replies_permit = None;
    let (consumed, next) = serve_all(cx, session, input, requests_left, tx);
    set_origin(None);
    if cx.holes.is_empty() {
        return (consumed, next);
    }
    let mut holes = cx.holes.take();
    let origin = session.origin(cx);
    holes.iter_mut().for_each(|hole| hole.forward.origin = origin);
    (consumed, Next::Forward(Box::new(Forwards { holes, then: next })))
}

fn serve_all<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut consumed = 0;
    loop {
        let (discarded, next) = discard(session, &input[consumed..], tx);
        consumed += discarded;
        if !matches!(next, Next::Continue) || consumed == input.len() {
            return (consumed, next);
        }
        if *requests_left == 0 || tx.len() >= session.replies_bytes_max {
            return (consumed, Next::Yield);
        }
        let (used, next) = serve_burst(cx, session, &input[consumed..], requests_left, tx);
        consumed += used;
        match next {
            Next::Continue if cx.holes.is_empty() => {}
            next => return (consumed, next),
        }
    }
}

/// Discards the rest of a refused command at the front of `input`; returns the number of bytes.
#[inline]
fn discard<M: Mode>(session: &mut RespSession, input: &[u8], tx: &mut Vec<u8>) -> (usize, Next<M>) {
    let mut at = 0;
    loop {
        let Discard { bytes, bulks } = &mut session.discard;
        let there = (*bytes).min((input.len() - at) as u64);
        *bytes -= there;
        at += there as usize;
        if *bytes > 0 || *bulks == 0 {
            return (at, Next::Continue);
        }
        match bulk_head(input, at, &session.limits) {
            Head::Bulk(bulk_bytes, body) => {
                session.discard = Discard { bytes: bulk_bytes + 2, bulks: *bulks - 1 };
                at = body;
            }
            Head::Missing => return (at, Next::NeedMore { wanted_bytes: input.len() - at + 1 }),
            Head::Malformed(text) => return (at, refuse_protocol(text, tx)),
            Head::NoBulk(byte) => return (at, refuse_no_bulk(byte, tx)),
        }
    }
}

/// Answers bytes that are no command. What follows them cannot be understood.
#[cold]
fn refuse_protocol<M: Mode>(text: &str, tx: &mut Vec<u8>) -> Next<M> {
    compose::error(tx, format!("ERR Protocol error: {text}").as_bytes());
    Next::Close
}

#[cold]
fn refuse_no_bulk<M: Mode>(byte: u8, tx: &mut Vec<u8>) -> Next<M> {
    let text = [b"ERR Protocol error: expected '$', got '".as_slice(), &[byte], b"'"].concat();
    compose::error(tx, &text);
    Next::Close
}

/// Parses a burst of commands while their index buckets are fetched, then executes it. Returns the number of bytes
/// consumed.
fn serve_burst<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut burst = ArrayVec::new();
    let limits = session.limits();
    let tail = parse_burst(cx, &limits, input, &mut burst, *requests_left);
    stage(cx, &mut burst);
    let looked_at = cx.probe.choose(burst.len()).unwrap_or(usize::MAX);
    if let Some(rack) = cx.rack.filter(|rack| rack.is_sampled()) {
        sample(rack, &burst);
    }
    let mut consumed = 0;
    for (at, Pending { request, end }) in burst.iter().enumerate() {
        *requests_left = requests_left.saturating_sub(1);
        let outcome = match at == looked_at {
            true => timed::execute(cx, session, request, requests_left, tx),
            false => run(cx, session, request, requests_left, tx),
        };
        match outcome {
            Outcome::Done => consumed = *end,
            Outcome::Ended(next) => return (*end, timed::noted(cx, request, next)),
            Outcome::Paused(Next::Fetch(fetch)) => {
                return (consumed, Next::Fetch(Box::new(along(cx, *fetch, &burst[at + 1..]))));
            }
            Outcome::Paused(next) => return (consumed, timed::noted(cx, request, next)),
        }
        // More replies than these are sent first, and a command that took long may end the visit.
        if tx.len() >= session.replies_bytes_max || *requests_left == 0 {
            return (consumed, Next::Continue);
        }
    }
    if consumed > 0 && session.limits() != limits {
        // The client has said who it is: what follows was read as that of a stranger.
        return (consumed, Next::Continue);
    }
    let (used, next) = match tail {
        Tail::Unknown => (0, Next::Continue),
        Tail::NeedMore(wanted_bytes) if wanted_bytes > limits.command_bytes_max => {
            (0, refuse_protocol("command exceeds --max-buffer", tx))
        }
        Tail::NeedMore(wanted_bytes) => (0, Next::NeedMore { wanted_bytes }),
        Tail::Begun(begun) => begin(cx, session, &begun, tx),
        Tail::Inline(line, bytes) => serve_line(cx, session, (line, bytes), requests_left, tx),
        Tail::Malformed(text) => (input.len() - consumed, refuse_protocol(text, tx)),
        Tail::NoBulk(byte) => (input.len() - consumed, refuse_no_bulk(byte, tx)),
    };
    (consumed + used, next)
}

/// The input behind the commands of a burst.
enum Tail<'a> {
    /// Possibly more commands.
    Unknown,
    /// An incomplete command of this many bytes at least.
    NeedMore(usize),
    /// A command with a bulk string that is arriving.
    Begun(Begun<'a>),
    /// A line of words, and its bytes.
    Inline(&'a [u8], usize),
    Malformed(&'static str),
    NoBulk(u8),
}

/// Parses commands at the front of `input` and prefetches their index buckets.
#[inline]
fn parse_burst<'a, M: Mode, P>(
    cx: &Context<'a, M, P>,
    limits: &Limits,
    input: &'a [u8],
    burst: &mut ArrayVec<Pending<'a>, BURST_MAX>,
    requests_max: usize,
) -> Tail<'a> {
    let mut end = 0;
    while burst.len() < BURST_MAX.min(requests_max) && end < input.len() {
        match parse(&input[end..], limits) {
            Parsed::Command(command, bytes) => {
                end += bytes;
                burst.push(Pending { request: request(cx, command), end });
            }
            Parsed::Nothing(bytes) => {
                end += bytes;
                match burst.last_mut() {
                    Some(pending) => pending.end = end,
                    // It is consumed as an empty line is.
                    None => return Tail::Inline(&[], end),
                }
            }
            Parsed::NeedMore(wanted) => return Tail::NeedMore(wanted),
            Parsed::Begun(begun) => return Tail::Begun(begun),
            Parsed::Inline(line, bytes) => return Tail::Inline(line, bytes),
            Parsed::Malformed(text) => return Tail::Malformed(text),
            Parsed::NoBulk(byte) => return Tail::NoBulk(byte),
        }
    }
    Tail::Unknown
}

/// What the table knows about a command, and the look-up of its first key.
#[inline]
pub(super) fn request<'a, M: Mode, P>(cx: &Context<'a, M, P>, command: Command<'a>) -> Request<'a> {
    let Some(spec) = find(command.name()) else { return Request { call: Err(command) } };
    let first = usize::from(spec.keys.first);
    let key = if first > 0 { command.argument(first) } else { None };
    let lookup = key.map(|key| Lookup::of(cx, key, || Intent::ReadCopy));
    if let Some(lookup) = &lookup {
        lookup.prefetch(cx);
    }
    Request { call: Ok(Call { command, spec, lookup }) }
}

/// Looks the keys of a burst up in their buckets, which are cached by now, and prefetches their items.
#[inline]
fn stage<'a, M: Mode, P>(cx: &Context<'a, M, P>, burst: &mut [Pending<'a>]) {
    if burst.len() < 2 {
        return;
    }
    for pending in burst {
        if let Ok(Call { spec, lookup: Some(lookup), .. }) = &mut pending.request.call {
            match spec.id {
                Id::Get => lookup.stage(cx),
                _ => cx.store.prefetch_item(lookup.hash),
            }
        }
    }
}

/// Counts the first command of a burst for its micro-shard.
#[cold]
fn sample<M: Mode>(rack: &RackView<M>, burst: &[Pending<'_>]) {
    if let Some(Pending { request: Request { call: Ok(call @ Call { lookup: Some(_), .. }) }, .. }) =
        burst.first()
    {
        let intent = if call.spec.flags.has(Flag::WRITE) { Intent::Change } else { Intent::Read };
        rack.count(call.key().1, intent);
    }
}

/// Fetches the keys that are read behind a command along with its own.
#[cold]
fn along<M: Mode, P>(cx: &Context<'_, M, P>, fetch: Fetch<M>, behind: &[Pending<'_>]) -> Fetch<M> {
    let reads = behind.iter().filter_map(|pending| pending.request.call.as_ref().ok());
    let keys = reads.filter(|call| call.spec.id == Id::Get && call.lookup.is_some()).map(Call::key);
    fetch.with(cx, keys)
}

/// Serves a line of words. It stays in the input as long as the command is not executed.
#[cold]
fn serve_line<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    (line, bytes): (&[u8], usize),
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut rewritten = std::mem::take(&mut session.rewritten);
    rewritten.clear();
    let served = match rewrite_inline(line, &mut rewritten) {
        Err(text) => (bytes, refuse_protocol(text, tx)),
        Ok(()) => match (!rewritten.is_empty()).then(|| parse(&rewritten, &CHECKED)) {
            Some(Parsed::Command(command, _)) => {
                let request = request(cx, command);
                let outcome = match cx.probe.choose(1) {
                    Some(_) => timed::execute(cx, session, &request, requests_left, tx),
                    None => run(cx, session, &request, requests_left, tx),
                };
                match outcome {
                    Outcome::Done => (bytes, Next::Continue),
                    Outcome::Ended(next) => (bytes, timed::noted(cx, &request, next)),
                    Outcome::Paused(next) => (0, timed::noted(cx, &request, next)),
                }
            }
            _ => (bytes, Next::Continue),
        },
    };
    session.rewritten = rewritten;
    served
}

/// Goes on with a command whose bulk string is arriving. A large value is received into its place; any other is waited
/// for, if there is room for it.
#[cold]
fn begin<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    begun: &Begun<'_>,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let (failure, has_begun) = match set::receive(cx, session, begun) {
        set::Receive::Away(work) => {
            session.unmute();
            if let (Some(spec), Some(key)) = (find(begun.command.name()), begun.command.argument(1)) {
                cx.probe.goes_away(spec.name, cx.store.hash(key), key);
            }
            return (begun.at, Next::Away(work));
        }
        set::Receive::Wait(next) => return (0, next),
        set::Receive::Refused(failure) => (failure, false),
        set::Receive::Failed(failure) => (failure, true),
        set::Receive::NotMeant if begun.wanted_bytes() <= session.limits.command_bytes_max as u64 => {
            return (0, Next::NeedMore { wanted_bytes: begun.wanted_bytes() as usize });
        }
        set::Receive::NotMeant => {
            ("ERR command exceeds --max-buffer, which CONFIG SET max-buffer can raise".into(), false)
        }
    };
    cx.counters.resp_errors.count();
    if let Some(call) = Call::of(begun.command) {
        cx.counters.end_with_error(call.spec.id, has_begun);
    }
    session.transaction.is_broken |= session.transaction.is_open;
    if !session.mutes() {
        compose::error(tx, &failure.0);
    }
    session.unmute();
    let bulks = begun.arguments - begun.command.len() - 1;
    session.discard = Discard { bytes: begun.bulk_bytes + 2, bulks };
    (begun.at, Next::Continue)
}
