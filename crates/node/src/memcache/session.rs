//! What the memcached protocol keeps of a connection between two visits.

use minos_proto::memcache::{BINARY_MAGIC, Limits, Resume};

/// The memcached protocol's state of one connection.
pub(crate) struct MemcacheSession {
    pub(crate) limits: Limits,
    /// Bytes of replies after which they are sent before another request is executed.
    pub(crate) replies_bytes_max: usize,
    /// Bytes still to be received and discarded: the value of a refused storage command.
    pub(super) swallow_bytes: u64,
    /// The rest of a multi-key GET that has paused.
    pub(super) resume: Option<Resume>,
    /// Where a partly sent `stats conns` continues: the number of a connection.
    pub(super) listed: Option<u64>,
    /// A command since the last reply may have changed something, in a store above flash.
    pub(crate) has_changed: bool,
    /// True once the client has sent anything.
    has_spoken: bool,
}

impl MemcacheSession {
    /// The state of a connection that has not sent anything yet.
    pub(crate) fn new(limits: Limits, replies_bytes_max: usize) -> Self {
        Self {
            limits,
            replies_bytes_max,
            swallow_bytes: 0,
            resume: None,
            listed: None,
            has_changed: false,
            has_spoken: false,
        }
    }

    /// True if `input`, the first bytes of a connection, belongs to memcached's binary protocol.
    #[inline]
    pub(crate) fn begins_binary(&mut self, input: &[u8]) -> bool {
        !std::mem::replace(&mut self.has_spoken, true) && input.first() == Some(&BINARY_MAGIC)
    }

    /// Discards the bytes of a refused value at the front of `input`; returns their number.
    pub(super) fn swallow(&mut self, input: &[u8]) -> usize {
        let swallowed = self.swallow_bytes.min(input.len() as u64);
        self.swallow_bytes -= swallowed;
        swallowed as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_value_is_discarded_and_nothing_behind_it() {
        let limits = Limits { value_bytes_max: 1000, line_bytes_max: 1000 };
        let mut session = MemcacheSession { swallow_bytes: 7, ..MemcacheSession::new(limits, 1000) };
        assert_eq!(session.swallow(b"valu"), 4);
        assert_eq!(session.swallow(b"e\r\nget a\r\n"), 3);
        assert_eq!(session.swallow(b"get a\r\n"), 0);
    }
}
