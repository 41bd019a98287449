//! Makes a table.

use crate::{
    format::{Held, Journal, Life, Seal, Superblock, Use},
    work::Work,
};

/// The work that makes an empty table, step by step: the works of a step are independent, a step begins when
/// the one before is complete.
///
/// The superblock comes last: a table that was not made to the end is none. What is left of it is known as ours by the
/// marks that come first.
pub fn create(superblock: &Superblock) -> Vec<Vec<Work>> {
    let layout = superblock.layout;
    let journal = Journal {
        table: superblock.table,
        number: 0,
        next_life: Life(1),
        least_life: Life(1),
        items: None,
        uses: vec![Use::Free; layout.segments() as usize],
        held: vec![Held::Unknown; layout.segments() as usize],
    };
    let seal = Seal::new(superblock.seed);
    let len = layout.journal_bytes() as usize;
    let mut first: Vec<Work> = Vec::new();
    for copy in 0..2 {
        let at = layout.journal_at(journal.number, copy);
        first.push(Work::Write { at, bytes: journal.encode(seal, at, len) });
        // A journal of an earlier table with this seed is none of this one's.
        first.push(Work::Write { at: layout.journal_at(journal.number + 1, copy), bytes: vec![0; len] });
    }
    let superblocks = |page: Vec<u8>| {
        (0..2).map(|copy| Work::Write { at: layout.superblock_at(copy), bytes: page.clone() }).collect()
    };
    let (marks, last) = (superblocks(Superblock::unfinished()), superblocks(superblock.encode()));
    vec![marks, vec![Work::Flush], first, vec![Work::Flush], last, vec![Work::Flush]]
}
