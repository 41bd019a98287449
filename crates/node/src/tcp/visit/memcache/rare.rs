//! Rare parts of a visit: the first bytes of a connection, invalid commands, and long lists.

use minos_engine::Mode;
use minos_net::Io;
use minos_proto::memcache::{BINARY_MAGIC, Malformed, text};

use super::Why;
use crate::{memcache::MemcacheSession, tcp::stream::Stream, worker::Worker};

/// Logged once when a client's protocol is not served.
const BINARY: &str = "a client speaks memcached's binary protocol, which is not served; its connections are closed. \
    Set it to the text (ASCII) protocol: `binary=False` in pylibmc, `OPT_BINARY_PROTOCOL` off and \
    `memcached.sess_binary_protocol = 0` in PHP; memjs and bmemcached know no other";

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// True if the first bytes of a connection, `input`, may belong to a text command.
    #[cold]
    pub(super) fn is_understood(&self, session: &mut MemcacheSession, stream: &Stream, input: &[u8]) -> bool {
        session.has_spoken = true;
        if input.first() != Some(&BINARY_MAGIC) {
            return true;
        }
        self.mine().metrics.binary_refused.add(1);
        let client = stream.peer_text();
        self.shared.binary_refused.call_once(|| tracing::warn!(client, "{BINARY}"));
        false
    }

    /// Replies to an invalid command.
    pub(super) fn refuse(&mut self, session: &mut MemcacheSession, malformed: &Malformed) -> Option<Why<M>> {
        self.transmit_buffer.extend_from_slice(malformed.reply);
        session.swallow_bytes = malformed.swallow;
        malformed.close.then_some(Why::Close)
    }

    /// Lists connections from where the last call stopped, up to the limit of composed replies; true if the
    /// list is complete. If not, the command must be executed again.
    #[cold]
    pub(super) fn list_connections(&mut self, session: &mut MemcacheSession) -> bool {
        let (from, tx) = (session.listed.unwrap_or(0), &mut self.transmit_buffer);
        session.listed = self.shared.list_connections(from, tx, self.replies_bytes_max);
        if session.listed.is_none() {
            tx.extend_from_slice(text::END);
        }
        session.listed.is_none()
    }
}
