//! The transfer of one large value: from a socket into the store, or from the store to a socket.

use std::io::IoSlice;

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_net::{Interest, Progress};

use super::connection::Connection;
use crate::memcache::{LargeReply, LargeStore};

/// A connection and the large value that is sent or received on it. Workers hand over the whole transfer, so
/// that one worker at a time uses the connection (Minos §3.1 hands over the request).
pub(crate) struct Transfer<M: Mode> {
    pub(crate) connection: Box<Connection>,
    /// Replies to earlier requests of the connection, sent before the value.
    pub(crate) head: Vec<u8>,
    pub(crate) work: Work<M>,
    /// Bytes sent or received on the socket.
    pub(crate) moved_bytes: u64,
}

/// The work left to do.
pub(crate) enum Work<M: Mode> {
    /// Send the value of a pinned item and the protocol's bytes behind it.
    Send { reply: Box<LargeReply<M>>, sent_bytes: usize },
    /// Receive a value and its terminator into reserved memory.
    Receive { store: Box<LargeStore<M>>, received_bytes: usize },
    /// Copy bytes that have all arrived to their final place, as in an append to a large value.
    Finish { store: Box<LargeStore<M>> },
}

/// The result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// This many bytes were moved and some are left.
    Moved(usize),
    /// The socket is not ready.
    Blocked,
    /// Everything was moved.
    Complete,
    /// The connection is broken.
    Broken,
}

impl<M: Mode> Transfer<M> {
    /// The size class of the value.
    pub(crate) fn class(&self) -> SizeClass {
        match &self.work {
            Work::Send { reply, .. } => reply.class(),
            Work::Receive { store, .. } | Work::Finish { store } => store.class(),
        }
    }

    /// Bytes left to move, by which a large worker orders its transfers.
    pub(crate) fn remaining_bytes(&self) -> usize {
        match &self.work {
            Work::Send { reply, sent_bytes } => {
                self.head.len() + reply.value().len() + reply.tail().len() - sent_bytes
            }
            Work::Receive { store, received_bytes } => store.body_bytes() - received_bytes,
            // The copy takes the whole new value.
            Work::Finish { store } => store.class().bytes_max() as usize,
        }
    }

    /// The readiness that a blocked slice waits for.
    pub(crate) fn interest(&self) -> Interest {
        match self.work {
            Work::Send { .. } => Interest::Write,
            Work::Receive { .. } | Work::Finish { .. } => Interest::Read,
        }
    }

    /// Moves at most `limit_bytes`.
    pub(crate) fn advance(&mut self, limit_bytes: usize) -> Slice {
        match &mut self.work {
            Work::Send { reply, sent_bytes } => {
                let pieces = [self.head.as_slice(), reply.value(), reply.tail()];
                let before = *sent_bytes;
                let slice = send(&self.connection, pieces, sent_bytes, limit_bytes);
                self.moved_bytes += (*sent_bytes - before) as u64;
                slice
            }
            Work::Receive { store, received_bytes } => {
                // Buffered bytes were counted when they were received.
                let is_buffered = !self.connection.input.is_empty();
                let before = *received_bytes;
                let slice = receive(&mut self.connection, store, received_bytes, limit_bytes);
                self.moved_bytes += if is_buffered { 0 } else { (*received_bytes - before) as u64 };
                slice
            }
            Work::Finish { store } => match store.copy(limit_bytes) {
                0 => Slice::Complete,
                copied => Slice::Moved(copied),
            },
        }
    }
}

/// Sends at most `limit_bytes` of the concatenated pieces, from offset `sent_bytes` on.
fn send(connection: &Connection, pieces: [&[u8]; 3], sent_bytes: &mut usize, limit_bytes: usize) -> Slice {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let end = total.min(sent_bytes.saturating_add(limit_bytes));
    let mut start = 0;
    let window = pieces.map(|piece| {
        let from = sent_bytes.saturating_sub(start).min(piece.len());
        let to = end.saturating_sub(start).min(piece.len());
        start += piece.len();
        IoSlice::new(&piece[from.min(to)..to])
    });
    match connection.stream.send_pieces(&window, end < total) {
        Progress::Bytes(moved) => {
            *sent_bytes += moved;
            if *sent_bytes == total { Slice::Complete } else { Slice::Moved(moved) }
        }
        Progress::Blocked => Slice::Blocked,
        Progress::Closed => Slice::Broken,
    }
}

/// Receives the value from offset `received_bytes` on, straight into the store's memory.
///
/// Bytes that the connection had buffered behind the head come first; only these few bytes are copied.
fn receive<M: Mode>(
    connection: &mut Connection,
    store: &mut LargeStore<M>,
    received_bytes: &mut usize,
    limit_bytes: usize,
) -> Slice {
    let body_bytes = store.body_bytes();
    let room = store.room_at(*received_bytes);
    let limit = room.len().min(limit_bytes);
    let room = &mut room[..limit];
    let moved = if connection.input.is_empty() {
        match connection.stream.receive(room) {
            Progress::Bytes(moved) => moved,
            Progress::Blocked => return Slice::Blocked,
            Progress::Closed => return Slice::Broken,
        }
    } else {
        let buffered = connection.input.bytes();
        let moved = buffered.len().min(room.len());
        room[..moved].copy_from_slice(&buffered[..moved]);
        connection.input.consume(moved);
        moved
    };
    *received_bytes += moved;
    if *received_bytes == body_bytes { Slice::Complete } else { Slice::Moved(moved) }
}
