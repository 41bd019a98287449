//! The secrets of a rack, and the handshake without I/O.

use std::{fmt, sync::Arc};

use minos_proto::native::Secret;
use snow::{Builder, HandshakeState, TransportState};

use crate::Refusal;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const KEY_PURPOSE: &str = "minos rack link 1: pre-shared key";
const MARK: [u8; 4] = *b"MNS\x01";
/// Bytes of the mark, the secret's id, the purpose and the opener's number.
const PREAMBLE_BYTES: usize = MARK.len() + 4;
/// Bytes of a tag.
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of an answer: an ephemeral key and a tag.
pub(crate) const ANSWER_BYTES: usize = 32 + TAG_BYTES;
/// Bytes of a call.
pub(crate) const CALL_BYTES: usize = PREAMBLE_BYTES + ANSWER_BYTES;
/// Bytes of a proof: the length of a frame, and its tag.
pub(crate) const PROOF_BYTES: usize = 2 + TAG_BYTES;

/// What a stream is for: one that was opened for another purpose is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Commands that a node forwards to another, behind a first line. Without that, they were number 1.
    Commands = 4,
    /// Packets of nodes, the coordinator and its operators, and items that move to another node.
    Control = 2,
    /// What a node must know to read another's memory.
    Memory = 3,
}

/// The two ends of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// What it is for.
    pub purpose: Purpose,
    /// Number of the node that opens it.
    pub from: u16,
    /// Number of the node that accepts it.
    pub to: u16,
}

/// The secrets that the nodes of one rack share.
#[derive(Clone)]
pub struct Keys {
    rack: Arc<str>,
    /// Each with its id; the first one seals the streams that are opened here.
    keys: Arc<[(u8, [u8; Secret::BYTES])]>,
}

impl Keys {
    /// The keys that `secrets` give for streams of the rack of this name. Streams are opened with the first one and
    /// accepted with any, so that a secret can be replaced node by node. Without any, no stream is opened or accepted.
    pub fn new(rack: &str, secrets: &[Secret]) -> Self {
        let key = |secret: &Secret| (secret.id(), secret.key_for(KEY_PURPOSE));
        Self { rack: rack.into(), keys: secrets.iter().map(key).collect() }
    }

    /// Begins a handshake: the state that reads the answer, and the call.
    pub(crate) fn call(&self, ends: Ends) -> Option<(HandshakeState, [u8; CALL_BYTES])> {
        let (id, key) = self.keys.first()?;
        let prologue = self.prologue(*id, ends);
        let mut state = builder(key, &prologue)?.build_initiator().ok()?;
        let mut call = [0; CALL_BYTES];
        let [from, to] = ends.from.to_le_bytes();
        call[..MARK.len()].copy_from_slice(&MARK);
        call[MARK.len()..PREAMBLE_BYTES].copy_from_slice(&[*id, ends.purpose as u8, from, to]);
        let written = state.write_message(&[], &mut call[PREAMBLE_BYTES..]).ok()?;
        (written == ANSWER_BYTES).then_some((state, call))
    }

    /// Answers a call to the node `to` for one of `purposes`: the state for frames, the answer, and the ends of the
    /// stream, which only the opener's proof confirms.
    pub(crate) fn answer(
        &self,
        call: &[u8; CALL_BYTES],
        (purposes, to): (&[Purpose], u16),
    ) -> Result<(TransportState, [u8; ANSWER_BYTES], Ends), Refusal> {
        let (preamble, message) = call.split_at(PREAMBLE_BYTES);
        let Some(&[id, named, low, high]) = preamble.strip_prefix(&MARK) else {
            return Err(Refusal::Stranger);
        };
        let purpose = purposes.iter().copied().find(|purpose| *purpose as u8 == named);
        let purpose = purpose.ok_or(Refusal::Stranger)?;
        let (_, key) = self.keys.iter().find(|(known, _)| *known == id).ok_or(Refusal::Secret)?;
        let ends = Ends { purpose, from: u16::from_le_bytes([low, high]), to };
        let prologue = self.prologue(id, ends);
        let answer = || {
            let mut state = builder(key, &prologue)?.build_responder().ok()?;
            let mut answer = [0; ANSWER_BYTES];
            state.read_message(message, &mut []).ok()?;
            let written = state.write_message(&[], &mut answer).ok()?;
            let transport = state.into_transport_mode().ok()?;
            (written == ANSWER_BYTES).then_some((transport, answer, ends))
        };
        answer().ok_or(Refusal::Unproven)
    }

    /// What both ends must agree on.
    fn prologue(&self, id: u8, Ends { purpose, from, to }: Ends) -> Vec<u8> {
        let mut prologue = MARK.to_vec();
        prologue.extend([id, purpose as u8]);
        prologue.extend(from.to_le_bytes());
        prologue.extend(to.to_le_bytes());
        prologue.extend(self.rack.as_bytes());
        prologue
    }
}

fn builder<'a>(key: &'a [u8; Secret::BYTES], prologue: &'a [u8]) -> Option<Builder<'a>> {
    Builder::new(PATTERN.parse().ok()?).psk(0, key).ok()?.prologue(prologue).ok()
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<u8> = self.keys.iter().map(|(id, _)| *id).collect();
        write!(f, "Keys({}, {ids:?})", self.rack)
    }
}
