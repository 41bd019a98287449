//! Notes of reads in other nodes' memory: the owner's eviction takes them for its own reads.

use std::cell::RefCell;

use minos_base::KeyHash;

/// The byte that begins a frame of notes; no command begins with it.
pub(crate) const MARK: u8 = 0;
/// Bytes before the notes: the mark and their number.
const HEAD_BYTES: usize = 2;
/// Bytes of a note: the key's hash and the item's slot.
const NOTE_BYTES: usize = 16;
/// Most notes for one node between two frames. A reader notes a hot item once and a little later again, so that
/// more are rare; those are left out.
const NOTES_MAX: usize = 255;

/// The notes for one node.
#[derive(Default)]
pub(super) struct Notes(RefCell<Vec<u8>>);

impl Notes {
    /// Adds a note, if there is room.
    pub(super) fn add(&self, hash: KeyHash, slot: u64) {
        let mut bytes = self.0.borrow_mut();
        if bytes.is_empty() {
            bytes.extend([MARK, 0]);
        }
        if usize::from(bytes[1]) < NOTES_MAX {
            bytes[1] += 1;
            bytes.extend(hash.0.to_le_bytes());
            bytes.extend(slot.to_le_bytes());
        }
    }

    /// Calls `send` with a frame of all notes, if there are any.
    pub(super) fn take(&self, send: impl FnOnce(&[u8])) {
        let mut bytes = self.0.borrow_mut();
        if !bytes.is_empty() {
            send(&bytes);
            bytes.clear();
        }
    }
}

/// The notes in a frame at the front of `input`, and its bytes; `None` if it has not arrived as a whole. The first byte
/// is [`MARK`].
pub(crate) fn read(input: &[u8]) -> Option<(Vec<(KeyHash, u64)>, usize)> {
    let bytes = HEAD_BYTES + usize::from(*input.get(1)?) * NOTE_BYTES;
    let (words, _) = input.get(HEAD_BYTES..bytes)?.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let note = |[hash, slot]: &[[u8; 8]; 2]| (KeyHash(u64::from_le_bytes(*hash)), u64::from_le_bytes(*slot));
    Some((pairs.iter().map(note).collect(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_once_it_is_whole() {
        let notes = Notes::default();
        notes.take(|_| panic!("there are none"));
        let expected: Vec<_> = (0..300).map(|number| (KeyHash(number * 7), number)).collect();
        expected.iter().for_each(|(hash, slot)| notes.add(*hash, *slot));
        let mut frame = Vec::new();
        notes.take(|bytes| frame.extend_from_slice(bytes));
        notes.take(|_| panic!("they are gone"));
        assert!((1..frame.len()).all(|cut| read(&frame[..cut]).is_none()));
        assert_eq!(read(&frame), Some((expected[..NOTES_MAX].to_vec(), frame.len())));
    }
}
