//! Sending many trains with one call.

use std::{io::IoSlice, net::SocketAddr, os::fd::AsFd};

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::{
    BURST_MESSAGES, Sent, TRAIN_BYTES_MAX, UdpPort,
    name::Name,
    submit::{BATCH_MESSAGES, Failure, Outgoing, cut, submit},
    train_bytes,
};

/// Trains that wait to be sent together, in memory that is taken once.
pub struct TransmitBurst {
    bytes: Vec<u8>,
    trains: ArrayVec<Train, BURST_MESSAGES>,
}

/// Segments for one peer, which lie at `begin..end`.
struct Train {
    peer: SocketAddr,
    name: Name,
    begin: usize,
    end: usize,
    segment_bytes: usize,
}

/// Up to where a burst was sent.
#[derive(Clone, Copy)]
struct Cursor {
    train: usize,
    byte: usize,
    /// This train was refused as one, and goes in segments.
    is_split: bool,
}

/// What one message carries: a whole train, or one of its segments.
struct Piece {
    train: usize,
    begin: usize,
    end: usize,
}

impl TransmitBurst {
    /// Room for [`BURST_MESSAGES`] trains of any length: 2 MiB, of which memory is only touched as
    /// far as it is used.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(BURST_MESSAGES * TRAIN_BYTES_MAX), trains: ArrayVec::new() }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Trains that wait.
    pub fn len(&self) -> usize {
        self.trains.len()
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.trains.clear();
    }

    /// Copies a train for `peer` of segments of `segment_bytes`, of which the last may be shorter; says
    /// false, and takes nothing, if there is no room before the next [`send`](Self::send): room is for
    /// [`BURST_MESSAGES`] trains. It goes on from the train before where that is for the same peer and
    /// of the same segments, all of them full; what is longer than a train may be becomes several.
    #[must_use]
    pub fn push(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) -> bool {
        let segment_bytes = segment_bytes.max(1);
        let train_bytes = train_bytes(segment_bytes);
        let joined_bytes = self.room_behind(peer, segment_bytes).min(bytes.len());
        let (joined, rest) = bytes.split_at(joined_bytes);
        if rest.len().div_ceil(train_bytes) > self.trains.remaining_capacity() {
            return false;
        }
        if let Some(train) = self.trains.last_mut().filter(|_| !joined.is_empty()) {
            train.end += joined.len();
            self.bytes.extend_from_slice(joined);
        }
        for part in rest.chunks(train_bytes) {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(part);
            let end = self.bytes.len();
            self.trains.push(Train { peer, name: peer.into(), begin, end, segment_bytes });
        }
        true
    }

    /// Sends what waits, with one call unless something is refused, and is empty then.
    pub fn send(&mut self, port: &UdpPort) -> Sent {
        let mut sent = Sent::default();
        let mut cursor = Cursor { train: 0, byte: 0, is_split: false };
        while cursor.train < self.trains.len() {
            cursor = self.send_batch(port, cursor, &mut sent);
        }
        self.clear();
        sent
    }

    /// Bytes that the last train may still take of segments of this size for this peer.
    fn room_behind(&self, peer: SocketAddr, segment_bytes: usize) -> usize {
        let Some(train) = self.trains.last() else { return 0 };
        let bytes = train.end - train.begin;
        let goes_on =
            train.peer == peer && train.segment_bytes == segment_bytes && bytes.is_multiple_of(segment_bytes);
        if goes_on { train_bytes(segment_bytes).saturating_sub(bytes) } else { 0 }
    }

    /// One call, from `cursor` on. Says where to go on.
    fn send_batch(&self, port: &UdpPort, cursor: Cursor, sent: &mut Sent) -> Cursor {
        let in_segments = cursor.is_split || !port.gso();
        let pieces = self.pieces(cursor, in_segments);
        let slices: ArrayVec<IoSlice<'_>, BATCH_MESSAGES> =
            pieces.iter().map(|piece| IoSlice::new(&self.bytes[piece.begin..piece.end])).collect();
        let outgoing: ArrayVec<Outgoing<'_>, BATCH_MESSAGES> =
            pieces.iter().zip(&slices).map(|(piece, slice)| self.outgoing(piece, slice)).collect();
        match submit(port.as_fd(), &outgoing) {
            Ok(taken) => {
                if cursor.is_split {
                    // What was refused as a train goes in segments: it was because of the train.
                    port.give_up_gso();
                }
                sent.trains += pieces.iter().take(taken).filter(|piece| self.is_last(piece)).count() as u64;
                self.behind(&pieces[taken.min(pieces.len()) - 1], cursor.is_split)
            }
            Err(error) => self.failed(&pieces[0], error, sent),
        }
    }

    /// What the messages of the next call carry.
    fn pieces(&self, cursor: Cursor, in_segments: bool) -> ArrayVec<Piece, BATCH_MESSAGES> {
        let mut pieces = ArrayVec::new();
        let mut begin = cursor.byte;
        for (index, train) in self.trains.iter().enumerate().skip(cursor.train) {
            begin = begin.max(train.begin);
            while begin < train.end && !pieces.is_full() {
                let end = if in_segments { train.end.min(begin + train.segment_bytes) } else { train.end };
                pieces.push(Piece { train: index, begin, end });
                begin = end;
            }
            if cursor.is_split || pieces.is_full() {
                break;
            }
        }
        pieces
    }

    fn outgoing<'a>(&'a self, piece: &Piece, slice: &'a IoSlice<'a>) -> Outgoing<'a> {
        let train = &self.trains[piece.train];
        let segment_bytes = cut(piece.end - piece.begin, train.segment_bytes);
        Outgoing { name: &train.name, pieces: std::slice::from_ref(slice), segment_bytes }
    }

    fn is_last(&self, piece: &Piece) -> bool {
        piece.end == self.trains[piece.train].end
    }

    /// Where to go on behind `piece`.
    fn behind(&self, piece: &Piece, is_split: bool) -> Cursor {
        if self.is_last(piece) {
            Cursor { train: piece.train + 1, byte: piece.end, is_split: false }
        } else {
            Cursor { train: piece.train, byte: piece.end, is_split }
        }
    }

    /// Where to go on when `piece` was not taken.
    fn failed(&self, piece: &Piece, error: Errno, sent: &mut Sent) -> Cursor {
        let train = &self.trains[piece.train];
        let is_train = cut(piece.end - piece.begin, train.segment_bytes).is_some();
        let next = Cursor { train: piece.train + 1, byte: train.end, is_split: false };
        match Failure::of(error, is_train) {
            Failure::NoTrain => Cursor { train: piece.train, byte: piece.begin, is_split: true },
            Failure::Full => {
                sent.dropped += (self.trains.len() - piece.train) as u64;
                Cursor { train: self.trains.len(), ..next }
            }
            failure => {
                failure.count(sent);
                next
            }
        }
    }
}

impl Default for TransmitBurst {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for TransmitBurst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (trains, bytes) = (self.trains.len(), self.bytes.len());
        f.debug_struct("TransmitBurst").field("trains", &trains).field("bytes", &bytes).finish()
    }
}
