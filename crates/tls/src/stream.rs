//! An open stream that never blocks.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use minos_net::{Progress, Wire};
use rustls::ServerConnection;

/// Bytes received in one call, if much is expected. One call into the connection's own buffer takes a quarter.
const MUCH_BYTES: usize = 16 << 10;
/// Bytes that one call receives besides those that it returns: of whole records and the begin of one if they are full, of
/// some two thousand if each has a byte. To open so many takes about a millisecond.
const ASIDE_BYTES_MAX: usize = 32 << 10;
/// Pieces sealed in one step.
const PIECES_MAX: usize = 4;

/// An open TLS stream over `W`. Its calls never block.
#[derive(Debug)]
pub struct Stream<W: Wire> {
    wire: W,
    tls: ServerConnection,
    /// The caller's bytes in records that are not sent yet. They count as sent when all of these are.
    held_bytes: usize,
    /// Nothing more can be received.
    is_over: bool,
    /// Nothing more can be sent.
    is_broken: bool,
    /// The last call has stopped early.
    is_cut: bool,
    /// Counts those that have.
    broken: Arc<AtomicU64>,
}

/// What came of one call of the wire.
struct Filled {
    /// Its bytes.
    received: usize,
    /// Those that were opened.
    taken: usize,
    /// The wire has no more for now.
    is_drained: bool,
}

impl<W: Wire> Stream<W> {
    pub(crate) fn new(wire: W, tls: ServerConnection, broken: Arc<AtomicU64>) -> Self {
        Self { wire, tls, held_bytes: 0, is_over: false, is_broken: false, is_cut: false, broken }
    }

    /// The wire below.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Receives into `buffer`. Fewer bytes than it holds are the last for now, as of a socket, unless the call
    /// [is cut](Self::is_cut).
    pub fn receive(&mut self, buffer: &mut [u8]) -> Progress {
        self.is_cut = false;
        let mut done = self.take(buffer);
        let (mut received, mut is_drained) = (0, false);
        let end = loop {
            if done == buffer.len() {
                return Progress::Bytes(done);
            }
            if self.is_over {
                break Progress::Closed;
            }
            // Without a whole record only the wire says whether it is closed.
            if is_drained && done > 0 {
                break Progress::Blocked;
            }
            // No more than a few records in a row have no content.
            if done > 0 && received > done + ASIDE_BYTES_MAX {
                self.is_cut = true;
                return Progress::Bytes(done);
            }
            let room = &mut buffer[done..];
            let filled =
                if received > 0 && room.len() >= MUCH_BYTES { self.fill_much(room) } else { self.fill(room) };
            match filled {
                Ok(filled) => {
                    (received, done) = (received + filled.received, done + filled.taken);
                    is_drained = filled.is_drained;
                }
                Err(end) => break end,
            }
        };
        if done > 0 { Progress::Bytes(done) } else { end }
    }

    /// Sends from the front of `bytes`.
    ///
    /// As long as [`Progress::Blocked`] is returned, a part of the bytes may be sealed already: the next call must begin
    /// with the same bytes, to which others may have been added, and have [`held_bytes`](Self::held_bytes) at least.
    pub fn send(&mut self, bytes: &[u8]) -> Progress {
        self.send_pieces(&[IoSlice::new(bytes)])
    }

    /// Bytes that the next call of [`send`](Self::send) must have at least, because they are sealed.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// As [`send`](Self::send), from the front of several pieces.
    pub fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> Progress {
        if self.is_broken {
            return Progress::Closed;
        }
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        loop {
            match write_out(&mut self.tls, &self.wire) {
                Progress::Bytes(_) => done += std::mem::take(&mut self.held_bytes),
                Progress::Blocked if done > 0 => return Progress::Bytes(done),
                Progress::Blocked => return Progress::Blocked,
                Progress::Closed => {
                    self.is_broken = true;
                    return Progress::Closed;
                }
            }
            if done >= total {
                // More only if the caller has forgotten bytes that are sent.
                return if done == total { Progress::Bytes(done) } else { Progress::Closed };
            }
            match seal(&mut self.tls, pieces, done) {
                Ok(sealed @ 1..) => self.held_bytes = sealed,
                _ => {
                    self.is_broken = true;
                    return Progress::Closed;
                }
            }
        }
    }

    /// True if the other end has said that nothing more comes: its wire may stay open.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// True if the last call of [`receive`](Self::receive) has stopped at many small records: more may be there, although
    /// the buffer is not full.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// True if there is something to receive that the wire does not report.
    pub fn has_received(&mut self) -> bool {
        match self.tls.process_new_packets() {
            Ok(state) => state.plaintext_bytes_to_read() > 0 || state.peer_has_closed(),
            Err(_) => true,
        }
    }

    /// Tells the other end that nothing more will be sent, if the wire takes that now.
    pub fn finish(&mut self) {
        if !self.is_broken {
            self.tls.send_close_notify();
            let _ = write_out(&mut self.tls, &self.wire);
        }
    }

    /// Receives from the wire and opens records into `buffer`.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Progress> {
        let mut source = Source::new(&self.wire);
        let read = self.tls.read_tls(&mut source);
        let is_drained = source.is_drained;
        let received = match source.end(read) {
            Progress::Bytes(received) => received,
            end => return Err(self.ended(end)),
        };
        self.open();
        Ok(Filled { received, taken: self.take(buffer), is_drained })
    }

    /// As [`fill`](Self::fill), with fewer calls of the kernel. `buffer` has room for all that comes, besides the record
    /// that had begun before.
    fn fill_much(&mut self, buffer: &mut [u8]) -> Result<Filled, Progress> {
        let mut bytes = [0; MUCH_BYTES];
        let received = match self.wire.receive(&mut bytes) {
            Progress::Bytes(received) => received,
            end => return Err(self.ended(end)),
        };
        let (mut left, mut taken) = (&bytes[..received], 0);
        while !left.is_empty() && !self.is_over {
            match self.tls.read_tls(&mut left) {
                Ok(_) => self.open(),
                Err(_) => self.fail(),
            }
            taken += self.take(&mut buffer[taken..]);
        }
        Ok(Filled { received, taken, is_drained: received < MUCH_BYTES })
    }

    /// Opens the records that are whole.
    fn open(&mut self) {
        match self.tls.process_new_packets() {
            Ok(state) => self.is_over |= state.peer_has_closed(),
            Err(_) => return self.fail(),
        }
        // An answer to the other side, which may wait for it before it asks for anything. What does not fit leaves before
        // the next reply.
        if self.held_bytes == 0 && self.tls.wants_write() {
            let _ = write_out(&mut self.tls, &self.wire);
        }
    }

    /// Moves opened bytes to `buffer`; returns their number.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let (mut reader, mut taken) = (self.tls.reader(), 0);
        while taken < buffer.len() {
            match reader.read(&mut buffer[taken..]) {
                Ok(read @ 1..) => taken += read,
                // None are there, or the other side has announced the end.
                _ => break,
            }
        }
        taken
    }

    /// Notes the end of the wire.
    fn ended(&mut self, end: Progress) -> Progress {
        self.is_over |= end == Progress::Closed;
        end
    }

    /// Ends the stream, because the other side has broken the protocol.
    #[cold]
    fn fail(&mut self) {
        self.broken.fetch_add(1, Relaxed);
        // The alert.
        let _ = write_out(&mut self.tls, &self.wire);
        (self.is_over, self.is_broken) = (true, true);
        self.wire.break_off();
    }
}

impl<W: Wire> Drop for Stream<W> {
    /// A client can tell the end from a cut.
    fn drop(&mut self) {
        self.finish();
    }
}

impl<W: Wire + AsFd> AsFd for Stream<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// Seals the next bytes of `pieces`, from `at` on; returns their number.
fn seal(tls: &mut ServerConnection, pieces: &[IoSlice<'_>], mut at: usize) -> io::Result<usize> {
    let mut rest = [IoSlice::new(&[]); PIECES_MAX];
    let mut count = 0;
    for piece in pieces {
        let skipped = at.min(piece.len());
        at -= skipped;
        if skipped < piece.len() && count < PIECES_MAX {
            rest[count] = IoSlice::new(&piece[skipped..]);
            count += 1;
        }
    }
    match &rest[..count] {
        [piece] => tls.writer().write(piece),
        pieces => tls.writer().write_vectored(pieces),
    }
}

/// Sends all records, or else says why not.
pub(crate) fn write_out(tls: &mut ServerConnection, wire: &impl Wire) -> Progress {
    while tls.wants_write() {
        match tls.write_tls(&mut Sink(wire)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Blocked,
            Err(_) => return Progress::Closed,
        }
    }
    Progress::Bytes(0)
}

/// Receives once into the connection's own buffer.
pub(crate) fn receive_once(tls: &mut ServerConnection, wire: &impl Wire) -> Progress {
    let mut source = Source::new(wire);
    let received = tls.read_tls(&mut source);
    source.end(received)
}

/// A wire, as rustls reads it.
struct Source<'a, W> {
    wire: &'a W,
    last: Progress,
    /// The wire had less than was asked for.
    is_drained: bool,
}

impl<'a, W: Wire> Source<'a, W> {
    fn new(wire: &'a W) -> Self {
        Self { wire, last: Progress::Closed, is_drained: false }
    }

    /// What came of a read by rustls.
    fn end(self, received: io::Result<usize>) -> Progress {
        match received {
            Ok(bytes @ 1..) => Progress::Bytes(bytes),
            Err(_) if self.last == Progress::Blocked => Progress::Blocked,
            _ => Progress::Closed,
        }
    }
}

impl<W: Wire> Read for Source<'_, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.last = self.wire.receive(buffer);
        match self.last {
            Progress::Bytes(bytes) => {
                self.is_drained = bytes < buffer.len();
                Ok(bytes)
            }
            Progress::Blocked => Err(ErrorKind::WouldBlock.into()),
            Progress::Closed => Ok(0),
        }
    }
}

/// A wire, as rustls writes it.
struct Sink<'a, W>(&'a W);

impl<W: Wire> Write for Sink<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.send_pieces(pieces) {
            Progress::Bytes(sent) => Ok(sent),
            Progress::Blocked => Err(ErrorKind::WouldBlock.into()),
            Progress::Closed => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
