//! Serves the input of a connection: parses a burst of commands, executes each, says how the connection goes on.

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::{Access, Mode};
use minos_proto::memcache::{Command, KeyBuffer, Malformed, Parsed, Request, Value};
use minos_sched::WorkerId;

use super::{
    answer::Answer,
    binary::Binary,
    guarded, remote,
    session::{Executed, MemcacheSession, Wire},
    text::Text,
    timed,
};
use crate::ops::{Context, Fetch, Fetched, Lookup, Next, Placement, Prefixes};
use crate::rack::{Forwards, ORIGIN_MARK, RackView, TELL_MARK, notes};
use crate::resp;
use crate::tracking::{Origin, Telling, set_heard_origin};

/// A form of the memcached protocol: how bytes become commands, and outcomes bytes. Bursts are the same in each.
pub(super) trait Dialect {
    /// The form of the reply to a command.
    type Reply<'a>: Answer;
    /// The answer to bytes that are no command.
    type Refusal;
    /// True if commands need rights.
    const IS_GUARDED: bool = false;

    /// Reads the command at the front of `input`.
    fn parse<'a>(
        session: &mut MemcacheSession,
        input: &'a [u8],
    ) -> Parsed<'a, Self::Reply<'a>, Self::Refusal>;

    /// Appends the answer to bytes that are no command.
    fn refuse(refusal: Self::Refusal, tx: &mut Vec<u8>);

    /// Executes a command of this node, whose bytes are given, with the [`Lookup`] of its key. Appends the reply, or the
    /// part of it that is ready, to `tx`. Each key of a line takes one of `requests_left`; the line pauses when none is
    /// left.
    fn execute<M: Mode, P: Placement>(
        cx: &mut Context<'_, M, P>,
        session: &mut MemcacheSession,
        command: &Command<'_, Self::Reply<'_>>,
        lookup: Option<Lookup<'_>>,
        requests_left: &mut usize,
        tx: &mut Vec<u8>,
    ) -> Executed<M>;
}

/// A parsed command of a burst, the lookup of its key, and its end in the input.
struct Pending<'a, R> {
    command: Command<'a, R>,
    lookup: Option<Lookup<'a>>,
    end: usize,
}

/// The input behind the commands of a burst.
enum Tail<A> {
    /// Possibly more commands.
    Unknown,
    /// An incomplete command.
    NeedMore,
    /// A command for a key of another worker.
    Owner(WorkerId),
    /// An invalid command.
    Malformed(Malformed<A>),
}

/// Parses and executes requests at the front of `input`, at most `requests_left`; replies go to `tx`. Returns
/// the number of bytes consumed.
pub(crate) fn serve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    if session.is_peer {
        set_heard_origin(session.origin);
    }
    let (consumed, next) = match session.wire {
        _ if session.guard.is_some() => guarded::serve(cx, session, input, requests_left, tx),
        Some(Wire::Binary) => serve_bursts::<Binary, M, P>(cx, session, input, requests_left, tx),
        _ => serve_bursts::<Text, M, P>(cx, session, input, requests_left, tx),
    };
    if session.is_peer {
        set_heard_origin(Origin::default());
    }
    if cx.holes.is_empty() {
        return (consumed, next);
    }
    (consumed, Next::Forward(Box::new(Forwards { holes: cx.holes.take(), then: next })))
}

pub(super) fn serve_bursts<D: Dialect, M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut consumed = session.swallow(input);
    while consumed < input.len() {
        if !M::Access::IS_BY_THREAD && session.is_peer && is_aside(input[consumed]) {
            let Some(bytes) = take_aside(cx, session, &input[consumed..]) else {
                let wanted_bytes = input.len() - consumed + 1;
                return (consumed, Next::NeedMore { wanted_bytes });
            };
            consumed += bytes;
            continue;
        }
        if *requests_left == 0 || tx.len() >= session.replies_bytes_max {
            return (consumed, Next::Yield);
        }
        if !M::Access::IS_BY_THREAD && session.is_peer && input[consumed] == resp::MARK {
            *requests_left -= 1;
            let noted = (&mut session.midway, &mut session.has_changed);
            let (used, next) = resp::serve_relayed(cx, &input[consumed..], noted, requests_left, tx);
            consumed += used;
            match next {
                Next::Continue => continue,
                next => return (consumed, next),
            }
        }
        let (used, next) = serve_burst::<D, M, P>(cx, session, &input[consumed..], requests_left, tx);
        consumed += used;
        match next {
            Next::Continue if cx.holes.is_empty() => {}
            next => return (consumed, next),
        }
        consumed += session.swallow(&input[consumed..]);
    }
    (consumed, Next::Continue)
}

/// True if a node says with this byte something else than a command.
#[inline]
fn is_aside(mark: u8) -> bool {
    matches!(mark, notes::MARK | ORIGIN_MARK | TELL_MARK)
}

/// Takes in what a node says besides commands at the front of `input`; returns its bytes, or `None` if it has not come
/// whole.
fn take_aside<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
) -> Option<usize> {
    match input[0] {
        ORIGIN_MARK => {
            let origin = input[1..].first_chunk()?;
            session.origin = Origin(u64::from_le_bytes(*origin));
            set_heard_origin(session.origin);
            Some(1 + origin.len())
        }
        TELL_MARK => {
            let asked = cx.admin.tracking().zip(session.seat);
            session.telling = asked.map(|(tracking, seat)| Telling::begin(tracking, seat));
            Some(1)
        }
        _ => {
            let (notes, bytes) = notes::read(input)?;
            cx.store.note_reads(&notes, cx.now);
            Some(bytes)
        }
    }
}

/// Parses a burst of requests while their index buckets are fetched, then executes it. Returns the number of
/// bytes consumed.
fn serve_burst<D: Dialect, M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    input: &[u8],
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let mut burst = ArrayVec::new();
    let tail = parse_burst::<D, M, P>(cx, session, input, &mut burst, *requests_left);
    stage(cx, &mut burst);
    let looked_at = cx.probe.choose(burst.len()).map_or(usize::MAX, |at| burst[at].end);
    // Without followers replies wait for nothing. Most commands change nothing by their kind.
    let mut matters = M::HAS_FLASH;
    if let Some(rack) = cx.rack {
        if rack.is_sampled() {
            sample(rack, &burst);
        }
        matters |= rack.is_feeding();
    }
    let mut consumed = 0;
    for Pending { command, lookup, end } in &burst {
        *requests_left = requests_left.saturating_sub(1);
        let bytes = &input[consumed..*end];
        let is_timed = *end == looked_at;
        let executed = run::<D, M, P>(cx, session, ((command, bytes), is_timed), *lookup, requests_left, tx);
        cx.holes.fill(bytes);
        if matters && command.request.may_change() {
            session.has_changed |= executed.has_changed(&command.request) && cx.may_owe();
        }
        if M::HAS_FLASH && command.request.may_change() {
            cx.fetched.into_iter().for_each(Fetched::outdate);
        }
        let command_bytes = end - consumed;
        consumed += executed.unread.read_of(command_bytes);
        match executed.next {
            // More replies than these are sent first.
            Next::Continue if tx.len() >= session.replies_bytes_max => return (consumed, Next::Continue),
            Next::Continue => {}
            Next::NeedMore { wanted_bytes } => {
                return (consumed, Next::NeedMore { wanted_bytes: command_bytes + wanted_bytes });
            }
            Next::Fetch(fetch) => {
                let behind = burst.iter().filter(|pending| pending.end > *end);
                return (consumed, Next::Fetch(Box::new(along(cx, *fetch, behind))));
            }
            next => return (consumed, timed::noted(cx, &command.request, *lookup, next)),
        }
    }
    match tail {
        Tail::Unknown => (consumed, Next::Continue),
        Tail::Owner(worker) => (consumed, Next::Owner(worker)),
        Tail::NeedMore => (consumed, Next::NeedMore { wanted_bytes: input.len() - consumed + 1 }),
        Tail::Malformed(malformed) => {
            *requests_left = requests_left.saturating_sub(1);
            D::refuse(malformed.reply, tx);
            session.swallow_bytes = malformed.swallow;
            (consumed + malformed.consumed, if malformed.close { Next::Close } else { Next::Continue })
        }
    }
}

/// Executes a command, and takes its time if the probe has chosen it.
#[inline]
fn run<D: Dialect, M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, is_timed): ((&Command<'_, D::Reply<'_>>, &[u8]), bool),
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    if is_timed {
        return timed::execute::<D, M, P>(cx, session, command, lookup, requests_left, tx);
    }
    execute::<D, M, P>(cx, session, command, lookup, requests_left, tx)
}

/// Fetches the keys that are read behind a command along with its own.
#[cold]
fn along<'a, R: 'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    fetch: Fetch<M>,
    behind: impl Iterator<Item = &'a Pending<'a, R>>,
) -> Fetch<M> {
    let mut buffer = KeyBuffer::default();
    let mut others = Vec::new();
    for Pending { command, lookup, .. } in behind {
        if let (Request::Get(get), Some(lookup)) = (&command.request, lookup) {
            others.push((lookup.hash, Box::<[u8]>::from(get.key.bytes(&mut buffer))));
        }
    }
    fetch.with(cx, others.iter().map(|(hash, key)| (*hash, &**key)))
}

/// Parses commands at the front of `input` and prefetches their index buckets.
fn parse_burst<'a, D: Dialect, M: Mode, P: Placement>(
    cx: &Context<'a, M, P>,
    session: &mut MemcacheSession,
    input: &'a [u8],
    burst: &mut ArrayVec<Pending<'a, D::Reply<'a>>, BURST_MAX>,
    requests_max: usize,
) -> Tail<D::Refusal> {
    let mut end = 0;
    while burst.len() < BURST_MAX.min(requests_max) && end < input.len() {
        if session.is_peer && matches!(input[end], notes::MARK | resp::MARK) {
            return Tail::Unknown;
        }
        let rest = &input[end..];
        match D::parse(session, rest) {
            Parsed::Request { command, consumed } => {
                let mut buffer = KeyBuffer::default();
                let key = command.request.key();
                let mut lookup = key.map(|key| {
                    Lookup::of(cx, key.bytes(&mut buffer), || remote::intent(&command, session.is_peer))
                });
                if let Some(key) = &lookup {
                    match cx.owner(key.hash, || command.reply.is_read(&command.request)) {
                        None => key.prefetch(cx),
                        // Each key of a line has its own.
                        Some(_) if matches!(command.request, Request::GetMany(_)) => lookup = None,
                        Some(worker) => return Tail::Owner(worker),
                    }
                }
                end += consumed;
                let is_last = match command.request {
                    // The value follows.
                    Request::Store(store) => !matches!(store.value, Value::Whole(_)),
                    // It may pause, and then the commands behind it would be parsed again each time.
                    Request::GetMany(_) => true,
                    _ => false,
                };
                burst.push(Pending { command, lookup, end });
                if is_last {
                    return Tail::Unknown;
                }
            }
            Parsed::NeedMore => return Tail::NeedMore,
            Parsed::Malformed(malformed) => return Tail::Malformed(malformed),
        }
    }
    Tail::Unknown
}

/// Counts the first command of a burst for its micro-shard.
#[cold]
fn sample<M: Mode, R: Answer>(rack: &RackView<M>, burst: &[Pending<'_, R>]) {
    let mut buffer = KeyBuffer::default();
    if let Some(Pending { command, .. }) = burst.first()
        && let Some(key) = command.request.key()
    {
        rack.count(key.bytes(&mut buffer), remote::intent(command, false));
    }
}

/// Looks the keys of a burst up in their buckets, which are cached by now, and prefetches their items.
fn stage<'a, R, M: Mode, P>(cx: &Context<'a, M, P>, burst: &mut [Pending<'a, R>]) {
    if burst.len() < 2 {
        return;
    }
    for pending in burst {
        let Some(lookup) = &mut pending.lookup else { continue };
        match pending.command.request {
            Request::Get(_) => lookup.stage(cx),
            _ if lookup.owner.is_some() => {}
            _ => cx.store.prefetch_item(lookup.hash),
        }
    }
}

/// Executes `command`, here or, if it is for a key of another node, there; and counts it by prefix if that is on.
#[inline]
pub(super) fn execute<D: Dialect, M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, bytes): (&Command<'_, D::Reply<'_>>, &[u8]),
    lookup: Option<Lookup<'_>>,
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    if D::IS_GUARDED && guarded::refuse(cx, session, command, tx) {
        return Executed::DONE;
    }
    match lookup {
        Some(Lookup { hash, owner: Some(owner), .. }) => {
            if let Some(executed) = remote::execute(cx, session, (command, bytes), (hash, owner), tx) {
                return executed;
            }
        }
        // A change of the key waits until its micro-shard has moved, and this read must not overtake it.
        Some(Lookup { hash, .. }) if !cx.holes.may_read(hash) => return Executed::BEHIND_HOLES,
        _ => {}
    }
    let hits = cx.counters.get_hits.value();
    let executed = D::execute(cx, session, command, lookup, requests_left, tx);
    if let Some(prefixes) = cx.prefixes
        && !matches!(executed.next, Next::Fetch(_))
    {
        count_by_prefix(prefixes, &command.request, cx.counters.get_hits.value() > hits);
    }
    executed
}

/// Counts a command for one key by its prefix.
fn count_by_prefix(prefixes: &Prefixes, request: &Request<'_>, is_hit: bool) {
    let mut buffer = KeyBuffer::default();
    match request {
        Request::Get(get) => prefixes.count_get(get.key.bytes(&mut buffer), is_hit),
        Request::Store(store) => prefixes.count(store.key.bytes(&mut buffer), |counts| counts.sets += 1),
        Request::Delete(delete) => {
            prefixes.count(delete.key.bytes(&mut buffer), |counts| counts.deletes += 1)
        }
        _ => {}
    }
}
