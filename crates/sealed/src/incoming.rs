//! The accepting side of a handshake, with no more memory than it needs before the proof.

use std::os::fd::{AsFd, BorrowedFd};

use minos_net::{Progress, Wire};
use snow::TransportState;

use crate::{
    Ends, Keys, Purpose, Refusal, Sealed,
    keys::{ANSWER_BYTES, CALL_BYTES, PROOF_BYTES, TAG_BYTES},
};

/// A stream whose other end has not yet proven to know the secret.
#[derive(Debug)]
pub struct Incoming<W> {
    wire: W,
    /// The call, and then the proof.
    bytes: [u8; CALL_BYTES],
    received: usize,
    answered: Option<Answered>,
}

/// A call that is answered.
#[derive(Debug)]
struct Answered {
    transport: Box<TransportState>,
    answer: [u8; ANSWER_BYTES],
    sent: usize,
    ends: Ends,
}

impl<W: Wire> Incoming<W> {
    /// A stream that was just accepted.
    pub fn new(wire: W) -> Self {
        Self { wire, bytes: [0; CALL_BYTES], received: 0, answered: None }
    }

    /// Goes on with the handshake; true once the other end has proven to know a secret of `keys`, and that it is of the
    /// same rack, takes this end for the node `to` and wants one of `purposes`. The caller bounds the time.
    ///
    /// # Errors
    /// The other end is refused: the stream is to be dropped.
    pub fn advance(&mut self, keys: &Keys, (purposes, to): (&[Purpose], u16)) -> Result<bool, Refusal> {
        if self.answered.is_none() {
            if !self.receive(CALL_BYTES)? {
                return Ok(false);
            }
            let (transport, answer, ends) = keys.answer(&self.bytes, (purposes, to))?;
            self.answered = Some(Answered { transport: Box::new(transport), answer, sent: 0, ends });
            self.received = 0;
        }
        if !self.send_answer()? || !self.receive(PROOF_BYTES)? {
            return Ok(false);
        }
        let Some(Answered { transport, .. }) = &mut self.answered else { return Ok(false) };
        let (head, sealed) = self.bytes[..PROOF_BYTES].split_at(PROOF_BYTES - TAG_BYTES);
        let is_frame = head == (TAG_BYTES as u16).to_le_bytes();
        if is_frame && transport.read_message(sealed, &mut []).is_ok() {
            return Ok(true);
        }
        Err(Refusal::Unproven)
    }

    /// The stream, and what its opener has proven of its ends, once [`advance`](Self::advance) has returned true;
    /// `None` before the call is answered.
    pub fn open(self) -> Option<(Sealed<W>, Ends)> {
        let Answered { transport, ends, .. } = self.answered?;
        Some((Sealed::open(self.wire, transport), ends))
    }

    /// True if the answer waits for room in the wire.
    pub fn wants_to_send(&self) -> bool {
        self.answered.as_ref().is_some_and(|answered| answered.sent < ANSWER_BYTES)
    }

    /// The wire below.
    pub fn wire(&self) -> &W {
        &self.wire
    }

    /// Receives the first `wanted` bytes and none behind them; true if they are there.
    fn receive(&mut self, wanted: usize) -> Result<bool, Refusal> {
        while self.received < wanted {
            match self.wire.receive(&mut self.bytes[self.received..wanted]) {
                Progress::Bytes(received) => self.received += received,
                Progress::Blocked => return Ok(false),
                Progress::Closed => return Err(Refusal::Gone),
            }
        }
        Ok(true)
    }

    fn send_answer(&mut self) -> Result<bool, Refusal> {
        let Some(Answered { answer, sent, .. }) = &mut self.answered else { return Ok(false) };
        while *sent < ANSWER_BYTES {
            match self.wire.send(&answer[*sent..]) {
                Progress::Bytes(bytes) => *sent += bytes,
                Progress::Blocked => return Ok(false),
                Progress::Closed => return Err(Refusal::Gone),
            }
        }
        Ok(true)
    }
}

impl<W: AsFd> AsFd for Incoming<W> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}
