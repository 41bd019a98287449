//! What the two forms of the memcached protocol, text and binary, answer to the same outcome.

use minos_base::StoreKind;
use minos_proto::memcache::{Command, Reply, Request, text};

use super::{meta_get, stored};
use crate::{
    ops::{AnswerStore, Failed, StoreOperation, Stored},
    rack::Forward,
};

/// The form of the replies to one command.
pub(super) trait Answer: Copy {
    /// Bytes of the line end behind a value that is received.
    const END_BYTES: usize;

    /// True if the request is a read that may be answered from the memory of the key's owner.
    fn is_read(self, request: &Request<'_>) -> bool;

    /// Appends the reply to a store.
    fn stored(self, stored: &Stored, operation: &StoreOperation, key: &[u8], tx: &mut Vec<u8>);

    /// The reply to a large store, as a function of its result.
    fn later(self) -> AnswerStore;

    /// Appends the reply to a store whose value is larger than the server allows.
    fn too_large(self, tx: &mut Vec<u8>);

    /// True if such a store of this kind drops the old item.
    fn drops_too_large(self, kind: StoreKind) -> bool;

    /// Appends the reply to a command whose item could not be fetched.
    fn failed(self, failed: Failed, tx: &mut Vec<u8>);

    /// Appends the reply to a command that another node has forwarded, or would have to: `line` of the text protocol.
    fn refused(self, line: &[u8], tx: &mut Vec<u8>);

    /// Appends the reply to a command that the connection's user may not use.
    fn denied(self, reason: &str, tx: &mut Vec<u8>);

    /// Completes the command that goes to another node. One without bytes goes as the client sent it, and its reply as
    /// it comes.
    ///
    /// # Errors
    /// The command has no such form; the line says so.
    fn forward(command: &Command<'_, Self>, forward: &mut Forward) -> Result<(), &'static [u8]>;
}

impl Answer for Reply<'_> {
    const END_BYTES: usize = text::LINE_END.len();

    #[inline]
    fn is_read(self, request: &Request<'_>) -> bool {
        match (request, self) {
            (Request::Get(get), Reply::Classic { .. }) => get.touch.is_none(),
            (Request::Get(get), Reply::Meta { flags, .. }) => {
                get.touch.is_none() && !meta_get::need_entry(flags)
            }
            _ => false,
        }
    }

    #[inline]
    fn stored(self, stored: &Stored, operation: &StoreOperation, key: &[u8], tx: &mut Vec<u8>) {
        stored::respond(stored, operation, key, self, tx);
    }

    fn later(self) -> AnswerStore {
        stored::answer_later(self)
    }

    fn too_large(self, tx: &mut Vec<u8>) {
        self.refused(text::TOO_LARGE, tx);
    }

    fn drops_too_large(self, kind: StoreKind) -> bool {
        kind == StoreKind::Set || matches!(self, Reply::Meta { .. })
    }

    fn failed(self, failed: Failed, tx: &mut Vec<u8>) {
        tx.extend_from_slice(failed_text(failed));
    }

    fn refused(self, line: &[u8], tx: &mut Vec<u8>) {
        if !self.is_silent() {
            tx.extend_from_slice(line);
        }
    }

    fn denied(self, reason: &str, tx: &mut Vec<u8>) {
        self.refused(format!("CLIENT_ERROR {reason}\r\n").as_bytes(), tx);
    }

    fn forward(command: &Command<'_, Self>, forward: &mut Forward) -> Result<(), &'static [u8]> {
        forward.is_silent = command.reply.is_silent();
        Ok(())
    }
}

/// The line for an item that could not be fetched.
pub(super) fn failed_text(failed: Failed) -> &'static [u8] {
    match failed {
        Failed::Unreadable => text::FLASH_UNREADABLE,
        Failed::NoMemory => text::NO_MEMORY_FETCHING,
    }
}
