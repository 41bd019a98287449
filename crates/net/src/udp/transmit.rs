//! Sending many trains with one call.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use arrayvec::ArrayVec;
use rustix::io::Errno;

use super::{
    BURST_MESSAGES, Sent, TRAIN_BYTES_MAX, UdpPort,
    name::Name,
    submit::{BATCH_MESSAGES, Failure, Outgoing, Way, cut},
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
    begin: usize,
    end: usize,
    segment_bytes: usize,
    /// Bytes that it may have if others join; 0 if its last segment is short, or nobody asked so far.
    bytes_max: usize,
}

/// Up to where a burst was sent.
#[derive(Clone, Copy)]
struct Cursor {
    train: usize,
    byte: usize,
    way: Way,
}

/// The content of one message: a whole train, or one of its segments.
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

    /// True if no train waits.
    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Trains that wait.
    pub fn len(&self) -> usize {
        self.trains.len()
    }

    /// The queued trains: peer, bytes and segment size of each.
    pub fn trains(&self) -> impl ExactSizeIterator<Item = (SocketAddr, &[u8], usize)> {
        self.trains.iter().map(|train| (train.peer, &self.bytes[train.begin..train.end], train.segment_bytes))
    }

    /// Drops all queued trains.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.trains.clear();
    }

    /// Copies a train for `peer` of segments of `segment_bytes`, of which the last may be shorter. Returns
    /// false, and queues nothing, if there is no room before the next [`send`](Self::send): there is room for
    /// [`BURST_MESSAGES`] trains. It extends the train before it if that is for the same peer and has the
    /// same segment size and only full segments. Bytes beyond the longest train become further trains.
    #[must_use]
    #[inline]
    pub fn push(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) -> bool {
        // Mostly one more segment like those before: no division.
        if let Some(train) = self.trains.last_mut()
            && bytes.len() == segment_bytes
            && train.segment_bytes == segment_bytes
            && train.end - train.begin + segment_bytes <= train.bytes_max
            && train.end == self.bytes.len()
            && train.peer == peer
        {
            train.end += bytes.len();
            self.bytes.extend_from_slice(bytes);
            return true;
        }
        self.push_any(peer, bytes, segment_bytes.max(1))
    }

    fn push_any(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) -> bool {
        let train_bytes = train_bytes(segment_bytes);
        let joined_bytes = self.room_behind(peer, segment_bytes).min(bytes.len());
        let (joined, rest) = bytes.split_at(joined_bytes);
        if rest.len().div_ceil(train_bytes) > self.trains.remaining_capacity() {
            return false;
        }
        let bytes_max = |bytes: usize| if bytes.is_multiple_of(segment_bytes) { train_bytes } else { 0 };
        if let Some(train) = self.trains.last_mut().filter(|_| !joined.is_empty()) {
            train.end += joined.len();
            train.bytes_max = bytes_max(train.end - train.begin);
            self.bytes.extend_from_slice(joined);
        }
        for part in rest.chunks(train_bytes) {
            let begin = self.bytes.len();
            self.bytes.extend_from_slice(part);
            let bytes_max = bytes_max(part.len());
            self.trains.push(Train { peer, begin, end: self.bytes.len(), segment_bytes, bytes_max });
        }
        true
    }

    /// The bytes of the queued trains. Appended bytes can be sent from their place: see
    /// [`queue`](Self::queue). The bytes that are there already must not change.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Queues the train for `peer` in this part of the [`buffer`](Self::buffer), of segments of
    /// `segment_bytes`, of which the last may be shorter. Returns false, and queues nothing, if it
    /// does not lie behind the queued trains, is longer than a train may be, or there is no room
    /// before the next [`send`](Self::send).
    #[must_use]
    pub fn queue(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) -> bool {
        let segment_bytes = segment_bytes.max(1);
        let Range { start: begin, end } = train;
        let is_behind = begin >= self.trains.last().map_or(0, |train| train.end);
        let is_train = begin < end
            && end <= self.bytes.len()
            && (end - begin <= segment_bytes || end - begin <= train_bytes(segment_bytes));
        if !is_behind || !is_train || self.trains.is_full() {
            return false;
        }
        self.trains.push(Train { peer, begin, end, segment_bytes, bytes_max: 0 });
        true
    }

    /// Sends all queued trains, with one call unless the kernel refuses one; the burst is empty afterwards.
    pub fn send(&mut self, port: &UdpPort) -> Sent {
        let mut sent = Sent::default();
        let mut cursor = Cursor { train: 0, byte: 0, way: Way::Train };
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
        let goes_on = train.peer == peer
            && train.segment_bytes == segment_bytes
            && train.end == self.bytes.len()
            && bytes.is_multiple_of(segment_bytes);
        if goes_on { train_bytes(segment_bytes).saturating_sub(bytes) } else { 0 }
    }

    /// One call, from `cursor` on. Returns the cursor to continue from.
    fn send_batch(&self, port: &UdpPort, cursor: Cursor, sent: &mut Sent) -> Cursor {
        let pieces = self.pieces(cursor, cursor.way.is_in_segments(port));
        let slices: ArrayVec<IoSlice<'_>, BATCH_MESSAGES> =
            pieces.iter().map(|piece| IoSlice::new(&self.bytes[piece.begin..piece.end])).collect();
        let names: ArrayVec<Name, BATCH_MESSAGES> =
            pieces.iter().map(|piece| self.trains[piece.train].peer.into()).collect();
        let outgoing: ArrayVec<Outgoing<'_>, BATCH_MESSAGES> = pieces
            .iter()
            .zip(names.iter().zip(&slices))
            .map(|(piece, (name, slice))| self.outgoing(piece, name, slice))
            .collect();
        match cursor.way.submit(port, &outgoing) {
            Ok(taken) => {
                sent.trains += pieces.iter().take(taken).filter(|piece| self.is_last(piece)).count() as u64;
                self.behind(&pieces[taken.min(pieces.len()) - 1], cursor.way)
            }
            Err(error) => self.failed(&pieces[0], cursor.way, error, sent),
        }
    }

    /// The contents of the next call's messages.
    fn pieces(&self, cursor: Cursor, is_in_segments: bool) -> ArrayVec<Piece, BATCH_MESSAGES> {
        let mut pieces = ArrayVec::new();
        let mut begin = cursor.byte;
        for (index, train) in self.trains.iter().enumerate().skip(cursor.train) {
            begin = begin.max(train.begin);
            while begin < train.end && !pieces.is_full() {
                let segment_end = train.end.min(begin + train.segment_bytes);
                let end = if is_in_segments { segment_end } else { train.end };
                pieces.push(Piece { train: index, begin, end });
                begin = end;
            }
            if cursor.way != Way::Train || pieces.is_full() {
                break;
            }
        }
        pieces
    }

    fn outgoing<'a>(&self, piece: &Piece, name: &'a Name, slice: &'a IoSlice<'a>) -> Outgoing<'a> {
        let segment_bytes = cut(piece.end - piece.begin, self.trains[piece.train].segment_bytes);
        Outgoing { name, pieces: std::slice::from_ref(slice), segment_bytes }
    }

    fn is_last(&self, piece: &Piece) -> bool {
        piece.end == self.trains[piece.train].end
    }

    /// The cursor behind `piece`, which was sent this way.
    fn behind(&self, piece: &Piece, way: Way) -> Cursor {
        if self.is_last(piece) {
            Cursor { train: piece.train + 1, byte: piece.end, way: Way::Train }
        } else {
            Cursor { train: piece.train, byte: piece.end, way }
        }
    }

    /// The cursor to continue from when `piece` was refused.
    fn failed(&self, piece: &Piece, way: Way, error: Errno, sent: &mut Sent) -> Cursor {
        let train = &self.trains[piece.train];
        let is_train = cut(piece.end - piece.begin, train.segment_bytes).is_some();
        let failure = Failure::of(error, is_train);
        if let Some(way) = way.after(failure, sent) {
            return Cursor { train: piece.train, byte: piece.begin, way };
        }
        let lost = if failure == Failure::Full { self.trains.len() - piece.train } else { 1 };
        failure.count(lost, sent);
        Cursor { train: piece.train + lost, byte: train.end, way: Way::Train }
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
