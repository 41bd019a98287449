//! What a node knows of each micro-shard, and which of them are open: it looks at those alone, because writes wait meanwhile.

use std::{
    collections::BTreeSet,
    ops::{Index, IndexMut},
};

use minos_rack::MicroShard;

use super::Shard;
use crate::Ownership;

/// All micro-shards, by number.
#[derive(Debug)]
pub(super) struct Shards {
    all: Vec<Shard>,
    /// Those that may be of some move, or otherwise not as the directory has them: whoever changes one opens it.
    open: BTreeSet<MicroShard>,
}

impl Shards {
    /// With these words in memory. All are open.
    pub(super) fn new(words: &[Ownership]) -> Self {
        let open = (0..words.len() as u32).map(MicroShard).collect();
        Self { all: words.iter().copied().map(Shard::new).collect(), open }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, micro_shard: MicroShard) -> Option<&Shard> {
        self.all.get(micro_shard.0 as usize)
    }

    /// Opens one.
    pub(super) fn get_mut(&mut self, micro_shard: MicroShard) -> Option<&mut Shard> {
        let shard = self.all.get_mut(micro_shard.0 as usize)?;
        self.open.insert(micro_shard);
        Some(shard)
    }

    /// Those that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = (MicroShard, &Shard)> {
        self.open.iter().map(|it| (*it, &self.all[it.0 as usize]))
    }

    pub(super) fn for_each_open(&mut self, mut f: impl FnMut(MicroShard, &mut Shard)) {
        self.open.iter().for_each(|it| f(*it, &mut self.all[it.0 as usize]));
    }

    /// Closes those for which this is true.
    pub(super) fn close_if(&mut self, may_close: impl Fn(MicroShard, &Shard) -> bool) {
        self.open.retain(|it| !may_close(*it, &self.all[it.0 as usize]));
        debug_assert!(
            (0..)
                .map(MicroShard)
                .zip(&self.all)
                .all(|(it, shard)| self.open.contains(&it) || may_close(it, shard)),
            "one was changed and not opened"
        );
    }
}

impl Index<MicroShard> for Shards {
    type Output = Shard;

    fn index(&self, micro_shard: MicroShard) -> &Shard {
        &self.all[micro_shard.0 as usize]
    }
}

/// Opens one.
impl IndexMut<MicroShard> for Shards {
    fn index_mut(&mut self, micro_shard: MicroShard) -> &mut Shard {
        self.open.insert(micro_shard);
        &mut self.all[micro_shard.0 as usize]
    }
}
