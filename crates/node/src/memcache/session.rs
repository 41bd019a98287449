//! What the memcached protocol keeps of a connection between two visits.

use minos_proto::memcache::Resume;

/// The memcached protocol's state of one connection.
#[derive(Default)]
pub(crate) struct MemcacheSession {
    /// Bytes still to be received and discarded: the value of a refused storage command.
    pub(crate) swallow_bytes: u64,
    /// The rest of a multi-key GET whose last key was large.
    pub(crate) resume: Option<Resume>,
    /// Where a partly sent `stats conns` continues: the number of a connection.
    pub(crate) listed: Option<u64>,
    /// True once the client has sent anything.
    pub(crate) has_spoken: bool,
}

impl MemcacheSession {
    /// Discards the bytes of a refused value at the front of `input`; returns their number.
    pub(crate) fn swallow(&mut self, input: &[u8]) -> usize {
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
        let mut session = MemcacheSession { swallow_bytes: 7, ..MemcacheSession::default() };
        assert_eq!(session.swallow(b"valu"), 4);
        assert_eq!(session.swallow(b"e\r\nget a\r\n"), 3);
        assert_eq!(session.swallow(b"get a\r\n"), 0);
    }
}
