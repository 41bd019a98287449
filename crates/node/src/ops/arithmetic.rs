//! Counting up and down.

use minos_base::number;
use minos_engine::{Entry, ItemMeta, Mode};

use super::{cold::may_wait, context::Context, read::Facts};

/// Longest value, in bytes, that is read as a number: 20 digits, and blanks that a client may put around
/// them.
///
/// Each change writes the whole value, so this bounds its work.
const NUMBER_BYTES_MAX: usize = 512;

/// A count up or down, without its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountOperation {
    /// True to count down, which stops at zero; counting up wraps.
    pub(crate) decrement: bool,
    /// The amount to add or subtract.
    pub(crate) delta: u64,
    /// Required CAS unique of the item; 0 accepts any.
    pub(crate) unique: u64,
    /// The value of the item to make on a miss.
    pub(crate) initial: Option<u64>,
    /// Its client flags.
    pub(crate) flags: u32,
}

pub(crate) enum Counted {
    /// The new number, and the item that holds it.
    Value(u64, Facts),
    /// The first number of an item created for it.
    Vivified(u64, Facts),
    /// There is no such item.
    NotFound,
    /// The item's CAS unique differs.
    OtherCas,
    /// The count failed.
    Failed(Failure),
    /// There is no room until flash has taken items: count again then. Nothing was counted.
    NoRoomYet,
}

/// Why counting failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    NotANumber,
    /// There is no room for a longer number.
    NoMemory,
    /// There is no room for the item to create.
    NoMemoryVivifying,
}

/// Counts up or down in the item of `entry`, or creates the item if the operation wants that. The caller sets
/// its expiry.
pub(crate) fn count<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &CountOperation,
    entry: &mut Entry<'_, M>,
) -> Counted {
    let counters = cx.counters;
    let old = match current(operation, entry) {
        Ok(Some(old)) => old,
        Ok(None) => return vivify(cx, operation, entry),
        Err(counted) => return counted,
    };
    let (value, hits) = if operation.decrement {
        (old.value.saturating_sub(operation.delta), &counters.decr_hits)
    } else {
        (old.value.wrapping_add(operation.delta), &counters.incr_hits)
    };
    let written = write(cx, value, &old.facts, entry);
    if written.is_none() && may_wait(cx) {
        return Counted::NoRoomYet;
    }
    hits.count();
    written.map_or(Counted::Failed(Failure::NoMemory), |facts| Counted::Value(value, facts))
}

/// A stored number.
struct Current {
    value: u64,
    facts: Facts,
}

/// The stored number; `None` without an item; an error if the value is no number or the CAS unique differs.
/// As in memcached, an empty value is reported before a different CAS unique.
fn current<M: Mode>(operation: &CountOperation, entry: &Entry<'_, M>) -> Result<Option<Current>, Counted> {
    let Some(item) = entry.item() else { return Ok(None) };
    let facts = Facts::from(&*item);
    if facts.value_bytes == 0 {
        return Err(Counted::Failed(Failure::NotANumber));
    }
    if operation.unique != 0 && operation.unique != facts.cas {
        return Err(Counted::OtherCas);
    }
    if facts.value_bytes > NUMBER_BYTES_MAX as u64 {
        return Err(Counted::Failed(Failure::NotANumber));
    }
    match number::unsigned(item.value()) {
        Some(value) => Ok(Some(Current { value, facts })),
        None => Err(Counted::Failed(Failure::NotANumber)),
    }
}

/// Writes a number over the old one, padded with spaces to its length, or into a new item if it is longer.
/// Returns `None` if there is no room.
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
    let Facts { flags, expiry, early_ms, .. } = *old;
    let cas = entry.insert(&[digits], ItemMeta { flags, expiry, early_ms, ..ItemMeta::default() }).ok()?;
    let (value_bytes, last_access) = (digits.len() as u64, cx.now);
    Some(Facts { value_bytes, flags, cas, expiry, early_ms, last_access, ..Facts::default() })
}

/// Creates the item on a miss, if the operation wants that.
fn vivify<M: Mode, P>(
    cx: &Context<'_, M, P>,
    operation: &CountOperation,
    entry: &mut Entry<'_, M>,
) -> Counted {
    let Some(initial) = operation.initial else {
        let misses = if operation.decrement { &cx.counters.decr_misses } else { &cx.counters.incr_misses };
        misses.count();
        return Counted::NotFound;
    };
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(initial).as_bytes();
    let flags = operation.flags;
    let Ok(cas) = entry.insert(&[digits], ItemMeta { flags, ..ItemMeta::default() }) else {
        let failed = Counted::Failed(Failure::NoMemoryVivifying);
        return if may_wait(cx) { Counted::NoRoomYet } else { failed };
    };
    cx.counters.total_items.count();
    let value_bytes = digits.len() as u64;
    let facts = Facts { flags, value_bytes, cas, last_access: cx.now, ..Facts::default() };
    Counted::Vivified(initial, facts)
}
