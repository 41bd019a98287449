//! Values that identify the write of each of their bytes.

/// Bytes of one write. A value consists of one piece, or of several after appends and prepends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The write: the first eight bytes, if there are that many.
    pub(crate) write: u64,
    pub(crate) bytes: usize,
}

impl Piece {
    /// Appends its bytes. They differ from those of another write or at another position.
    pub(crate) fn append_to(self, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.resize(start + self.bytes, 0);
        let mut word = self.write;
        for chunk in buffer[start..].chunks_mut(8) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(self.write);
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    /// The piece that makes up `value`, if it is a value of one piece.
    pub(crate) fn of(value: &[u8]) -> Option<Self> {
        let first = value.first_chunk::<8>()?;
        let piece = Self { write: u64::from_le_bytes(*first), bytes: value.len() };
        (piece.to_bytes() == value).then_some(piece)
    }
}

pub(crate) fn bytes_of(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length_of(pieces));
    pieces.iter().for_each(|piece| piece.append_to(&mut bytes));
    bytes
}

pub(crate) fn length_of(pieces: &[Piece]) -> usize {
    pieces.iter().map(|piece| piece.bytes).sum()
}
