//! An item as the value of a record: its CAS unique, then the value.
//!
//! The sequence of a record cannot be the CAS unique: an item may be copied after a tombstone for an older record of
//! its key, which its sequence must exceed, and a client that remembers the CAS unique must find it unchanged.

use minos_engine::{ItemMeta, ItemState};
use minos_flash::format::{RecordHeader, Span};

/// Bytes before the value.
pub(crate) const HEAD_BYTES: usize = 8;

const STALE: u8 = 1;
const WIN_SENT: u8 = 2;
const ENCODED_KEY: u8 = 4;
/// Its flags share their word with milliseconds.
const EARLY: u8 = 8;

/// Flags and marks of a record's header.
pub(crate) fn flags_and_marks_of(state: &ItemState) -> (u32, u8) {
    let (flags, is_early) = state.flags_word();
    let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
    let marks = mark(state.is_stale(), STALE)
        | mark(state.is_win_sent(), WIN_SENT)
        | mark(state.has_encoded_key(), ENCODED_KEY)
        | mark(is_early, EARLY);
    (flags, marks)
}

/// Writes the payload of an item.
pub(crate) fn write(payload: &mut Vec<u8>, cas: u64, value: &[u8]) {
    payload.clear();
    payload.reserve(HEAD_BYTES + value.len());
    payload.extend_from_slice(&cas.to_le_bytes());
    payload.extend_from_slice(value);
}

/// The value of a record, in the buffer that it was read into.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(Span<'a>);

impl<'a> Value<'a> {
    /// The CAS unique and the value; `None` if the record is no item of ours.
    pub(crate) fn of(span: Span<'a>) -> Option<(u64, Self)> {
        let mut head = [0; HEAD_BYTES];
        let mut bytes = span.pieces().flatten();
        head.iter_mut().try_for_each(|to| {
            *to = *bytes.next()?;
            Some(())
        })?;
        Some((u64::from_le_bytes(head), Self(span)))
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.len() - HEAD_BYTES
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in one piece, if they lie in one page.
    pub fn contiguous(&self) -> Option<&'a [u8]> {
        self.0.contiguous().map(|bytes| &bytes[HEAD_BYTES..])
    }

    /// The bytes, a piece a page.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut skipped = 0;
        self.0.pieces().filter_map(move |piece| {
            let skip = (HEAD_BYTES - skipped).min(piece.len());
            skipped += skip;
            (skip < piece.len()).then_some(&piece[skip..])
        })
    }

    /// Appends the bytes.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        self.pieces().for_each(|piece| out.extend_from_slice(piece));
    }

    /// The bytes in one piece, which is `copy` if they do not lie so.
    pub fn whole<'b>(&self, copy: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if let Some(bytes) = self.contiguous() {
            return bytes;
        }
        copy.clear();
        self.copy_to(copy);
        copy
    }
}

/// The properties of the item of a record.
pub(crate) fn meta_of(header: &RecordHeader, cas: u64) -> ItemMeta {
    let has = |mark: u8| header.marks & mark != 0;
    let meta = ItemMeta {
        expiry: header.expiry,
        cas: Some(cas),
        stale: has(STALE),
        win_sent: has(WIN_SENT),
        encoded_key: has(ENCODED_KEY),
        ..ItemMeta::default()
    };
    meta.with_flags_word((header.flags, has(EARLY)))
}
