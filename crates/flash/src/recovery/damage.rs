//! What a session leaves, and what the next start misses of it.

use super::Recovered;
use crate::{
    format::{Held, Journal, Layout, PAGE_BYTES, Seal, Superblock, Use},
    work::Work,
};

const JOURNAL_COPIES: u64 = 2;

/// What verified once, and does not any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Segments in which something does not.
    pub segments: u64,
    /// Pages of these that do not verify.
    pub pages: u64,
    /// Items that the table had, if the session before ended with a clean stop.
    pub items: Option<u64>,
}

impl Damage {
    /// Compares what segments hold `now` with what the journal says. `None`: all is there.
    pub(super) fn between(journal: &Journal, now: &[Held], layout: Layout) -> Option<Self> {
        let segment_pages = layout.segment_bytes() / PAGE_BYTES as u32;
        let missing = journal.held.iter().zip(now).map(|held| match held {
            (Held::Sealed, Held::Pages(pages)) => segment_pages - u32::from(*pages),
            (Held::Pages(before), Held::Pages(pages)) => u32::from(before.saturating_sub(*pages)),
            _ => 0,
        });
        let missing = missing.filter(|pages| *pages > 0);
        let (segments, pages) =
            missing.fold((0, 0), |(segments, all), pages| (segments + 1, all + u64::from(pages)));
        (segments > 0).then_some(Self { segments, pages, items: journal.items.map(u64::from) })
    }
}

impl Recovered {
    /// The number of a journal that says that all was durable at the end of a session with so many `items`, and the work
    /// that writes it, step by step. Nothing else may be written before the next session.
    ///
    /// The journal in force stays where it is: a power loss leaves one of the two.
    pub fn last_journal(&self, superblock: &Superblock, items: u64) -> (u64, Vec<Vec<Work>>) {
        let (layout, seal) = (superblock.layout, Seal::new(superblock.seed));
        let held = self.journal.uses.iter().zip(&self.held).map(|(used, held)| match used {
            // The device failed there: it may have lost what it still gives.
            Use::Failing(_) => Held::Unknown,
            _ => *held,
        });
        let journal = Journal {
            number: self.journal.number + 1,
            items: Some(items.min(u64::from(u32::MAX - 1)) as u32),
            held: held.collect(),
            ..self.journal.clone()
        };
        let write = |copy| {
            let at = layout.journal_at(journal.number, copy);
            let bytes = journal.encode(seal, at, layout.journal_bytes() as usize);
            Work::Write { at, bytes }
        };
        (journal.number, vec![(0..JOURNAL_COPIES).map(write).collect(), vec![Work::Flush]])
    }
}
