//! The transfer of one large value: from a socket into the store, or from the store to a socket.

use std::io::IoSlice;

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_net::{Interest, Progress};

use super::{connection::Connection, patience::Patience};
use crate::{ops::Work, watch::Timed};

/// A connection and the large value that is sent or received on it. Workers hand over the whole transfer, so
/// that one worker at a time uses the connection (Minos §3.1 hands over the request).
///
/// Replies to earlier requests, which the connection holds, are sent before a value.
pub(crate) struct Transfer<M: Mode> {
    pub(crate) connection: Box<Connection>,
    pub(crate) work: Work<M>,
    /// Bytes sent or received on the socket.
    pub(crate) moved_bytes: u64,
    /// The time that it has waited for its client, on whatever worker.
    pub(crate) patience: Patience,
    /// Its times so far, if they are looked at.
    pub(crate) timed: Option<Box<Timed>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// This many bytes were moved and some are left.
    Moved(usize),
    /// The socket is not ready.
    Blocked,
    /// Everything was moved.
    Complete,
    Broken,
}

impl<M: Mode> Transfer<M> {
    /// A transfer that has moved nothing yet.
    pub(crate) fn new(connection: Box<Connection>, work: Work<M>, patience: Patience) -> Self {
        Self { connection, work, moved_bytes: 0, patience, timed: None }
    }

    pub(crate) fn class(&self) -> SizeClass {
        self.work.class()
    }

    /// Bytes left to move, by which a large worker orders its transfers.
    pub(crate) fn remaining_bytes(&self) -> usize {
        match &self.work {
            Work::Send { item, tail, sent_bytes } => {
                self.connection.output.bytes().len() + item.value().len() + tail.len() - sent_bytes
            }
            Work::Receive { store, received_bytes } => store.body_bytes() - received_bytes,
            Work::Collect { forward, at, .. } => forward.bytes.len() - at,
            // The copy takes the whole new value.
            Work::Finish { .. } => self.class().bytes_max() as usize,
        }
    }

    /// The readiness that a blocked slice waits for.
    pub(crate) fn interest(&self) -> Interest {
        match self.work {
            Work::Send { .. } => Interest::Write,
            Work::Receive { .. } | Work::Finish { .. } | Work::Collect { .. } => Interest::Read,
        }
    }

    /// Moves at most `limit_bytes`.
    pub(crate) fn advance(&mut self, limit_bytes: usize) -> Slice {
        let Self { connection, work, moved_bytes, .. } = self;
        match work {
            Work::Send { item, tail, sent_bytes } => {
                send(connection, (item.value(), tail), sent_bytes, limit_bytes, moved_bytes)
            }
            Work::Receive { store, received_bytes } => {
                let body_bytes = store.body_bytes();
                let room = store.room_at(*received_bytes);
                match receive(connection, (room, body_bytes), received_bytes, limit_bytes, moved_bytes) {
                    Slice::Complete if store.wants_more() => Slice::Moved(0),
                    slice => slice,
                }
            }
            Work::Collect { forward, at, .. } => {
                let bytes = forward.bytes.len();
                receive(connection, (&mut forward.bytes[*at..], bytes), at, limit_bytes, moved_bytes)
            }
            Work::Finish { store } => match store.copy(limit_bytes) {
                0 => Slice::Complete,
                copied => Slice::Moved(copied),
            },
        }
    }
}

/// Sends at most `limit_bytes` of the connection's replies, and of `value` and `tail` from offset `sent_bytes`
/// on, or what is sealed already.
fn send(
    connection: &mut Connection,
    (value, tail): (&[u8], &[u8]),
    sent_bytes: &mut usize,
    limit_bytes: usize,
    moved_bytes: &mut u64,
) -> Slice {
    // A worker with longer slices may have begun.
    let limit_bytes = limit_bytes.max(connection.stream.held_bytes());
    let head = connection.output.bytes();
    let value_left = &value[(*sent_bytes).min(value.len())..];
    let tail_left = &tail[sent_bytes.saturating_sub(value.len())..];
    let mut room = limit_bytes;
    let window = [head, value_left, tail_left].map(|piece| {
        let piece = &piece[..piece.len().min(room)];
        room -= piece.len();
        IoSlice::new(piece)
    });
    let left = head.len() + value_left.len() + tail_left.len();
    match connection.stream.send_pieces(&window, left > limit_bytes) {
        Progress::Bytes(moved) => {
            let of_head = moved.min(head.len());
            connection.output.consume(of_head);
            *sent_bytes += moved - of_head;
            *moved_bytes += moved as u64;
            if moved == left { Slice::Complete } else { Slice::Moved(moved) }
        }
        Progress::Blocked => Slice::Blocked,
        Progress::Closed => Slice::Broken,
    }
}

/// Receives a value of `body_bytes` from offset `received_bytes` on, straight into the memory for it.
///
/// Bytes that the connection had buffered behind the head come first; only these few bytes are copied. They
/// were counted when they were received.
fn receive(
    connection: &mut Connection,
    (room, body_bytes): (&mut [u8], usize),
    received_bytes: &mut usize,
    limit_bytes: usize,
    moved_bytes: &mut u64,
) -> Slice {
    let limit = room.len().min(limit_bytes);
    let room = &mut room[..limit];
    let moved = if connection.input.is_empty() {
        // What is behind the value may be in the buffers of an encrypted stream, of which no event tells.
        connection.is_drained = false;
        match connection.stream.receive(room) {
            Progress::Bytes(moved) => {
                *moved_bytes += moved as u64;
                moved
            }
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
