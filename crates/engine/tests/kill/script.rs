//! The child's steps: a pure function of the round, the thread and the step's number, so that the parent
//! can compute them.

/// Threads of the child. Each has keys of its own, so that the order of the writes to a key is known.
pub(crate) const THREADS: u64 = 2;
/// Keys of each thread.
pub(crate) const KEYS_PER_THREAD: u64 = 250;
/// Bytes of a record's head.
const HEAD_BYTES: usize = 32;
/// Appends that would make a longer value are skipped.
const VALUE_BYTES_MAX: usize = 150_000;

/// The steps of one thread in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) round: u64,
    pub(crate) thread: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: u64,
    pub(crate) number: u64,
    pub(crate) action: Action,
}

/// What a step writes: a record of `len` bytes, the same into reserved memory, one over the whole value in its place,
/// or one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Set { len: usize },
    SetReserved { len: usize },
    Overwrite,
    Append { len: usize },
    Delete,
}

impl Script {
    pub(crate) fn step(self, number: u64) -> Step {
        let random = mix(mix(self.round << 8 | self.thread) ^ number);
        let key = random % KEYS_PER_THREAD * THREADS + self.thread;
        let len = value_bytes(mix(random));
        let action = match random >> 32 & 15 {
            0..6 => Action::Set { len },
            6..8 => Action::SetReserved { len },
            8..11 => Action::Overwrite,
            11..14 => Action::Append { len: len.min(3000) },
            _ => Action::Delete,
        };
        Step { key, number, action }
    }
}

pub(crate) fn keys() -> impl Iterator<Item = u64> {
    0..KEYS_PER_THREAD * THREADS
}

/// Keys of different lengths.
pub(crate) fn key_bytes(key: u64) -> Vec<u8> {
    format!("{key:0width$}", width = 4 + (key % 40) as usize).into_bytes()
}

/// Mostly small, up to 100 KB.
fn value_bytes(random: u64) -> usize {
    let below = |bytes: u64| (mix(random) % bytes) as usize;
    HEAD_BYTES
        + match random % 16 {
            0..10 => below(200),
            10..13 => below(4500),
            13..15 => below(20_000),
            _ => below(100_000),
        }
}

/// Mixes a 64-bit number into a pseudorandom one (SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The bytes of a record: its key, round, step and length, and a pattern that only this record has.
pub(crate) fn record(round: u64, step: &Step, len: usize) -> Vec<u8> {
    let head = [step.key, round, step.number, len as u64].map(u64::to_le_bytes).concat();
    let mut state = mix(mix(round) ^ mix(step.number) ^ step.key);
    let pattern = (HEAD_BYTES..len).step_by(8).flat_map(|_| {
        state = mix(state);
        state.to_le_bytes()
    });
    let mut record: Vec<u8> = head.into_iter().chain(pattern).collect();
    record.truncate(len);
    record
}

/// The round, the step's number and the length that the first record of `value` claims.
pub(crate) fn first_record(value: &[u8]) -> Option<(u64, u64, usize)> {
    let word = |at: usize| value.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
    Some((word(1)?, word(2)?, usize::try_from(word(3)?).ok()?))
}

/// The value that results from `step`. The child writes it, and the parent expects it.
pub(crate) fn apply(round: u64, step: &Step, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (step.action, value) {
        (Action::Set { len } | Action::SetReserved { len }, _) => Some(record(round, step, len)),
        (Action::Delete, _) | (_, None) => None,
        (Action::Overwrite, Some(value)) => Some(record(round, step, value.len())),
        (Action::Append { len }, Some(value)) if is_appended(value.len(), len) => {
            Some([value, record(round, step, len)].concat())
        }
        (Action::Append { .. }, value) => value,
    }
}

/// True if a record of `len` bytes is appended to a value of `value_bytes`.
pub(crate) fn is_appended(value_bytes: usize, len: usize) -> bool {
    value_bytes + len <= VALUE_BYTES_MAX
}
