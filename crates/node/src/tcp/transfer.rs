//! One large value on its way: from a socket into the store, or from the store to a socket.

use std::io::IoSlice;

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_net::{Interest, Progress};

use super::connection::Connection;
use crate::memcache::{LargeReply, LargeStore};

/// A connection and the large value that passes through it. This is what is handed from worker to
/// worker: nobody else touches the connection meanwhile (Minos §3.1 hands over the request).
pub(crate) struct Transfer<M: Mode> {
    pub(crate) connection: Box<Connection>,
    /// Replies to earlier requests of the connection that go out before the value does.
    pub(crate) head: Vec<u8>,
    pub(crate) work: Work<M>,
    /// Bytes that went through the socket.
    pub(crate) moved_bytes: u64,
}

/// What is left to do.
pub(crate) enum Work<M: Mode> {
    /// Send the value of a pinned item, and what the protocol wants behind it.
    Send { reply: Box<LargeReply<M>>, sent_bytes: usize },
    /// Receive a value and its terminator into reserved memory.
    Receive { store: Box<LargeStore<M>>, received_bytes: usize },
    /// Copy bytes that are all there to where they belong, such as an append to a large value.
    Finish { store: Box<LargeStore<M>> },
}

/// What a slice came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// So many bytes were moved and some are left.
    Moved(usize),
    /// The socket can take or give nothing now.
    Blocked,
    /// Everything was moved.
    Complete,
    /// The connection is of no use any more.
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

    /// Bytes that are left to move: the order in which a large worker serves what it holds.
    pub(crate) fn remaining_bytes(&self) -> usize {
        match &self.work {
            Work::Send { reply, sent_bytes } => {
                self.head.len() + reply.value().len() + reply.tail().len() - sent_bytes
            }
            Work::Receive { store, received_bytes } => store.body_bytes() - received_bytes,
            // Those of the whole value that it becomes.
            Work::Finish { store } => store.class().bytes_max() as usize,
        }
    }

    /// What the socket has to become ready for when a slice was blocked.
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
                // What was buffered was counted when it came.
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

/// Sends on from `sent_bytes` of the pieces laid end to end, at most `limit_bytes`.
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
    match connection.socket.send_pieces(&window, end < total) {
        Progress::Bytes(moved) => {
            *sent_bytes += moved;
            if *sent_bytes == total { Slice::Complete } else { Slice::Moved(moved) }
        }
        Progress::Blocked => Slice::Blocked,
        Progress::Closed => Slice::Broken,
    }
}

/// Receives on from `received_bytes`, straight into the store's memory.
///
/// Bytes that the connection had buffered behind the head come first; they are few, and only they
/// are copied.
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
        match connection.socket.receive(room) {
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
