//! Copies of chains, for whoever takes a micro-shard over from the owner of the table.

use super::{ATTEMPTS_MAX, Foreign, ReadOnly};
use crate::{
    candidate::Attempt,
    mode::Mode,
    visit::{ChainCopy, Named},
};
use minos_base::{KeyHash, Seconds};
use std::{thread, time::Duration};

/// Pauses after attempts that a writer disturbed, until it is taken for dead.
const PAUSES_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// A chain whose writer does not finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the owner of the table does not finish a write")]
pub struct Unfinished;

impl<M: Mode> ReadOnly<M> {
    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// As [`crate::Engine::visit`], with keys alone, and records on flash beside them: items that exist throughout are
    /// visited at least once, wherever they are.
    ///
    /// # Errors
    /// A writer does not finish within a tenth of a second.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn visit(
        &self,
        partition: usize,
        cursor: u64,
        buckets_max: usize,
        now: Seconds,
        mut f: impl FnMut(Named<'_>),
    ) -> Result<Option<u64>, Unfinished> {
        let reader = self.reader_at(partition);
        let buckets = reader.index.buckets(reader.region).min(reader.index.buckets_max());
        let end = buckets.min(cursor.saturating_add(buckets_max as u64));
        let mut copy = ChainCopy::default();
        for number in cursor..end {
            let head = reader.index.seek_number(reader.region, number);
            settled(|| reader.copy_chain(None, head, now, &mut copy))?;
            copy.named().for_each(&mut f);
        }
        Ok(reader.cursor_behind(cursor, end))
    }

    /// As [`crate::Engine::keys_with`], with the records on flash that may have this hash beside them.
    ///
    /// # Errors
    /// A writer does not finish within a tenth of a second.
    pub fn keys_with(&self, hash: KeyHash, now: Seconds, f: impl FnMut(Named<'_>)) -> Result<(), Unfinished> {
        let reader: Foreign<'_, M> = self.reader(hash);
        let mut copy = ChainCopy::default();
        settled(|| reader.copy_chain_of(None, hash, now, &mut copy))?;
        let may_be = |named: &Named<'_>| match named {
            Named::Key(key) => self.hash(key) == hash,
            Named::Record(slot) => slot.tag == hash.tag(),
        };
        copy.named().filter(may_be).for_each(f);
        Ok(())
    }
}

/// Repeats an attempt until no writer disturbs it.
fn settled(mut attempt: impl FnMut() -> Attempt<()>) -> Result<(), Unfinished> {
    for _ in 0..PAUSES_MAX {
        for _ in 0..ATTEMPTS_MAX {
            if let Attempt::Found(()) = attempt() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        thread::sleep(PAUSE);
    }
    Err(Unfinished)
}
