//! SET, and the older commands for its options. A large value is received into its place.

use minos_access::Access;
use minos_base::{Clock, KeyHash, SizeClass, StoreKind};
use minos_engine::Mode;
use minos_proto::resp::{Begun, Head, Id, Limits, Spec, Version, bulk_head, compose, find, integer};

use super::{
    call::{Call, Done, Failure, NO_INTEGER, NO_MEMORY, SYNTAX, cold, end, entry, failed_text, no_memory},
    elsewhere,
    execute::{admit, bad_key},
    rights::NO_KEY,
    session::{Discard, RespSession},
    tracking,
};
use crate::ops::{
    self, AnswerStore, Cold, Context, Fetch, LINE_END, LargeStore, LargeStored, Life, Moment, Next,
    PendingStore, Placement, ReadTrailer, StoreOperation, Stored, TrailerEnd, Work, now_ms,
};
use crate::rack::{Forward, Intent, Owner};

/// Options behind a large value, at most. Each has a bound too, so that nobody keeps a store waiting with words.
const OPTIONS_MAX: usize = 16;
const OPTION_LIMITS: Limits = Limits { bulk_bytes_max: 256, command_bytes_max: 0 };

/// The form of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// OK, or nothing.
    Ok,
    /// 1 or 0.
    Number,
    /// The old value.
    Old,
}

/// An expiry that a client asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expire<'a> {
    pub(super) text: &'a [u8],
    pub(super) is_ms: bool,
    /// True if it counts from now, and not from 1970.
    pub(super) is_relative: bool,
}

impl Expire<'_> {
    /// The time in milliseconds since 1970. `name` is that of the command, for the error.
    pub(super) fn unix_ms(&self, name: &str) -> Result<i64, Failure> {
        let number = integer(self.text).ok_or(NO_INTEGER)?;
        let base = if self.is_relative { now_ms() } else { 0 };
        let unit = if self.is_ms { 1 } else { 1000 };
        let time =
            if number > 0 { number.checked_mul(unit).and_then(|ms| ms.checked_add(base)) } else { None };
        time.ok_or_else(|| format!("ERR invalid expire time in '{name}' command").into())
    }
}

/// The options of SET and GETEX.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options<'a> {
    pub(super) is_new: bool,
    pub(super) is_old: bool,
    pub(super) takes_old: bool,
    pub(super) keeps: bool,
    pub(super) persists: bool,
    pub(super) expire: Option<Expire<'a>>,
}

impl<'a> Options<'a> {
    /// Reads the options of SET or, if `is_read`, of GETEX.
    pub(super) fn read(
        mut arguments: impl Iterator<Item = &'a [u8]>,
        is_read: bool,
    ) -> Result<Self, Failure> {
        let mut options = Self::default();
        // The unit and base of the expiry: the same may stand several times, and another may not.
        let mut asked = None;
        while let Some(argument) = arguments.next() {
            let word = argument.to_ascii_lowercase();
            let (is_free, is_set) = (asked.is_none(), !is_read);
            match word.as_slice() {
                b"nx" if is_set && !options.is_old => options.is_new = true,
                b"xx" if is_set && !options.is_new => options.is_old = true,
                b"get" if is_set => options.takes_old = true,
                b"keepttl" if is_set && is_free => options.keeps = true,
                b"persist" if is_read && is_free => options.persists = true,
                b"ex" | b"px" | b"exat" | b"pxat" if !options.keeps && !options.persists => {
                    let kind = (word.starts_with(b"p"), !word.ends_with(b"at"));
                    if asked.is_some_and(|other| other != kind) {
                        return Err(SYNTAX.into());
                    }
                    asked = Some(kind);
                    let text = arguments.next().ok_or(SYNTAX)?;
                    options.expire = Some(Expire { text, is_ms: kind.0, is_relative: kind.1 });
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(options)
    }

    /// Completes a store with these options.
    fn apply(&self, name: &str, clock: &Clock, operation: &mut StoreOperation) -> Result<(), Failure> {
        operation.kind = match (self.is_new, self.is_old) {
            (true, _) => StoreKind::Add,
            (_, true) => StoreKind::Replace,
            _ => StoreKind::Set,
        };
        operation.takes_old = self.takes_old;
        operation.life = match &self.expire {
            Some(expire) => Life::Until(Moment::at(clock, expire.unix_ms(name)?)),
            None if self.keeps => Life::Kept,
            None => FOREVER,
        };
        Ok(())
    }
}

const FOREVER: Life = Life::Until(Moment { expiry: 0, early_ms: 0 });

/// A plain SET.
const PLAIN: StoreOperation = StoreOperation {
    kind: StoreKind::Set,
    flags: 0,
    life: FOREVER,
    unique: 0,
    invalidate: false,
    key_is_base64: false,
    takes_old: false,
};

/// The position of the value in a command that may receive it into its place.
fn value_position(spec: &Spec) -> Option<usize> {
    match spec.id {
        Id::Set | Id::SetNx | Id::GetSet => Some(2),
        Id::SetEx | Id::PSetEx => Some(3),
        _ => None,
    }
}

/// What a command asks for before its value, and the form of the reply. `expire` is SETEX's.
fn asked(spec: &Spec, clock: &Clock, expire: &[u8]) -> Result<(StoreOperation, Answer), Failure> {
    let until = |is_ms| {
        let expire = Expire { text: expire, is_ms, is_relative: true };
        expire.unix_ms(spec.name).map(|unix_ms| Life::Until(Moment::at(clock, unix_ms)))
    };
    Ok(match spec.id {
        Id::SetNx => (StoreOperation { kind: StoreKind::Add, ..PLAIN }, Answer::Number),
        Id::GetSet => (StoreOperation { takes_old: true, ..PLAIN }, Answer::Old),
        Id::SetEx => (StoreOperation { life: until(false)?, ..PLAIN }, Answer::Ok),
        Id::PSetEx => (StoreOperation { life: until(true)?, ..PLAIN }, Answer::Ok),
        _ => (PLAIN, Answer::Ok),
    })
}

/// SET, SETNX, SETEX, PSETEX and GETSET.
#[inline]
pub(super) fn set<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    call: &Call<'_>,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let is_plain = call.spec.id == Id::Set && call.command.len() == 3;
    let (operation, answer) = if is_plain { (PLAIN, Answer::Ok) } else { with_options(cx, call)? };
    let (hash, key) = call.key();
    let value = call.argument(value_position(call.spec).unwrap_or(2));
    let class = SizeClass::of(value.len() as u64);
    if !cx.placement.is_here(class) {
        return finish_later(cx, session, (hash, key, value), operation, (call.spec.id, answer));
    }
    if operation.takes_old {
        return set_and_get(cx, session, (hash, key, value), &operation, tx);
    }
    match ops::store(cx, &operation, hash, key, value) {
        Stored::Done(_) if is_plain => tx.extend_from_slice(compose::OK),
        Stored::Cold(found) => return cold(cx, found, (hash, key)),
        Stored::NoMemory => return no_memory(cx),
        stored => compose_stored(answer, session.version, &stored, None, tx),
    }
    cx.counters.cmd_set.count();
    Ok(())
}

fn with_options<M: Mode, P>(
    cx: &Context<'_, M, P>,
    call: &Call<'_>,
) -> Result<(StoreOperation, Answer), Failure> {
    let (mut operation, mut answer) = asked(call.spec, cx.clock, call.argument(2))?;
    if call.spec.id == Id::Set {
        Options::read(call.command.arguments(3), false)?.apply(call.spec.name, cx.clock, &mut operation)?;
        answer = if operation.takes_old { Answer::Old } else { Answer::Ok };
    }
    Ok((operation, answer))
}

/// Stores a small value, and answers with the old one.
fn set_and_get<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &RespSession,
    (hash, key, value): (KeyHash, &[u8], &[u8]),
    operation: &StoreOperation,
    tx: &mut Vec<u8>,
) -> Done<M> {
    let start = tx.len();
    if ops::awaits_room(cx, value.len() as u64) {
        return no_memory(cx);
    }
    let mut entry = entry(cx, hash, key)?;
    let old_bytes = entry.item().map(|item| item.value_bytes() as u64);
    let mut pinned = None;
    match old_bytes {
        None => compose::null(tx, session.version),
        Some(bytes) if cx.placement.serves(SizeClass::of(bytes)) => {
            if let Some(item) = entry.item() {
                compose::bulk(tx, item.value());
            }
        }
        Some(bytes) => {
            pinned = entry.pin(cx.store);
            compose::bulk_head(tx, bytes);
        }
    }
    if let Stored::NoMemory = ops::put(cx, operation, &mut entry, value) {
        drop(entry);
        tx.truncate(start);
        return no_memory(cx);
    }
    drop(entry);
    cx.counters.cmd_set.count();
    ops::count_get(cx, old_bytes.is_some());
    match pinned {
        Some(item) => end(Next::Away(Work::send(item, LINE_END))),
        None => Ok(()),
    }
}

/// Appends the reply to a store. For the old value, only the head: the value is sent from its item.
fn compose_stored(answer: Answer, version: Version, stored: &Stored, old: Option<u64>, tx: &mut Vec<u8>) {
    let is_done = match stored {
        Stored::Done(_) => true,
        Stored::Unmet | Stored::OtherCas | Stored::Missing => false,
        Stored::NoMemory => return compose::error(tx, NO_MEMORY.as_bytes()),
        Stored::NotHere => return compose::error(tx, elsewhere::ON_THE_MOVE.as_bytes()),
        Stored::Cold(Cold::Failed(failed)) => return compose::error(tx, failed_text(*failed).as_bytes()),
        Stored::Cold(Cold::Unknown(..)) => return compose::error(tx, NO_MEMORY.as_bytes()),
    };
    match (answer, old) {
        (Answer::Number, _) => compose::integer(tx, i64::from(is_done)),
        (Answer::Ok, _) if is_done => tx.extend_from_slice(compose::OK),
        (Answer::Old, Some(bytes)) => compose::bulk_head(tx, bytes),
        (Answer::Ok | Answer::Old, _) => compose::null(tx, version),
    }
}

/// The reply to a large store, as a function of its result.
fn answer_later(answer: Answer, session: &RespSession) -> AnswerStore {
    let (version, is_muted) = (session.version, session.mutes());
    Box::new(move |stored, operation, _key, tx| {
        let answer = if operation.takes_old { Answer::Old } else { answer };
        match stored {
            _ if is_muted => {}
            LargeStored::Ended(stored, old) => compose_stored(answer, version, &stored, old, tx),
            LargeStored::NoLineEnd => compose::error(tx, b"ERR Protocol error: no line end behind a value"),
        }
    })
}

/// Stores a value that has arrived and is too large to be stored here.
#[cold]
fn finish_later<M: Mode, P: Placement>(
    cx: &Context<'_, M, P>,
    session: &RespSession,
    (hash, key, value): (KeyHash, &[u8], &[u8]),
    operation: StoreOperation,
    (id, answer): (Id, Answer),
) -> Done<M> {
    let bytes = value.len() as u64;
    if ops::awaits_room(cx, bytes) {
        return no_memory(cx);
    }
    let Ok(reservation) = cx.store.reserve(hash, key, bytes) else { return no_memory(cx) };
    let pending = PendingStore::new(reservation, hash, key, operation);
    let answer = answer_later(answer, session);
    let store = LargeStore::new(pending, SizeClass::of(bytes), None, true, answer);
    let mut store = Box::new(store.of_command(id));
    store.fill(value);
    end(Next::Away(Work::Finish { store }))
}

/// What becomes of a command whose bulk string is arriving.
pub(super) enum Receive<M: Mode> {
    /// The value is received into its place.
    Away(Work<M>),
    /// The command waits for this, and is looked at again.
    Wait(Next<M>),
    /// It is refused, and the rest of it is to be discarded.
    Refused(Failure),
    /// The same, but it counts as executed.
    Failed(Failure),
    /// It is no large value, or belongs to another command.
    NotMeant,
}

/// Begins to receive a large value into its place.
pub(super) fn receive<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    begun: &Begun<'_>,
) -> Receive<M> {
    let class = SizeClass::of(begun.bulk_bytes);
    let spec = find(begun.command.name());
    let spec = spec.filter(|spec| value_position(spec) == Some(begun.command.len()));
    let is_queued = session.transaction.is_open;
    let Some(spec) = spec.filter(|_| !is_queued && !cx.placement.serves(class)) else {
        return Receive::NotMeant;
    };
    match admit(cx, session, &Call { command: begun.command, spec, lookup: None }) {
        Ok(true) => {}
        Ok(false) => return Receive::Wait(Next::Unpaused),
        Err(failure) => return Receive::Refused(failure),
    }
    let options = begun.arguments - begun.command.len() - 1;
    if !spec.takes(begun.arguments) {
        let text = format!("ERR wrong number of arguments for '{}' command", spec.name);
        return Receive::Refused(text.into());
    }
    if options > OPTIONS_MAX {
        return Receive::Failed(SYNTAX.into());
    }
    let key = begun.command.argument(1).unwrap_or_default();
    if let Some(text) = bad_key(cx, key) {
        cx.counters.resp_bad_keys.count();
        return Receive::Refused(text.into());
    }
    if let Some(owner) = cx.rack.and_then(|rack| rack.elsewhere(key, || Intent::Change)) {
        let is_plain = spec.id == Id::Set && options == 0 && key.iter().all(|&byte| byte > b' ');
        return if is_plain {
            collect(cx, session, (owner, key), begun.bulk_bytes)
        } else {
            Receive::NotMeant
        };
    }
    match asked(spec, cx.clock, begun.command.argument(2).unwrap_or_default()) {
        Ok((operation, answer)) => {
            let received = reserve(cx, session, (spec, key, begun.bulk_bytes), operation, (answer, options));
            if matches!(received, Receive::Away(_)) {
                cx.counters.resp_calls.count(spec.id);
            }
            received
        }
        Err(failure) => Receive::Failed(failure),
    }
}

/// Begins to receive a value of `bytes` for another node, which stores it as memcached's.
fn collect<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    (owner, key): (Owner, &[u8]),
    bytes: u64,
) -> Receive<M> {
    if !cx.holes.is_empty() {
        return Receive::Wait(Next::Yield);
    }
    let Some(permit) = cx.admin.admit(bytes) else { return Receive::Refused(NO_MEMORY.into()) };
    cx.counters.resp_calls.count(Id::Set);
    let head = [b"ms ", key, format!(" {bytes} F0 T0\r\n").as_bytes()].concat();
    let at = head.len();
    let command = Some(Id::Set);
    let mut forward = Forward { bytes: head, is_large: true, tail: LINE_END, command, ..Forward::to(owner) };
    forward.bytes.resize(at + bytes as usize, 0);
    let translate = tracking::told_at_once(cx, session, std::iter::once(key), elsewhere::stored(session));
    (forward.permit, forward.translate) = (Some(permit), Some(translate));
    forward.origin = session.origin(cx);
    // Its line end follows the value.
    session.discard = Discard { bytes: LINE_END.len() as u64, bulks: 0 };
    Receive::Away(Work::Collect { forward: Box::new(forward), at })
}

/// Takes memory for a value of `bytes` with `options` arguments behind it.
fn reserve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    (spec, key, bytes): (&Spec, &[u8], u64),
    operation: StoreOperation,
    (answer, options): (Answer, usize),
) -> Receive<M> {
    let class = SizeClass::of(bytes);
    let hash = cx.store.hash(key);
    cx.placement.is_here(class);
    // The client decides how long the value takes to arrive; the bound limits the memory that it holds meanwhile.
    let Some(permit) = cx.admin.admit(bytes) else {
        cx.counters.store_no_memory.count();
        return Receive::Refused(NO_MEMORY.into());
    };
    let wait = |cx: &Context<'_, M, P>| Receive::Wait(Next::Fetch(Box::new(Fetch::of_room(cx))));
    if ops::awaits_room(cx, bytes) {
        return wait(cx);
    }
    let Ok(reservation) = cx.store.reserve(hash, key, bytes) else {
        if ops::may_wait(cx) {
            return wait(cx);
        }
        cx.counters.store_no_memory.count();
        return Receive::Refused(NO_MEMORY.into());
    };
    let pending = PendingStore::new(reservation, hash, key, operation);
    let store = LargeStore::new(pending, class, Some(permit), true, answer_later(answer, session));
    let store = store.of_command(spec.id);
    let store = match options {
        0 => store,
        _ => {
            let (is_muted, may_read) = (session.mutes(), may_read(session, key));
            store.with_trailer(Box::new(SetTrailer { options, is_muted, may_read, clock: *cx.clock }))
        }
    };
    Receive::Away(Work::Receive { store: Box::new(store), received_bytes: 0 })
}

/// Whether a client that may write a key may read its value, too.
fn may_read(session: &mut RespSession, key: &[u8]) -> bool {
    let Some(guard) = &mut session.guard else { return true };
    guard.user().is_some_and(|user| user.may_access(key, Access::Both))
}

/// The options behind a large value.
struct SetTrailer {
    options: usize,
    is_muted: bool,
    /// Whether the client may read the key's value.
    may_read: bool,
    clock: Clock,
}

impl SetTrailer {
    /// The options in `bytes`, as far as they are whole, and the bytes of all of them, at least. An error if the length
    /// of one is none, or too long.
    fn options<'a>(&self, bytes: &'a [u8]) -> Result<(Vec<&'a [u8]>, usize), ()> {
        const BULK_BYTES_MIN: usize = 6;
        let (mut options, mut at) = (Vec::new(), 0);
        while options.len() < self.options {
            let left = self.options - options.len();
            match bulk_head(bytes, at, &OPTION_LIMITS) {
                Head::Bulk(bulk_bytes, body) => {
                    let end = body + bulk_bytes as usize;
                    let Some(option) = bytes.get(body..end).filter(|_| end + 2 <= bytes.len()) else {
                        return Ok((options, end + 2 + (left - 1) * BULK_BYTES_MIN));
                    };
                    options.push(option);
                    at = end + 2;
                }
                Head::Missing => return Ok((options, (at + left * BULK_BYTES_MIN).max(bytes.len() + 1))),
                Head::Malformed(_) | Head::NoBulk(_) => return Err(()),
            }
        }
        Ok((options, at))
    }
}

impl ReadTrailer for SetTrailer {
    fn wanted_bytes(&self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return self.options * 6;
        }
        self.options(bytes).map_or(bytes.len(), |(_, wanted)| wanted)
    }

    fn read(&self, bytes: &[u8], operation: &mut StoreOperation, tx: &mut Vec<u8>) -> TrailerEnd {
        let Ok((options, _)) = self.options(bytes) else {
            compose::error(tx, b"ERR Protocol error: invalid bulk length");
            return TrailerEnd::Broken;
        };
        let read = Options::read(options.into_iter(), false);
        let applied = read.and_then(|options| options.apply("set", &self.clock, operation));
        let is_forbidden = operation.takes_old && !self.may_read;
        match applied.and_then(|()| if is_forbidden { Err(NO_KEY.into()) } else { Ok(()) }) {
            Ok(()) => TrailerEnd::Store,
            Err(_) if self.is_muted => TrailerEnd::Answered,
            Err(failure) => {
                compose::error(tx, &failure.0);
                TrailerEnd::Answered
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_as_long_as_its_options_say() {
        let trailer = SetTrailer { options: 3, is_muted: false, may_read: true, clock: Clock::new() };
        let whole = b"$2\r\nPX\r\n$5\r\n10000\r\n$3\r\nGET\r\n";
        let mut had = trailer.wanted_bytes(b"");
        while had < whole.len() {
            let wanted = trailer.wanted_bytes(&whole[..had]);
            assert!(had < wanted && wanted <= whole.len(), "{had} {wanted}");
            had = wanted;
        }
        assert_eq!(trailer.wanted_bytes(whole), whole.len());
        let (mut operation, mut tx) = (PLAIN, Vec::new());
        assert!(matches!(trailer.read(whole, &mut operation, &mut tx), TrailerEnd::Store));
        assert!(operation.takes_old && operation.life != FOREVER && tx.is_empty());
        let broken = b"$999\r\n$5\r\n10000\r\n$3\r\n";
        assert_eq!(trailer.wanted_bytes(broken), broken.len());
        assert!(matches!(trailer.read(broken, &mut operation, &mut tx), TrailerEnd::Broken));
    }

    #[test]
    fn options_exclude_each_other_as_in_redis() {
        let read = |words: &str| Options::read(words.split_whitespace().map(str::as_bytes), false).is_ok();
        for words in ["", "nx", "XX get", "ex 1", "ex 1 EX 2", "keepttl", "NX GET", "px 1 xx"] {
            assert!(read(words), "{words}");
        }
        for words in ["nx xx", "ex", "ex 1 px 1", "keepttl ex 1", "ex 1 keepttl", "persist", "bad", "nx bad"]
        {
            assert!(!read(words), "{words}");
        }
    }
}
