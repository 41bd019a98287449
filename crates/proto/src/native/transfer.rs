//! Values that are too large for a datagram: the grants, bodies and acknowledgements of their fragments.

use std::{iter::FusedIterator, ops::Range};

use minos_base::VALUE_BYTES_MAX;

use super::{
    DATAGRAM_BYTES_MAX, Malformed,
    bytes::{head, put, u16_at, u32_at, u64_at},
};

/// Bytes of a [`Grant`].
pub const GRANT_BYTES: usize = 32;

/// Bytes of a [`DataHead`].
pub const DATA_HEAD_BYTES: usize = 32;

/// Bytes of a [`FragmentHead`].
pub const FRAGMENT_HEAD_BYTES: usize = 16;

/// Bytes of an [`AckHead`].
pub const ACK_HEAD_BYTES: usize = 24;

/// Bytes of a [`FragmentRange`].
pub const RANGE_BYTES: usize = 8;

/// Most ranges in a FETCH or an Ack.
pub const RANGES_MAX: usize = 32;

/// How a value is cut into fragments: all of the same size, but for the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragments {
    value_bytes: u64,
    fragment_bytes: u32,
}

impl Fragments {
    /// The fragments of a value of `value_bytes`, of `fragment_bytes` each.
    ///
    /// # Errors
    /// The value is larger than any store takes, or the fragments are empty or fit no datagram.
    pub fn of(value_bytes: u64, fragment_bytes: u32) -> Result<Self, Malformed> {
        let fits = fragment_bytes > 0 && fragment_bytes as usize <= DATAGRAM_BYTES_MAX;
        if !fits || value_bytes > VALUE_BYTES_MAX {
            return Err(Malformed::Body);
        }
        Ok(Self { value_bytes, fragment_bytes })
    }

    /// How many there are; none of an empty value.
    #[inline]
    pub fn count(&self) -> u32 {
        // At most VALUE_BYTES_MAX, 2^30.
        self.value_bytes.div_ceil(u64::from(self.fragment_bytes)) as u32
    }

    /// The range of the value's bytes in the fragment at `index`; `None` if there is no such fragment.
    #[inline]
    pub fn range(&self, index: u32) -> Option<Range<usize>> {
        let begin = u64::from(index) * u64::from(self.fragment_bytes);
        let end = (begin + u64::from(self.fragment_bytes)).min(self.value_bytes);
        (begin < end).then_some(begin as usize..end as usize)
    }
}

/// How a large value is to be fetched or sent: the value of a reply record.
///
/// ```text
/// 0 8 transfer   8 8 value_bytes   16 4 fragment_bytes   20 2 queue   22 2 window   24 1 first_follows   25 7 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Names the transfer in Fragments; 0 for a value that is fetched.
    pub transfer: u64,
    /// Bytes of the whole value.
    pub value_bytes: u64,
    /// Bytes of each fragment but the last.
    pub fragment_bytes: u32,
    /// The queue to which FETCH or Fragments go.
    pub queue: u16,
    /// Fragments that may be on their way at once.
    pub window: u16,
    /// True if the first window follows at once; otherwise the client must request it.
    pub first_follows: bool,
}

impl Grant {
    /// Reads the value of a reply record.
    ///
    /// # Errors
    /// It is too short, or its sizes or its window cannot be.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        let (bytes, _) = head::<GRANT_BYTES>(value, Malformed::Body)?;
        let grant = Self {
            transfer: u64_at(bytes, 0),
            value_bytes: u64_at(bytes, 8),
            fragment_bytes: u32_at(bytes, 16),
            queue: u16_at(bytes, 20),
            window: u16_at(bytes, 22),
            first_follows: bytes[24] != 0,
        };
        grant.fragments()?;
        (grant.window > 0).then_some(grant).ok_or(Malformed::Body)
    }

    /// Writes the value of a reply record.
    pub fn write(&self, out: &mut [u8; GRANT_BYTES]) {
        out.fill(0);
        put(out, 0, self.transfer.to_le_bytes());
        put(out, 8, self.value_bytes.to_le_bytes());
        put(out, 16, self.fragment_bytes.to_le_bytes());
        put(out, 20, self.queue.to_le_bytes());
        put(out, 22, self.window.to_le_bytes());
        put(out, 24, [u8::from(self.first_follows)]);
    }

    /// How the value is cut.
    ///
    /// # Errors
    /// Its sizes cannot be; those of a grant that was read can.
    pub fn fragments(&self) -> Result<Fragments, Malformed> {
        Fragments::of(self.value_bytes, self.fragment_bytes)
    }
}

/// The head of a fragment that a server sends.
///
/// ```text
/// 0 4 request   4 4 index   8 8 value_bytes   16 8 cas   24 4 item_flags   28 4 fragment_bytes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The client's number of the operation that asked for it.
    pub request: u32,
    /// Which fragment.
    pub index: u32,
    /// Bytes of the whole value.
    pub value_bytes: u64,
    /// The item's CAS unique: fragments with another one are of another value.
    pub cas: u64,
    /// The flags that the client stores with the item.
    pub item_flags: u32,
    /// Bytes of each fragment but the last.
    pub fragment_bytes: u32,
}

impl DataHead {
    /// Reads a body: the head, and the bytes of the fragment, whose number must be exact.
    ///
    /// # Errors
    /// There is no such fragment, or it has more or fewer bytes.
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bytes, data) = head::<DATA_HEAD_BYTES>(body, Malformed::Body)?;
        let data_head = Self {
            request: u32_at(bytes, 0),
            index: u32_at(bytes, 4),
            value_bytes: u64_at(bytes, 8),
            cas: u64_at(bytes, 16),
            item_flags: u32_at(bytes, 24),
            fragment_bytes: u32_at(bytes, 28),
        };
        let range = data_head.fragments()?.range(data_head.index).ok_or(Malformed::Body)?;
        if range.len() == data.len() { Ok((data_head, data)) } else { Err(Malformed::Body) }
    }

    /// Writes the head.
    #[inline]
    pub fn write(&self, out: &mut [u8; DATA_HEAD_BYTES]) {
        put(out, 0, self.request.to_le_bytes());
        put(out, 4, self.index.to_le_bytes());
        put(out, 8, self.value_bytes.to_le_bytes());
        put(out, 16, self.cas.to_le_bytes());
        put(out, 24, self.item_flags.to_le_bytes());
        put(out, 28, self.fragment_bytes.to_le_bytes());
    }

    /// How the value is cut.
    ///
    /// # Errors
    /// Its sizes cannot be; those of a head that was read can.
    pub fn fragments(&self) -> Result<Fragments, Malformed> {
        Fragments::of(self.value_bytes, self.fragment_bytes)
    }
}

/// The head of a fragment that a client sends.
///
/// ```text
/// 0 8 transfer   8 4 index   12 4 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHead {
    /// The grant's.
    pub transfer: u64,
    /// Which fragment.
    pub index: u32,
}

impl FragmentHead {
    /// Reads a body: the head, and the bytes of the fragment. An empty one asks which fragments have arrived.
    ///
    /// # Errors
    /// It is too short.
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (bytes, data) = head::<FRAGMENT_HEAD_BYTES>(body, Malformed::Body)?;
        Ok((Self { transfer: u64_at(bytes, 0), index: u32_at(bytes, 8) }, data))
    }

    /// Writes the head.
    #[inline]
    pub fn write(&self, out: &mut [u8; FRAGMENT_HEAD_BYTES]) {
        out.fill(0);
        put(out, 0, self.transfer.to_le_bytes());
        put(out, 8, self.index.to_le_bytes());
    }
}

/// The state of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AckState {
    /// Fragments are missing.
    Open = 0,
    /// All have arrived.
    Done = 1,
}

/// A server's report of the fragments received; the lowest missing ranges follow.
///
/// ```text
/// 0 8 transfer   8 4 received   12 4 ranges   16 1 state   17 7 zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckHead {
    /// The grant's.
    pub transfer: u64,
    /// Fragments that have arrived.
    pub received: u32,
    /// How many ranges follow, at most [`RANGES_MAX`].
    pub ranges: u32,
    /// The state of the transfer.
    pub state: AckState,
}

impl AckHead {
    /// Reads a body: the head, and the missing ranges.
    ///
    /// # Errors
    /// It is too short, its state is unknown, or a range cannot be.
    pub fn parse(body: &[u8]) -> Result<(Self, Ranges<'_>), Malformed> {
        let (bytes, rest) = head::<ACK_HEAD_BYTES>(body, Malformed::Body)?;
        let state = match bytes[16] {
            0 => AckState::Open,
            1 => AckState::Done,
            _ => return Err(Malformed::Body),
        };
        let ranges = u32_at(bytes, 12);
        let ranges_bytes = (ranges as usize).checked_mul(RANGE_BYTES).ok_or(Malformed::Body)?;
        let missing = Ranges::parse(rest.get(..ranges_bytes).ok_or(Malformed::Body)?)?;
        Ok((Self { transfer: u64_at(bytes, 0), received: u32_at(bytes, 8), ranges, state }, missing))
    }

    /// Writes the head.
    pub fn write(&self, out: &mut [u8; ACK_HEAD_BYTES]) {
        out.fill(0);
        put(out, 0, self.transfer.to_le_bytes());
        put(out, 8, self.received.to_le_bytes());
        put(out, 12, self.ranges.to_le_bytes());
        put(out, 16, [self.state as u8]);
    }
}

/// Fragments that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentRange {
    /// The first of them.
    pub first: u32,
    /// How many, at least one.
    pub count: u32,
}

impl FragmentRange {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RANGE_BYTES] = bytes.try_into().ok()?;
        let range = Self { first: u32_at(bytes, 0), count: u32_at(bytes, 4) };
        (range.count > 0 && range.first.checked_add(range.count).is_some()).then_some(range)
    }

    /// The indexes of the fragments.
    #[inline]
    pub fn indexes(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }
}

/// Ranges of fragments: the value of a FETCH, or the bytes behind the head of an Ack. Each range has at least
/// one fragment and ends below 2^32; it may still exceed the value's fragments.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    bytes: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// Reads ranges that fill `bytes`.
    ///
    /// # Errors
    /// They do not fill it, there are more than [`RANGES_MAX`], or one names no fragments or ends too high.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let ranges = bytes.chunks(RANGE_BYTES);
        let is_list =
            ranges.len() <= RANGES_MAX && ranges.clone().all(|range| FragmentRange::parse(range).is_some());
        if is_list { Ok(Self { bytes }) } else { Err(Malformed::Body) }
    }
}

impl Iterator for Ranges<'_> {
    type Item = FragmentRange;

    fn next(&mut self) -> Option<FragmentRange> {
        let (range, behind) = self.bytes.split_at_checked(RANGE_BYTES)?;
        self.bytes = behind;
        FragmentRange::parse(range)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.bytes.len() / RANGE_BYTES;
        (count, Some(count))
    }
}

impl ExactSizeIterator for Ranges<'_> {}
impl FusedIterator for Ranges<'_> {}

/// Appends `ranges` to `out`, the form in which a FETCH and an Ack have them. The caller keeps to
/// [`RANGES_MAX`].
pub fn push_ranges(out: &mut Vec<u8>, ranges: impl IntoIterator<Item = FragmentRange>) {
    for range in ranges {
        out.extend_from_slice(&range.first.to_le_bytes());
        out.extend_from_slice(&range.count.to_le_bytes());
    }
}
