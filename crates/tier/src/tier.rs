//! The part that the keeper and all readers share.

use crate::{
    epochs::Epochs,
    options::{Durability, Options},
    snapshot::Snapshots,
    stats::{LogState, SharedKeeperCounts, SharedReadCounts, Stats},
    syncs::{ReadOnly, SyncId, Syncs},
    wishes::{Wish, WishError, Wishes},
};
use minos_base::FLASH_PAGE_BYTES;
use minos_device::{Device, LaneCounts};
use minos_engine::{FlashSpace, Tiered};
use minos_flash::{
    Log,
    format::{Layout, Life, Seal, Superblock},
};
use minos_sync::Bell;
use parking_lot::Mutex;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

/// Share of the log that live records and the items without a record may fill: what is acknowledged must find room. The
/// log itself takes more, since records of items that were changed are live until their tombstones are written.
const STORED_PERCENT_MAX: u64 = 80;
/// Items without a record that are too few to wait for, as a share of the log.
const FEW_PERCENT: u64 = 1;

/// Bytes of a record beside key and value, and its share of what a page loses.
const RECORD_BYTES: u64 = 80;

/// An engine above a log on a device. Threads read through [`crate::Reader`]s; one [`crate::Keeper`] writes.
pub struct Tier {
    pub(crate) engine: Arc<Tiered>,
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
    pub(crate) seal: Seal,
    pub(crate) options: Options,
    /// The life of each segment that a slot may name.
    lives: Box<[AtomicU32]>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) reads: SharedReadCounts,
    pub(crate) kept: SharedKeeperCounts,
    pub(crate) syncs: Syncs,
    pub(crate) wishes: Wishes,
    pub(crate) snapshots: Snapshots,
    /// Calls the keeper.
    pub(crate) bell: Arc<Bell>,
    published: Mutex<Published>,
    is_full: AtomicBool,
    is_room_coming: AtomicBool,
    is_read_only: AtomicBool,
}

/// The keeper's own counts, as others see them.
#[derive(Clone, Copy, Debug, Default)]
struct Published {
    log: minos_flash::Counters,
    lane: LaneCounts,
    state: LogState,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { superblock, options, .. } = self;
        f.debug_struct("Tier")
            .field("superblock", superblock)
            .field("options", options)
            .finish_non_exhaustive()
    }
}

impl Tier {
    pub(crate) fn new(engine: Arc<Tiered>, device: Device, superblock: Superblock, options: Options) -> Self {
        let segments = superblock.layout.segments() as usize;
        let bell = Arc::<Bell>::default();
        engine.call_by(Arc::clone(&bell));
        Self {
            engine,
            device,
            superblock,
            seal: Seal::new(superblock.seed),
            options,
            lives: (0..segments).map(|_| AtomicU32::new(Life::NONE.0)).collect(),
            epochs: Arc::default(),
            reads: SharedReadCounts::default(),
            kept: SharedKeeperCounts::default(),
            syncs: Syncs::default(),
            wishes: Wishes::default(),
            snapshots: Snapshots::default(),
            bell,
            published: Mutex::default(),
            is_full: AtomicBool::new(false),
            is_room_coming: AtomicBool::new(false),
            is_read_only: AtomicBool::new(false),
        }
    }

    /// The engine. Stores go there at once; what leaves its memory is the keeper's.
    pub fn engine(&self) -> &Arc<Tiered> {
        &self.engine
    }

    /// True for a store, which loses nothing and refuses.
    pub fn is_lossless(&self) -> bool {
        self.options.is_lossless
    }

    /// The table's identity.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// True if a change is to be acknowledged only when it is durable.
    pub fn acknowledges_durable(&self) -> bool {
        self.options.durability == Durability::Flush
    }

    /// Ends the sleep of the keeper, for whom there may be work.
    pub fn call_keeper(&self) {
        self.bell.ring();
    }

    /// Asks the keeper that everything stored before become durable.
    pub fn sync(&self) -> SyncId {
        let id = self.syncs.request();
        self.bell.ring();
        id
    }

    /// True if everything before the request is durable.
    ///
    /// # Errors
    /// It never will be.
    pub fn is_synced(&self, id: SyncId) -> Result<bool, ReadOnly> {
        self.syncs.is_done(id)
    }

    /// Waits until everything before the request is durable; false if the time is over first. A keeper must run.
    ///
    /// # Errors
    /// It never will be.
    pub fn wait_synced(&self, id: SyncId, timeout: Duration) -> Result<bool, ReadOnly> {
        self.syncs.wait(id, timeout)
    }

    /// True if the device's file was removed: what is on flash is lost with this process.
    pub fn is_removed(&self) -> bool {
        self.device.is_removed()
    }

    /// Asks the keeper to remove everything, also from the device: `flush_all`.
    pub fn empty(&self) -> SyncId {
        let id = self.syncs.request_empty();
        self.bell.ring();
        id
    }

    /// True if everything is removed, and stays so after a power loss.
    ///
    /// # Errors
    /// It never will be.
    pub fn is_emptied(&self, id: SyncId) -> Result<bool, ReadOnly> {
        self.syncs.is_empty_done(id)
    }

    /// All counters. Takes each partition's lock for a moment.
    pub fn stats(&self) -> Stats {
        let engine = self.engine.tier_stats();
        let (reads, keeper) = (self.reads.values(), self.kept.values());
        let Published { log, lane, state } = *self.published.lock();
        let snapshots = self.snapshots.counts();
        Stats { engine, log, reads, keeper, lane, state, snapshots }
    }

    /// True if the device of a store has no room for more than memory holds already: the engine refuses new items.
    pub fn is_full(&self) -> bool {
        // Relaxed: a store that comes a moment too late finds room in memory.
        self.is_full.load(Relaxed)
    }

    /// True if a full store may have room soon: some records are dead, and their tombstones are yet to be written.
    pub fn is_room_coming(&self) -> bool {
        // Relaxed: as above.
        self.is_room_coming.load(Relaxed)
    }

    /// True if nothing more is written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Relaxed)
    }

    /// Changes what the keeper does, and returns once [`Tier::stats`] shows it. A keeper must run.
    ///
    /// # Errors
    /// See [`WishError`].
    pub fn wish(&self, wish: Wish) -> Result<(), WishError> {
        self.wishes.make(wish, self.is_read_only(), &self.bell)
    }

    /// Tells who stores if there is room, where everything must become durable.
    /// Says how much room there is: copies of so many bytes are on their way, which the log counts already, and so
    /// many tombstones are to be written.
    pub(crate) fn publish_room(&self, log: &Log, (bytes_on_way, tombstones): (u64, usize)) {
        self.is_read_only.store(log.is_read_only(), Relaxed);
        if !self.options.is_lossless {
            return;
        }
        let (capacity, live) = (log.capacity_bytes(), log.live_bytes());
        let limit = capacity / 100 * STORED_PERCENT_MAX;
        let (mut is_full, mut is_room_coming, mut room) = (false, false, FlashSpace::Plenty);
        if live + self.engine.memory_bytes() > limit {
            let (items, bytes) = self.engine.without_copy();
            let without_record = (bytes + items * RECORD_BYTES).saturating_sub(bytes_on_way);
            is_full = live + without_record > limit;
            is_room_coming = tombstones > 0 || without_record > capacity / 100 * FEW_PERCENT;
            room = if is_full { FlashSpace::None } else { FlashSpace::Scarce };
        }
        self.is_room_coming.store(is_full && is_room_coming, Relaxed);
        self.is_full.store(is_full, Relaxed);
        self.engine.set_flash_room(room);
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.superblock.layout
    }

    /// The life in which to verify a page that the index names. The caller's epoch keeps it from changing.
    pub(crate) fn life_of(&self, page: u32) -> Life {
        let segment = self.layout().segment_of(u64::from(page) * FLASH_PAGE_BYTES as u64);
        // Relaxed: the slot was read after its life had been stored.
        segment.map_or(Life::NONE, |(number, _)| Life(self.lives[number as usize].load(Relaxed)))
    }

    /// Shows the lives of all segments, before any slot names a record of them.
    pub(crate) fn publish_lives(&self, log: &Log) {
        for (number, life) in self.lives.iter().enumerate() {
            let page = self.layout().segment_at(number as u32) / FLASH_PAGE_BYTES as u64;
            // Relaxed: a slot is published with a release, and read with an acquire.
            life.store(log.life_of(page as u32).0, Relaxed);
        }
    }

    pub(crate) fn publish(&self, log: &Log, lane: LaneCounts) {
        let state = LogState {
            capacity_bytes: log.capacity_bytes(),
            live_bytes: log.live_bytes(),
            segment_bytes: u64::from(self.layout().segment_bytes()),
            available_segments: log.available_segments() as u64,
            segments: log.usage(),
            scrub: log.scrub_state(),
            compaction_bytes_s: log.compaction_rate(),
            is_compacting: log.is_compacting(),
            held_segments: log.held_back() as u64,
            is_full: self.is_full(),
            is_read_only: log.is_read_only(),
        };
        let published = Published { log: log.counters(), lane, state };
        *self.published.lock() = published;
    }
}
