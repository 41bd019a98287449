//! Streams between the nodes of a rack that prove to each other that they know a secret, and seal all bytes.
//!
//! The Noise protocol, pattern NNpsk0: the secret authenticates both ends, and fresh keys for each stream make it
//! forward secret. The rack's name, the purpose of the stream and the numbers of both nodes are part of what is proven.
//!
//! ```text
//!  opener                                    accepter
//!    call    mark "MNS\x01", id of the secret, purpose, opener's number (2), Noise message 1 (48)   ──►
//!            ◄──   answer    Noise message 2 (48)
//!    proof   a frame without bytes (18)   ──►
//!    frames in both directions:  length of what follows (2, little endian), sealed bytes and their tag (16)
//! ```
//!
//! A call that is replayed gets an answer, of which nobody can make a proof. Before the proof the accepter keeps 56
//! bytes and a small state, and takes no others. A [`Sealed`] stream never blocks, a [`Blocking`] one waits, and a [`Duplex`]
//! has a thread for each direction. The end of a stream is not sealed: whoever must know that a message is whole sends its
//! length.

#![forbid(unsafe_code)]

mod blocking;
mod duplex;
mod incoming;
mod keys;
mod stream;
#[cfg(test)]
mod tests;

pub use blocking::Blocking;
pub use duplex::Duplex;
pub use incoming::Incoming;
pub use keys::{Ends, Keys, Purpose};
pub use stream::{PAYLOAD_BYTES_MAX, Sealed};

/// Why a stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The first bytes are no call of this purpose.
    #[error("the other end does not speak as a node that has a secret")]
    Stranger,
    /// The other end names a secret that is not known here.
    #[error("the other end has another secret")]
    Secret,
    /// The proof is wrong.
    #[error("the other end has another secret, or is of another rack, or takes this node for another")]
    Unproven,
    /// The stream ended before the proof.
    #[error("the other end closed before it had proven to know the secret")]
    Gone,
}
