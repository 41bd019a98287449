//! The addressee of an answer.

use std::net::SocketAddr;

use minos_proto::native::{HEADER_BYTES, Header, Kind, RECORD_ALIGN, REPLY_HEAD_BYTES};

/// The addressee of an answer, and the content of its header.
///
/// Taken from a request with a valid cookie and, where there is a secret, a valid tag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTo {
    pub(crate) peer: SocketAddr,
    /// The header of a reply; other answers differ in kind, length and count. The session is the client's, or
    /// 0.
    pub(crate) header: Header,
    /// Largest datagram, in bytes, that both sides accept.
    pub(crate) datagram_bytes_max: usize,
    /// Number of the request's datagram in its burst; answers to the same datagram share one as far as they
    /// fit.
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
        // The record's padding needs room as well.
        records_bytes / RECORD_ALIGN * RECORD_ALIGN - REPLY_HEAD_BYTES
    }
}
