//! The lookup of a key ahead of the execution of its command.

use minos_base::KeyHash;
use minos_engine::{Engine, Mode, Staged};
use minos_proto::memcache::{Command, KeyBuffer};

/// The lookup of a command's first key, made before the command is executed.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    /// The key's hash, by which buckets and items of a burst can be prefetched.
    pub(super) hash: KeyHash,
    /// The content of the key's bucket, if it was read already.
    pub(super) staged: Option<Staged<'a>>,
}

impl<'a> Lookup<'a> {
    /// The lookup of a command; `None` if it has no key.
    #[inline]
    pub(super) fn of<M: Mode>(store: &Engine<M>, command: &Command<'_>) -> Option<Self> {
        let mut buffer = KeyBuffer::default();
        command.request.key().map(|key| Self::of_key(store, key.bytes(&mut buffer)))
    }

    /// The lookup of a key.
    #[inline]
    pub(super) fn of_key<M: Mode>(store: &Engine<M>, key: &[u8]) -> Self {
        Self { hash: store.hash(key), staged: None }
    }

    /// The content of the key's bucket.
    #[inline]
    pub(super) fn staged<M: Mode>(&self, store: &'a Engine<M>) -> Staged<'a> {
        self.staged.unwrap_or_else(|| store.stage(self.hash))
    }
}
