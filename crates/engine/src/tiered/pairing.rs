//! A kept region and the table on flash that it belongs to.

use super::tier::{Flash, LogMode};
use crate::{position::PositionBits, saved::FLASH_JOURNAL, store::Engine};
use minos_sync::AnyWriter;
use std::sync::atomic::Ordering::{Relaxed, Release};

impl<B: PositionBits, A: AnyWriter> Engine<LogMode<B, Flash>, A> {
    /// The seed of the key hash. A table on flash has one of its own.
    pub fn hash_seed(&self) -> u64 {
        self.memory().geometry().hash_seed
    }

    /// The highest number of a journal on flash that this table knows of. It outlives the process with the region: a
    /// table on flash with a higher one was changed without this.
    pub fn journal_known(&self) -> u64 {
        self.saved().word(self.memory().region(), FLASH_JOURNAL).load(Relaxed)
    }

    /// Notes the number of a journal, before that is written.
    pub fn know_journal(&self, number: u64) {
        self.saved().word(self.memory().region(), FLASH_JOURNAL).store(number, Release);
    }
}
