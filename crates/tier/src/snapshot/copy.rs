//! The beginning of a snapshot, and the copier's work.

use super::{Snapshot, SnapshotError, SnapshotWish, Snapshots, Talk, target::Target};
use crate::{open::Driver, tier::Tier};
use minos_device::LaneOptions;
use minos_flash::{Extent, Work};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Bytes of a read.
const READ_BYTES: u64 = 1 << 20;
/// Reads that are submitted as one vector.
const WIDTH: usize = 4;

/// Bytes between two flushes, so that memory does not fill with what is not yet on the disk.
const FLUSH_BYTES: u64 = 16 << 20;

/// A rate of bytes.
struct Pace {
    begun: Instant,
    bytes_s: u64,
    bytes: u64,
}

impl Pace {
    /// When the next bytes are due.
    fn due(&mut self, bytes: u64) -> Option<Instant> {
        self.bytes += bytes;
        let micros = (u128::from(self.bytes) * 1_000_000).checked_div(u128::from(self.bytes_s))?;
        self.begun.checked_add(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

impl Tier {
    /// Begins a snapshot; a thread of its own makes it. A keeper must run.
    ///
    /// # Errors
    /// See [`SnapshotError`]; later ones are in [`Tier::last_snapshot`].
    pub fn snapshot(self: &Arc<Self>, wish: &SnapshotWish) -> Result<Snapshot, SnapshotError> {
        let target = Target::new(&wish.folder, &wish.name)?;
        self.snapshots.begin(target.path().to_owned())?;
        let (tier, bytes_s) = (Arc::clone(self), wish.bytes_s);
        let thread = std::thread::Builder::new().name("minos-snapshot".to_owned());
        let spawned = thread.spawn(move || {
            let path = target.path().display().to_string();
            let result = tier.copy_to(target, bytes_s);
            match &result {
                Ok(()) => tracing::info!(path, "the snapshot is complete"),
                Err(error) => tracing::warn!(path, %error, "there is no snapshot"),
            }
            tier.snapshots.finish(result);
            tier.bell.ring();
        });
        if let Err(error) = spawned {
            self.snapshots.finish(Err(SnapshotError::Write(error)));
        }
        self.bell.ring();
        Ok(self.last_snapshot().unwrap_or_default())
    }

    /// Ends the snapshot under way soon; false if there is none.
    pub fn cancel_snapshot(&self) -> bool {
        let was_under_way = self.snapshots.stop(SnapshotError::Cancelled);
        self.bell.ring();
        was_under_way
    }

    /// The snapshot under way, or the last one.
    pub fn last_snapshot(&self) -> Option<Snapshot> {
        self.snapshots.state.lock().last.clone()
    }

    /// Waits until no snapshot is under way; false if the time is over first.
    pub fn wait_snapshot(&self, timeout: Duration) -> bool {
        let Snapshots { state, changed } = &self.snapshots;
        let mut state = state.lock();
        !changed.wait_while_for(&mut state, |state| !matches!(state.talk, Talk::Idle), timeout).timed_out()
    }

    /// Waits for the image, and copies it.
    fn copy_to(&self, target: Target, bytes_s: u64) -> Result<(), SnapshotError> {
        let image = self.snapshots.image()?;
        // As large as the device: the same `PATH:SIZE` serves both.
        target.resize(self.device.geometry().capacity_bytes)?;
        image.head(&self.superblock).iter().try_for_each(|work| target.write(work))?;
        let options = LaneOptions { pool_bytes: WIDTH << 21, ..LaneOptions::default() };
        let mut driver =
            Driver::new(&self.device, &options).map_err(|error| SnapshotError::Read(error.into()))?;
        let mut pace = Pace { begun: Instant::now(), bytes_s, bytes: 0 };
        let mut left = image.extents;
        let (mut segment, mut unflushed) = (Vec::new(), 0);
        while let Some(extent) = self.snapshots.next(&mut left) {
            segment.clear();
            segment.resize(self.layout().segment_bytes() as usize, 0);
            self.read_segment(&mut driver, &extent, &mut pace, &mut segment)?;
            self.write_segment(&target, &extent, &segment)?;
            unflushed += extent.bytes();
            if unflushed >= FLUSH_BYTES {
                target.flush()?;
                unflushed = 0;
            }
            self.snapshots.release(extent.segment);
            self.bell.ring();
        }
        target.keep()
    }

    fn read_segment(
        &self,
        driver: &mut Driver,
        extent: &Extent,
        pace: &mut Pace,
        segment: &mut [u8],
    ) -> Result<(), SnapshotError> {
        let begin = self.layout().segment_at(extent.segment);
        let reads = extent.parts.iter().flat_map(|part| {
            let starts = (part.start..part.end).step_by(READ_BYTES as usize);
            starts.map(|at| (at, READ_BYTES.min(part.end - at) as usize))
        });
        let reads: Vec<(u64, usize)> = reads.collect();
        for vector in reads.chunks(WIDTH) {
            let works = vector.iter().map(|&(at, len)| Work::Read { at, len }).collect();
            let pieces = driver.run_all(works).map_err(|error| SnapshotError::Read(error.into()))?;
            let mut bytes = 0;
            for (&(at, len), piece) in vector.iter().zip(&pieces) {
                let offset = (at - begin) as usize;
                segment[offset..offset + len].copy_from_slice(piece);
                bytes += len as u64;
            }
            self.snapshots.copied(bytes, pace.due(bytes))?;
        }
        Ok(())
    }

    fn write_segment(&self, target: &Target, extent: &Extent, segment: &[u8]) -> Result<(), SnapshotError> {
        let rot = |fault| SnapshotError::Rot { segment: extent.segment, fault };
        extent.verify(segment, self.layout(), self.seal).map_err(rot)?;
        let begin = self.layout().segment_at(extent.segment);
        for part in &extent.parts {
            let (from, to) = ((part.start - begin) as usize, (part.end - begin) as usize);
            target.write_at(part.start, &segment[from..to])?;
        }
        Ok(())
    }
}
