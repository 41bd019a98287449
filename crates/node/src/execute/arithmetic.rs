//! `incr`, `decr` and `ma`.

use minos_base::{KeyHash, Seconds};
use minos_command::{Arithmetic, number};
use minos_engine::{Entry, ItemMeta, Mode};
use minos_proto::memcache::{MetaFlags, OPAQUE_BYTES_MAX, Reply, compose, text};

use super::{Context, Executed, Outcome, item::Facts};

/// Longest value, in bytes, that is read as a number: 20 digits, and any blanks that a client put around them.
///
/// Each change writes the whole value, so that this bounds its work.
const NUMBER_BYTES_MAX: usize = 512;

/// How counting ended.
pub(crate) enum Counted {
    /// The new number, and the item that holds it.
    Value(u64, Facts),
    /// The first number of an item that was made for it.
    Vivified(u64, Facts),
    /// There is no such item.
    NotFound,
    /// The item is another one than the client has seen.
    OtherCas,
    /// It was not done.
    Failed(Failure),
}

/// Why counting failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The value is no number.
    NotANumber,
    /// There is no room for a longer number.
    NoMemory,
    /// There is no room for the item that was to be made.
    NoMemoryVivifying,
}

impl Failure {
    fn text(self) -> &'static [u8] {
        match self {
            Self::NotANumber => text::NON_NUMERIC,
            Self::NoMemory => text::NO_MEMORY,
            Self::NoMemoryVivifying => text::NO_MEMORY_VIVIFYING,
        }
    }
}

/// Counts up or down.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Arithmetic<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let mut entry = cx.store.entry(hash, key, cx.now);
    let counted = count(cx, request, &mut entry);
    match reply {
        Reply::Meta { flags, quiet } => {
            let response = Response { cx, request, key, flags, quiet };
            response.compose(counted, &mut entry, tx);
        }
        Reply::Classic { quiet, .. } => {
            drop(entry);
            if !quiet {
                respond_classic(&counted, tx);
            }
        }
    }
    Outcome::Done.into()
}

fn respond_classic(counted: &Counted, tx: &mut Vec<u8>) {
    match counted {
        Counted::Value(value, _) | Counted::Vivified(value, _) => compose::number_line(tx, *value),
        Counted::NotFound | Counted::OtherCas => tx.extend_from_slice(text::NOT_FOUND),
        Counted::Failed(failure) => tx.extend_from_slice(failure.text()),
    }
}

/// Counts up or down in the item of `entry`, which is made if that is wanted and it is not there. The expiries
/// that the request names are not given to it.
pub(crate) fn count<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Arithmetic<'_>,
    entry: &mut Entry<'_, M>,
) -> Counted {
    let counters = cx.counters;
    let old = match current(request, entry) {
        Ok(Some(old)) => old,
        Ok(None) => return vivify(cx, request, entry),
        Err(counted) => return counted,
    };
    let (value, hits) = if request.decrement {
        (old.value.saturating_sub(request.delta), &counters.decr_hits)
    } else {
        (old.value.wrapping_add(request.delta), &counters.incr_hits)
    };
    hits.count();
    match write(cx, value, &old.facts, entry) {
        Some(facts) => Counted::Value(value, facts),
        None => Counted::Failed(Failure::NoMemory),
    }
}

/// A number that is stored.
struct Current {
    value: u64,
    facts: Facts,
}

/// The number that is stored; none without an item; an error if it is no number or another item is
/// wanted. In memcached's order: an empty value is found before another CAS unique is.
fn current<M: Mode>(request: &Arithmetic<'_>, entry: &Entry<'_, M>) -> Result<Option<Current>, Counted> {
    let Some(item) = entry.item() else { return Ok(None) };
    let facts = Facts::from(&*item);
    if facts.value_bytes == 0 || facts.value_bytes > NUMBER_BYTES_MAX as u64 {
        return Err(Counted::Failed(Failure::NotANumber));
    }
    if request.unique != 0 && request.unique != facts.cas {
        return Err(Counted::OtherCas);
    }
    match number::unsigned(item.value()) {
        Some(value) => Ok(Some(Current { value, facts })),
        None => Err(Counted::Failed(Failure::NotANumber)),
    }
}

/// Writes a number over the old one, padded with spaces to its length, or into a new item if it is
/// longer. `None` if there is no room.
fn write<M: Mode, P>(
    cx: &Context<'_, M, P>,
    value: u64,
    old: &Facts,
    entry: &mut Entry<'_, M>,
) -> Option<Facts> {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    let room = usize::try_from(old.value_bytes).unwrap_or(0);
    if digits.len() <= room {
        let mut padded = [b' '; NUMBER_BYTES_MAX];
        padded[..digits.len()].copy_from_slice(digits);
        let cas = entry.overwrite_value(0, &padded[..room]).ok()?;
        return Some(Facts { cas, last_access: cx.now, ..*old });
    }
    let meta = ItemMeta { flags: old.flags, expiry: old.expiry, ..ItemMeta::default() };
    let cas = entry.insert(&[digits], meta).ok()?;
    let (value_bytes, last_access) = (digits.len() as u64, cx.now);
    let (flags, expiry) = (old.flags, old.expiry);
    Some(Facts { value_bytes, flags, cas, expiry, last_access, ..Facts::default() })
}

/// Makes the item that the request wants on a miss, if it wants one.
fn vivify<M: Mode, P>(cx: &Context<'_, M, P>, request: &Arithmetic<'_>, entry: &mut Entry<'_, M>) -> Counted {
    let Some(wanted) = request.vivify else {
        let misses = if request.decrement { &cx.counters.decr_misses } else { &cx.counters.incr_misses };
        misses.count();
        return Counted::NotFound;
    };
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(wanted.initial).as_bytes();
    let Ok(cas) = entry.insert(&[digits], ItemMeta::default()) else {
        return Counted::Failed(Failure::NoMemoryVivifying);
    };
    cx.counters.total_items.count();
    let facts = Facts { value_bytes: digits.len() as u64, cas, last_access: cx.now, ..Facts::default() };
    Counted::Vivified(wanted.initial, facts)
}

/// The reply to an `ma`.
struct Response<'a, 'c, M: Mode, P> {
    cx: &'a Context<'c, M, P>,
    request: &'a Arithmetic<'a>,
    key: &'a [u8],
    flags: MetaFlags<'a>,
    quiet: bool,
}

impl<M: Mode, P> Response<'_, '_, M, P> {
    /// Appends the reply; `entry` is the item's, because the flags change it in the order in which they
    /// stand: what is returned before a change shows the old state.
    fn compose(&self, counted: Counted, entry: &mut Entry<'_, M>, tx: &mut Vec<u8>) {
        let start = tx.len();
        let complete = match counted {
            Counted::Value(value, facts) => self.compose_item(value, facts, false, entry, tx),
            Counted::Vivified(value, facts) => self.compose_item(value, facts, true, entry, tx),
            Counted::NotFound => self.compose_missing(b"NF", tx),
            Counted::OtherCas => self.compose_missing(b"EX", tx),
            Counted::Failed(failure) => return tx.extend_from_slice(failure.text()),
        };
        if !complete {
            tx.truncate(start);
            tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
        } else if self.quiet && matches!(counted, Counted::Value(..)) {
            tx.truncate(start);
        } else {
            tx.extend_from_slice(text::LINE_END);
        }
    }

    fn compose_item(
        &self,
        value: u64,
        mut facts: Facts,
        vivified: bool,
        entry: &mut Entry<'_, M>,
        tx: &mut Vec<u8>,
    ) -> bool {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        // Here memcached answers in the spelling of the request, in a read in that of the item.
        facts.key_is_base64 = self.request.key.is_base64();
        let wants_value = self.flags.iter().any(|flag| flag[0] == b'v');
        if wants_value {
            compose::meta_value_head(tx, digits.len() as u64);
        } else {
            tx.extend_from_slice(b"HD");
        }
        for flag in self.flags.iter() {
            if is_opaque_too_long(flag) {
                return false;
            }
            match self.expiry_of(flag, vivified) {
                Some(expiry) => {
                    facts.expiry = expiry;
                    entry.set_expiry(expiry);
                }
                None => {
                    let meta = facts.meta(self.key, self.cx.now);
                    compose::meta_change_flag(tx, flag, &meta);
                }
            }
        }
        if wants_value {
            tx.extend_from_slice(text::LINE_END);
            tx.extend_from_slice(digits);
        }
        true
    }

    /// The expiry that `flag` gives to the item.
    fn expiry_of(&self, flag: &[u8], vivified: bool) -> Option<Seconds> {
        let exptime = match flag[0] {
            b'T' => self.request.touch,
            b'N' if vivified => self.request.vivify.map(|wanted| wanted.exptime),
            _ => None,
        };
        exptime.map(|exptime| exptime.on(self.cx.clock, self.cx.now))
    }

    fn compose_missing(&self, code: &[u8], tx: &mut Vec<u8>) -> bool {
        tx.extend_from_slice(code);
        for flag in self.flags.iter() {
            if is_opaque_too_long(flag) {
                return false;
            }
            compose::meta_echo_flag(tx, flag, self.key, self.request.key.is_base64());
        }
        true
    }
}

/// Whether `flag` is an opaque token that is too long, which ends a reply with an error, late as that is.
fn is_opaque_too_long(flag: &[u8]) -> bool {
    flag[0] == b'O' && flag.len() > OPAQUE_BYTES_MAX
}
