//! The look-up of a key, ahead of the command that needs it.

use minos_base::KeyHash;
use minos_engine::{Engine, Mode, Staged, StagedOwned};

use super::context::Context;
use crate::rack::{Intent, Owner};

/// The lookup of a command's first key, made before the command is executed.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    /// The key's hash, by which buckets and items of a burst can be prefetched.
    pub(crate) hash: KeyHash,
    /// The content of the key's bucket, if it was read already.
    pub(crate) staged: Option<Staged<'a>>,
    /// The other node of the rack that owns the key.
    pub(crate) owner: Option<Owner>,
    /// As `staged`, in that node's memory.
    pub(crate) staged_there: Option<StagedOwned<'a>>,
}

/// Each form of the protocol has a loop of its own for its bursts, so the compiler has to be told that these belong there.
impl<'a> Lookup<'a> {
    #[inline(always)]
    pub(crate) fn of<M: Mode, P>(
        cx: &Context<'_, M, P>,
        key: &[u8],
        intent: impl FnOnce() -> Intent,
    ) -> Self {
        let hash = cx.store.hash(key);
        let owner = cx.rack.and_then(|rack| rack.elsewhere(key, intent));
        Self { hash, staged: None, owner, staged_there: None }
    }

    /// Asks for the cache line in which the key's item is looked up.
    #[inline(always)]
    pub(crate) fn prefetch<M: Mode, P>(&self, cx: &Context<'_, M, P>) {
        match (self.owner, cx.rack) {
            (Some(owner), Some(rack)) => rack.prefetch(owner, self.hash),
            _ => cx.store.prefetch_bucket(self.hash),
        }
    }

    /// Reads the content of the key's bucket and asks for the item.
    #[inline(always)]
    pub(crate) fn stage<M: Mode, P>(&mut self, cx: &Context<'a, M, P>) {
        match (self.owner, cx.rack) {
            (Some(owner), Some(rack)) => self.staged_there = rack.stage(owner, self.hash),
            _ => self.staged = Some(cx.store.stage(self.hash)),
        }
    }

    /// The content of the key's bucket.
    #[inline]
    pub(crate) fn staged<M: Mode>(&self, store: &'a Engine<M>) -> Staged<'a> {
        self.staged.unwrap_or_else(|| store.stage(self.hash))
    }
}
