//! Walks everything a heap has and says what is wrong: for tests and for debugging.

use crate::{
    class::{CLASSES, class_of},
    heap::{ARENA, BEFORE_USED, CHUNK_WORDS_MIN, END, FIRST, Heap, HeapStats, LOG, USED, size_at, tag_of},
    region::{Offset, Region},
};
use std::collections::HashSet;

/// What a walk over spans has found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) stats: HeapStats,
    pub(crate) free: HashSet<u64>,
    /// Payloads of the chunks in use, with their words.
    pub(crate) used: Vec<(Offset, u64)>,
    /// Payloads of the chunks that are spans of partitions' heaps, with their words.
    pub(crate) arenas: Vec<(Offset, u64)>,
    /// Payloads of the chunks that are arenas of logs, with their words.
    pub(crate) logs: Vec<(Offset, u64)>,
}

impl Walk {
    /// Walks the span from `start` to `end`, from its first chunk to its end tag.
    pub(crate) fn span(&mut self, region: &Region, start: Offset, end: Offset) -> Result<(), String> {
        let (mut chunk, mut before_used, mut expected_first) = (start, true, FIRST);
        let last = end.minus(1);
        loop {
            let (tag, words) = (tag_of(region, chunk.plus(1)), size_at(region, chunk));
            let at = chunk.words();
            if (tag & BEFORE_USED != 0) != before_used {
                return Err(format!("chunk {at}: wrong about the chunk before it"));
            }
            if chunk == last && tag & END != 0 {
                return Ok(());
            }
            let is_inside = (CHUNK_WORDS_MIN..=last.words() - at).contains(&words);
            if tag & (FIRST | END) != expected_first || !is_inside {
                return Err(format!("chunk {at}: bad tag {tag:#x}"));
            }
            expected_first = 0;
            if tag & USED == 0 && !before_used {
                return Err(format!("chunk {at}: two free chunks in a row"));
            }
            before_used = tag & USED != 0;
            self.chunk(region, chunk, tag, words)?;
            chunk = chunk.plus(words);
        }
    }

    fn chunk(&mut self, region: &Region, chunk: Offset, tag: u64, words: u64) -> Result<(), String> {
        if tag & USED == 0 {
            self.stats.free_words += words;
            self.stats.free_chunks += 1;
            self.free.insert(chunk.words());
            let size = tag_of(region, chunk.plus(words));
            return if size == words { Ok(()) } else { Err(format!("chunk {}: bad size", chunk.words())) };
        }
        self.stats.used_words += words;
        self.stats.used_chunks += 1;
        let list = match tag & (ARENA | LOG) {
            0 => &mut self.used,
            LOG => &mut self.logs,
            _ => &mut self.arenas,
        };
        list.push((chunk.plus(1), words - 1));
        Ok(())
    }

    /// Compares what was found with the lists and counts of `heap`.
    pub(crate) fn agrees_with(&self, region: &Region, heap: &Heap) -> Result<(), String> {
        let mut listed = HashSet::new();
        for class in 0..CLASSES {
            for chunk in heap.list(region, class) {
                if class_of(size_at(region, chunk)) != class || !listed.insert(chunk.words()) {
                    return Err(format!("chunk {} is in the wrong list", chunk.words()));
                }
            }
        }
        if listed != self.free {
            return Err(format!("{} chunks listed, {} free", listed.len(), self.free.len()));
        }
        let counted = HeapStats { largest_free_words: 0, ..heap.stats(region) };
        if counted == self.stats {
            Ok(())
        } else {
            Err(format!("counted {counted:?}, found {:?}", self.stats))
        }
    }
}
