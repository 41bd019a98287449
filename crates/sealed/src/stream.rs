//! A sealed stream that never blocks.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
};

use minos_net::{Progress, Wire};
use snow::{HandshakeState, TransportState};

use crate::{
    Refusal,
    keys::{ANSWER_BYTES, Ends, Keys, PROOF_BYTES, TAG_BYTES},
};

/// Most bytes that one frame seals.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of the length before a frame.
const HEAD_BYTES: usize = 2;
const FRAME_BYTES_MAX: usize = HEAD_BYTES + PAYLOAD_BYTES_MAX + TAG_BYTES;
/// Bytes received and not opened yet, at most.
const INPUT_BYTES: usize = 2 * FRAME_BYTES_MAX;

/// A sealed stream over `W`. Its calls never block.
#[derive(Debug)]
pub struct Sealed<W> {
    wire: W,
    state: State,
    input: Input,
    /// Bytes opened and not taken by the caller yet.
    opened: Queue,
    /// Bytes sealed and not sent yet: the call, the proof, or one frame.
    output: Queue,
    /// The caller's bytes in `output`, which count as sent when all of it is.
    held_bytes: usize,
    /// For a frame whose bytes come from several pieces.
    gathered: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Waits for the answer to its call.
    Calling(Box<HandshakeState>),
    Open(Box<TransportState>),
    /// The other end has broken the protocol.
    Broken,
}

/// Bytes received.
#[derive(Debug)]
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Bytes with a position up to which they are consumed.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    start: usize,
}

impl<W: Wire> Sealed<W> {
    /// Opens a stream: its handshake goes on with each call below.
    ///
    /// # Errors
    /// There is no secret, or the kernel has no random bytes.
    pub fn connect(wire: W, keys: &Keys, ends: Ends) -> io::Result<Self> {
        let (state, call) = keys.call(ends).ok_or_else(|| io::Error::other("no handshake can begin"))?;
        let mut stream = Self::new(wire, State::Calling(Box::new(state)), ANSWER_BYTES);
        stream.output.bytes.extend_from_slice(&call);
        Ok(stream)
    }

    /// A stream whose other end has proven to know the secret.
    pub(crate) fn open(wire: W, transport: Box<TransportState>) -> Self {
        Self::new(wire, State::Open(transport), INPUT_BYTES)
    }

    fn new(wire: W, state: State, input_bytes: usize) -> Self {
        Self {
            wire,
            state,
            input: Input { bytes: vec![0; input_bytes], start: 0, end: 0 },
            opened: Queue::default(),
            output: Queue::default(),
            held_bytes: 0,
            gathered: Vec::new(),
        }
    }

    /// The wire below.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// True once the other end has proven to know the secret. None of the caller's bytes has left before.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// True if bytes wait for room in the wire, so that its owner waits for that.
    pub fn wants_to_send(&self) -> bool {
        !self.output.is_empty()
    }

    /// True if the last frame received is not whole yet.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.input.start < self.input.end
    }

    /// Receives into `buffer`. Fewer bytes than it holds are the last for now, as of a socket.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Progress {
        match self.advance() {
            Progress::Bytes(_) => {}
            other => return other,
        }
        let (mut done, mut is_drained) = (0, false);
        let end = loop {
            done += self.opened.take(&mut buffer[done..]);
            if done == buffer.len() {
                return Progress::Bytes(done);
            }
            match self.open_frame(&mut buffer[done..]) {
                Ok(Some(opened)) => done += opened,
                Ok(None) if is_drained => break Progress::Blocked,
                Ok(None) => match self.input.fill(&self.wire) {
                    Progress::Bytes(_) => is_drained = self.input.end < self.input.bytes.len(),
                    other => break other,
                },
                Err(_) => {
                    self.break_off();
                    break Progress::Closed;
                }
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
        match self.advance() {
            Progress::Bytes(_) => {}
            other => return other,
        }
        let total = pieces.iter().map(|piece| piece.len()).sum();
        let mut done = 0;
        loop {
            match self.output.send(&self.wire) {
                Progress::Bytes(_) => done += std::mem::take(&mut self.held_bytes),
                Progress::Blocked if done > 0 => return Progress::Bytes(done),
                other => return other,
            }
            if done >= total {
                // More only if the caller has forgotten bytes that are sent.
                return if done == total { Progress::Bytes(done) } else { Progress::Closed };
            }
            if self.seal_frame(pieces, done).is_err() {
                self.break_off();
                return Progress::Closed;
            }
        }
    }

    /// Goes on with the handshake; bytes mean that the stream is open.
    fn advance(&mut self) -> Progress {
        const OPEN: Progress = Progress::Bytes(0);
        match &self.state {
            State::Open(_) if self.held_bytes > 0 || self.output.is_empty() => return OPEN,
            State::Broken => return Progress::Closed,
            _ => {}
        }
        match self.output.send(&self.wire) {
            Progress::Bytes(_) => {}
            other => return other,
        }
        if self.is_open() {
            return OPEN;
        }
        while self.input.end < ANSWER_BYTES {
            match self.input.fill(&self.wire) {
                Progress::Bytes(_) => {}
                other => return other,
            }
        }
        if self.prove().is_err() {
            self.break_off();
            return Progress::Closed;
        }
        self.output.send(&self.wire)
    }

    /// Checks the answer, and composes the proof.
    fn prove(&mut self) -> Result<(), Refusal> {
        let State::Calling(mut state) = std::mem::replace(&mut self.state, State::Broken) else {
            return Err(Refusal::Unproven);
        };
        state.read_message(&self.input.bytes, &mut []).map_err(|_| Refusal::Unproven)?;
        let mut transport = Box::new(state.into_transport_mode().map_err(|_| Refusal::Unproven)?);
        self.input = Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 };
        self.output.seal(&mut transport, &[])?;
        debug_assert_eq!(self.output.bytes.len(), PROOF_BYTES);
        self.state = State::Open(transport);
        Ok(())
    }

    /// Opens the next frame if it is whole: into `buffer`, or else into `opened`, if the buffer is too small. Returns the
    /// bytes in the buffer.
    fn open_frame(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Refusal> {
        let State::Open(transport) = &mut self.state else { return Err(Refusal::Unproven) };
        let received = &self.input.bytes[self.input.start..self.input.end];
        let Some((head, rest)) = received.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let sealed_bytes = usize::from(u16::from_le_bytes(*head));
        let payload_bytes = sealed_bytes.wrapping_sub(TAG_BYTES);
        if !(1..=PAYLOAD_BYTES_MAX).contains(&payload_bytes) {
            return Err(Refusal::Unproven);
        }
        let Some(sealed) = rest.get(..sealed_bytes) else { return Ok(None) };
        let is_direct = payload_bytes <= buffer.len();
        let target = if is_direct { &mut buffer[..payload_bytes] } else { self.opened.room(payload_bytes) };
        transport.read_message(sealed, target).map_err(|_| Refusal::Unproven)?;
        self.input.consume(HEAD_BYTES + sealed_bytes);
        Ok(Some(if is_direct { payload_bytes } else { 0 }))
    }

    /// Seals the next bytes of `pieces`, from `at` on, as a frame.
    fn seal_frame(&mut self, pieces: &[IoSlice<'_>], mut at: usize) -> Result<(), Refusal> {
        let State::Open(transport) = &mut self.state else { return Err(Refusal::Unproven) };
        self.gathered.clear();
        for (number, piece) in pieces.iter().enumerate() {
            let skipped = at.min(piece.len());
            at -= skipped;
            let room = PAYLOAD_BYTES_MAX - self.gathered.len();
            let part = &piece[skipped..][..room.min(piece.len() - skipped)];
            let is_all = part.len() == room || number + 1 == pieces.len();
            if self.gathered.is_empty() && is_all {
                self.held_bytes = part.len();
                return self.output.seal(transport, part);
            }
            self.gathered.extend_from_slice(part);
            if is_all {
                break;
            }
        }
        self.held_bytes = self.gathered.len();
        self.output.seal(transport, &self.gathered)
    }

    /// Ends the stream.
    pub(crate) fn break_off(&mut self) {
        self.state = State::Broken;
        self.wire.break_off();
    }
}

impl<W: AsFd> AsFd for Sealed<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Input {
    /// Receives as many bytes as there is room for.
    fn fill(&mut self, wire: &impl Wire) -> Progress {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let progress = wire.receive(&mut self.bytes[self.end..]);
        if let Progress::Bytes(received) = progress {
            self.end += received;
        }
        progress
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    /// Empties it, and makes room for so many bytes.
    fn room(&mut self, count: usize) -> &mut [u8] {
        self.start = 0;
        self.bytes.resize(count, 0);
        &mut self.bytes
    }

    /// Moves bytes to `buffer`; returns their number.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let left = &self.bytes[self.start..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.start += count;
        count
    }

    /// Seals `payload` as a frame in place of what was there.
    fn seal(&mut self, transport: &mut TransportState, payload: &[u8]) -> Result<(), Refusal> {
        let sealed_bytes = payload.len() + TAG_BYTES;
        let frame = self.room(HEAD_BYTES + sealed_bytes);
        let (head, sealed) = frame.split_at_mut(HEAD_BYTES);
        head.copy_from_slice(&(sealed_bytes as u16).to_le_bytes());
        // Only a number of messages that no stream reaches is an error.
        transport.write_message(payload, sealed).map(|_| ()).map_err(|_| Refusal::Unproven)
    }

    /// Sends all bytes, or else says why not.
    fn send(&mut self, wire: &impl Wire) -> Progress {
        while !self.is_empty() {
            match wire.send(&self.bytes[self.start..]) {
                Progress::Bytes(sent) => self.start += sent,
                other => return other,
            }
        }
        Progress::Bytes(0)
    }
}
