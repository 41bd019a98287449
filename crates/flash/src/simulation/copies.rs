//! Images that are copied while the store works, and what recovery finds in the copies.

use super::{
    crashes::read_now,
    disk::{Disk, recover},
    index::Table,
    model::Copy,
    world::{World, options},
};
use crate::{format::Seal, log::Extent, work::Work};
use rand::RngExt;

impl World {
    pub(super) fn begin_copy(&mut self) {
        if self.copy.is_some() || self.log.is_read_only() {
            return;
        }
        let image = self.log.hold();
        let mut bytes = vec![0; self.superblock.layout.device_bytes() as usize];
        for work in image.head(&self.superblock) {
            let Work::Write { at, bytes: from } = work else { panic!("{work:?}") };
            bytes[at as usize..at as usize + from.len()].copy_from_slice(&from);
        }
        self.copy = Some(Copy { left: image.extents, bytes, model: self.model.clone() });
    }

    /// Copies a segment now and then; a copy that is complete is looked at.
    pub(super) fn copy_some(&mut self) -> Result<(), String> {
        self.tally.held_back += u64::from(self.log.held_back() > 0);
        if self.log.lacks_what_is_held() {
            self.give_copy_up();
        }
        if self.copy.is_none() || self.random.random_bool(0.8) {
            return Ok(());
        }
        let Some(mut copy) = self.copy.take() else { return Ok(()) };
        if copy.left.is_empty() {
            return self.look_at(copy);
        }
        let extent = copy.left.swap_remove(self.random.random_range(0..copy.left.len()));
        self.copy_one(&extent, &mut copy.bytes)?;
        self.log.release(extent.segment);
        self.copy = Some(copy);
        Ok(())
    }

    fn copy_one(&mut self, extent: &Extent, bytes: &mut [u8]) -> Result<(), String> {
        let layout = self.superblock.layout;
        for part in &extent.parts {
            let (begin, end) = (part.start as usize, part.end as usize);
            let read = self.disk.read(begin, end - begin).map_err(|error| error.to_string())?;
            bytes[begin..end].copy_from_slice(&read);
        }
        let begin = layout.segment_at(extent.segment) as usize;
        let segment = &bytes[begin..begin + layout.segment_bytes() as usize];
        let verified = extent.verify(segment, &layout, Seal::new(self.superblock.seed));
        verified.map_err(|fault| format!("segment {} of a copy: {fault}", extent.segment))
    }

    fn give_copy_up(&mut self) {
        for extent in self.copy.take().into_iter().flat_map(|copy| copy.left) {
            self.log.release(extent.segment);
        }
    }

    /// A copy is what a power loss would have left at its moment.
    fn look_at(&mut self, copy: Copy) -> Result<(), String> {
        let Copy { bytes, mut model, .. } = copy;
        let mut disk = Disk::holding(bytes, self.random.random());
        let (mut log, newest) =
            recover(&mut disk, &self.superblock, options(self.plan, &self.superblock.layout));
        newest.settle(&mut log);
        let mut table = Table::default();
        for (hash, sequence, _, place) in newest.live() {
            table.slots.insert(hash.0, (sequence, place));
        }
        for key in model.keys() {
            let found = read_now(&mut disk, (&log, &table), self.superblock.seed, key)?;
            model
                .settle(key, found, true, self.plan.is_cache())
                .map_err(|text| format!("in a copy: {text}"))?;
        }
        self.tally.images += 1;
        Ok(())
    }
}
