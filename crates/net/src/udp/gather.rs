//! Sending a train from where its pieces lie.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use arrayvec::ArrayVec;

use super::{
    Sent, UdpPort,
    name::Name,
    submit::{BATCH_MESSAGES, Failure, Outgoing, Way, cut},
    train_bytes,
};

/// Pieces of one call at most: a full train of segments that are a header and two pieces each.
const PIECES_MAX: usize = 256;

/// A place within pieces: the number of pieces before it, and of bytes of the next piece.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    piece: usize,
    byte: usize,
}

/// The content of one message: a range of the cut pieces, and their bytes.
struct Part {
    pieces: Range<usize>,
    bytes: usize,
    end: Place,
}

/// The messages of one call.
#[derive(Default)]
struct Batch<'a> {
    pieces: ArrayVec<IoSlice<'a>, PIECES_MAX>,
    parts: ArrayVec<Part, BATCH_MESSAGES>,
}

impl UdpPort {
    /// Sends the joined bytes of `pieces` to `peer`, cut into segments of `segment_bytes`, without copying
    /// them together first. They count as one train, even if they are longer than a train may be and leave as
    /// several. The first part that the kernel refuses ends it. More than 256 pieces are refused.
    pub fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent {
        let (name, segment_bytes) = (Name::from(peer), segment_bytes.max(1));
        let mut sent = Sent::default();
        let mut at = skip_empty(pieces, Place { piece: 0, byte: 0 });
        let mut way = Way::Train;
        while at.piece < pieces.len() {
            let is_in_segments = way.is_in_segments(self);
            let message_bytes = if is_in_segments { segment_bytes } else { train_bytes(segment_bytes) };
            let batch = Batch::cut(pieces, at, message_bytes);
            let Some(first) = batch.parts.first() else {
                sent.refused += 1;
                return sent;
            };
            match way.submit(self, &batch.outgoing(&name, segment_bytes)) {
                Ok(taken) => at = batch.parts[taken.min(batch.parts.len()) - 1].end,
                Err(error) => {
                    let failure = Failure::of(error, cut(first.bytes, segment_bytes).is_some());
                    let Some(next) = way.after(failure, &mut sent) else {
                        failure.count(1, &mut sent);
                        return sent;
                    };
                    way = next;
                }
            }
        }
        sent.trains += 1;
        sent
    }
}

impl<'a> Batch<'a> {
    /// Messages of `message_bytes` each, the last of them shorter, from `at` on, as many as there is
    /// room for.
    fn cut(pieces: &'a [IoSlice<'_>], mut at: Place, message_bytes: usize) -> Self {
        let mut batch = Self::default();
        while at.piece < pieces.len() && !batch.parts.is_full() {
            let Some(part) = batch.cut_one(pieces, at, message_bytes) else { break };
            at = part.end;
            batch.parts.push(part);
        }
        batch
    }

    /// None if its pieces find no room.
    fn cut_one(&mut self, pieces: &'a [IoSlice<'_>], mut at: Place, message_bytes: usize) -> Option<Part> {
        let begin = self.pieces.len();
        let mut bytes = 0;
        while bytes < message_bytes && at.piece < pieces.len() {
            let rest = &pieces[at.piece][at.byte..];
            let taken = &rest[..rest.len().min(message_bytes - bytes)];
            if self.pieces.try_push(IoSlice::new(taken)).is_err() {
                self.pieces.truncate(begin);
                return None;
            }
            bytes += taken.len();
            at = skip_empty(pieces, Place { piece: at.piece, byte: at.byte + taken.len() });
        }
        Some(Part { pieces: begin..self.pieces.len(), bytes, end: at })
    }

    fn outgoing<'b>(
        &'b self,
        name: &'b Name,
        segment_bytes: usize,
    ) -> ArrayVec<Outgoing<'b>, BATCH_MESSAGES> {
        let message = |part: &Part| Outgoing {
            name,
            pieces: &self.pieces[part.pieces.clone()],
            segment_bytes: cut(part.bytes, segment_bytes),
        };
        self.parts.iter().map(message).collect()
    }
}

/// The next place at which a byte lies.
fn skip_empty(pieces: &[IoSlice<'_>], mut at: Place) -> Place {
    while pieces.get(at.piece).is_some_and(|piece| at.byte >= piece.len()) {
        at = Place { piece: at.piece + 1, byte: 0 };
    }
    at
}
