//! Payloads that lie in pieces.

use std::io::IoSlice;

/// The bytes of pieces, from a place on.
pub(crate) struct Bytes<'a> {
    pieces: &'a [IoSlice<'a>],
    /// Of the first piece.
    at: usize,
}

impl<'a> Bytes<'a> {
    /// All of them.
    pub(crate) fn of(pieces: &'a [IoSlice<'a>]) -> Self {
        Self { pieces, at: 0 }
    }

    /// The next `count` bytes where they lie, if that is in one piece; else nothing is taken.
    #[inline]
    pub(crate) fn whole(&mut self, count: usize) -> Option<&'a [u8]> {
        let (piece, others) = self.pieces.split_first()?;
        let bytes = piece.get(self.at..self.at + count)?;
        self.at += count;
        if self.at == piece.len() {
            (self.pieces, self.at) = (others, 0);
        }
        Some(bytes)
    }

    /// Copies as many as there is room for.
    pub(crate) fn copy_to(&mut self, mut room: &mut [u8]) {
        while let Some((piece, others)) = self.pieces.split_first().filter(|_| !room.is_empty()) {
            let rest = &piece[self.at..];
            let (target, behind) = room.split_at_mut(rest.len().min(room.len()));
            target.copy_from_slice(&rest[..target.len()]);
            self.at += target.len();
            room = behind;
            if self.at == piece.len() {
                (self.pieces, self.at) = (others, 0);
            }
        }
    }
}
