//! Reads in stages, so that the cache misses of several overlap. The caller runs each stage for all keys of a
//! burst before the next.

use super::{Answer, ReadOnly, Tenure};
use crate::{
    burst::Get,
    candidate::{Attempt, Staged},
    item::ItemView,
    mode::Mode,
};
use minos_base::{KeyHash, Seconds};

/// As [`Staged`], for a key of a micro-shard.
#[derive(Clone, Copy, Debug)]
pub struct StagedOwned<'a> {
    micro_shard: u32,
    /// Older than the candidate: a restart may change chains without their versions.
    tenure: Option<Tenure<'a>>,
    staged: Staged<'a>,
}

impl<M: Mode> ReadOnly<M> {
    /// Stage 1: as [`crate::Engine::prefetch_bucket`].
    #[inline]
    pub fn prefetch_bucket(&self, hash: KeyHash) {
        self.reader(hash).prefetch_bucket(hash);
    }

    /// Stage 2: as [`crate::Engine::stage`].
    #[inline]
    pub fn stage(&self, hash: KeyHash) -> Staged<'_> {
        let reader = self.reader(hash);
        reader.stage(reader.head(hash), hash)
    }

    /// Stage 3: as [`ReadOnly::read`], with the result of [`ReadOnly::stage`] for the same key.
    #[inline]
    pub fn read_staged<R>(
        &self,
        staged: &Staged<'_>,
        get: &Get<'_>,
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Answer<R> {
        match self.attempt_staged(staged, get, now, &mut f) {
            Attempt::Found(result) => result.map_or(Answer::AskOwner, Answer::Found),
            Attempt::Missing | Attempt::Disturbed => self.read(get.hash, get.key, now, f),
        }
    }

    /// Stage 2: as [`ReadOnly::stage`], for a key of this micro-shard.
    #[inline]
    pub fn stage_owned(&self, micro_shard: u32, hash: KeyHash) -> StagedOwned<'_> {
        let tenure = self.tenure(micro_shard);
        StagedOwned { micro_shard, tenure, staged: self.stage(hash) }
    }

    /// Stage 3: as [`ReadOnly::read_owned`], with the result of [`ReadOnly::stage_owned`] for the same key.
    #[inline]
    pub fn read_staged_owned<R>(
        &self,
        staged: &StagedOwned<'_>,
        get: &Get<'_>,
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>) -> R,
    ) -> Answer<R> {
        let attempt = match staged.tenure {
            Some(tenure) => tenure.cover(self.attempt_staged(&staged.staged, get, now, &mut f)),
            None => Attempt::Disturbed,
        };
        match attempt {
            Attempt::Found(result) => result.map_or(Answer::AskOwner, Answer::Found),
            Attempt::Missing | Attempt::Disturbed => {
                self.read_owned(staged.micro_shard, get.hash, get.key, now, f)
            }
        }
    }

    /// As `attempt`, for the candidate of an earlier stage. Only what it finds counts.
    #[inline]
    fn attempt_staged<R>(
        &self,
        staged: &Staged<'_>,
        get: &Get<'_>,
        now: Seconds,
        f: &mut impl FnMut(&ItemView<'_>) -> R,
    ) -> Attempt<Option<R>> {
        let Some(candidate) = staged.candidate else { return Attempt::Disturbed };
        let reader = self.reader(get.hash);
        if !reader.is_large(candidate.slot) {
            let seen = reader.glance(&candidate, get.key, now, f);
            return seen.map_or(Attempt::Disturbed, |(result, _)| Attempt::Found(Some(result)));
        }
        let Some(state) = reader.header_for(&candidate, get.key, now) else { return Attempt::Disturbed };
        Self::finish(reader, get.hash, &candidate, state, f)
    }
}
