//! Whom an answer goes to.

use std::net::SocketAddr;

use minos_proto::native::{HEADER_BYTES, Header, Kind, RECORD_ALIGN, REPLY_HEAD_BYTES};

/// Whom an answer goes to, and what stands in its header.
///
/// Taken from a request whose cookie and, where there is a secret, tag were right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTo {
    /// The client.
    pub(crate) peer: SocketAddr,
    /// The header of the reply; other kinds of answers differ in the kind, length and count. The session is the
    /// client's, or 0.
    pub(crate) header: Header,
    /// Largest datagram, in bytes, that both sides take.
    pub(crate) datagram_bytes_max: usize,
    /// Tells the datagrams of a burst apart: what answers the same one goes into one datagram as far as it fits.
    pub(crate) number: u32,
}

impl AnswerTo {
    /// The header of an answer of another kind.
    pub(crate) fn header_of(&self, kind: Kind) -> Header {
        Header { kind, ..self.header }
    }

    /// Longest value, in bytes, that a reply may carry.
    pub(crate) fn value_bytes_max(&self) -> usize {
        let records_bytes = self.datagram_bytes_max - HEADER_BYTES - self.header.tag_bytes();
        // What pads the record needs room as well.
        records_bytes / RECORD_ALIGN * RECORD_ALIGN - REPLY_HEAD_BYTES
    }
}
