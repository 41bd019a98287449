//! The thread of the keeper, which moves items to flash.

use std::{
    sync::{
        Arc,
        atomic::{
            Ordering::{Acquire, Relaxed, SeqCst},
            fence,
        },
    },
    time::{Duration, Instant},
};

use minos_engine::Mode;
use minos_net::Io;
use minos_tier::{Damage, Keeper, Noted, Now, ReadOnly, Stats, SyncId, Tier, Turn};

use super::{shared::Shared, stop::Stop};

/// Longest wait for a snapshot to end.
const SNAPSHOT_MAX: Duration = Duration::from_secs(5);

/// Least patience with the device that takes the note of the end.
const NOTE_MIN: Duration = Duration::from_secs(1);

/// Longest rest of the keeper while the server stops.
const STOPPING_REST: Duration = Duration::from_millis(100);

/// How the work of the keeper ended.
enum End {
    /// Everything is durable.
    Durable,
    /// Somebody asked to stop at once.
    AtOnce,
    /// Flash did not take everything: up to so many items are in memory alone.
    Short(u64),
}

/// The way of everything in memory to flash while the server stops.
struct LastSync {
    id: SyncId,
    /// Items in memory at its beginning.
    items: u64,
    /// Items that had been written by then.
    written: u64,
    /// What was done when somebody looked last, and the time.
    done: u64,
    looked: Instant,
}

impl LastSync {
    fn begin(tier: &Tier) -> Self {
        let (items, stats) = (tier.engine().stats().items, tier.stats());
        let written = stats.engine.written;
        Self { id: tier.sync(), items, written, done: done(&stats), looked: Instant::now() }
    }

    /// False if nothing has come to flash for so long: then it stands still.
    fn goes_on(&mut self, tier: &Tier, limit: Duration) -> bool {
        if self.looked.elapsed() <= limit {
            return true;
        }
        let before = std::mem::replace(&mut self.done, done(&tier.stats()));
        self.looked = Instant::now();
        self.done != before
    }

    /// Items that are not on flash, at most: some in memory may have had copies before.
    fn left(&self, tier: &Tier) -> u64 {
        self.items.saturating_sub(tier.stats().engine.written - self.written)
    }
}

/// Rises while items come to flash, also while others move there to make room.
fn done(stats: &Stats) -> u64 {
    let Stats { engine, log, keeper, .. } = stats;
    engine.written + engine.superseded + log.moved_bytes + keeper.tombstones_written + keeper.examined
}

/// Runs the keeper until the server is stopped, its workers have ended, and everything is durable, or flash stands still.
pub(super) fn keep<M: Mode, I: Io>(mut keeper: Keeper, shared: &Shared<M, I>) {
    let end = run(&mut keeper, shared);
    // Those who still wait are told that nothing more becomes durable.
    let tier = Arc::clone(keeper.tier());
    drop(keeper);
    wake_holders(shared);
    // A snapshot under way removes what it has written.
    if !tier.wait_snapshot(SNAPSHOT_MAX) {
        tracing::warn!("stopped before the unfinished snapshot was removed");
    }
    match end {
        End::Durable => {
            let patience = shared.plan.in_force().tuning.stop_timeout.max(NOTE_MIN);
            match tier.note_end(patience, || shared.stop.is_at_once()) {
                Ok(Noted::Nothing | Noted::Whole) => {}
                Ok(Noted::Damaged(Damage { segments, pages, .. })) => {
                    tracing::warn!(
                        segments,
                        pages,
                        "flash is damaged: pages in these segments do not verify"
                    );
                }
                Err(error) => tracing::warn!(%error, "flash cannot be read again: it may be damaged"),
            }
            if tier.is_removed() {
                tracing::warn!("the file of --flash was removed: all items on flash are lost now");
            }
        }
        End::AtOnce => {}
        End::Short(items) => tell_short(&tier, items, &shared.stop),
    }
}

fn run<M: Mode, I: Io>(keeper: &mut Keeper, shared: &Shared<M, I>) -> End {
    let began = Instant::now();
    let stop = &shared.stop;
    let mut last: Option<LastSync> = None;
    loop {
        let now = Now { us: began.elapsed().as_micros() as u64, seconds: shared.clock.seconds() };
        let turned = keeper.turn(now).and_then(|turn| {
            if turn.synced {
                wake_holders(shared);
            }
            let rest = if stop.is_requested() { turn.rest.min(STOPPING_REST) } else { turn.rest };
            keeper.rest_for(&Turn { rest, ..turn })
        });
        let tier = keeper.tier();
        if let Err(error) = turned {
            tracing::error!(%error, "the lane that writes to flash is unusable");
            stop.request();
            return End::Short(last.map_or(tier.engine().stats().items, |last| last.left(tier)));
        }
        if stop.is_at_once() {
            return End::AtOnce;
        }
        if !stop.is_requested() || shared.workers_left.load(Acquire) > 0 {
            continue;
        }
        let last = last.get_or_insert_with(|| LastSync::begin(tier));
        let limit = shared.plan.in_force().tuning.stop_timeout.saturating_mul(2);
        match tier.is_synced(last.id) {
            Ok(true) => return End::Durable,
            Ok(false) if last.goes_on(tier, limit) => {}
            Ok(false) | Err(ReadOnly) => return End::Short(last.left(tier)),
        }
    }
}

/// Tells what is lost with memory, of which up to so many items are not on flash.
fn tell_short(tier: &Tier, items: u64, stop: &Stop) {
    if tier.engine().is_lasting() {
        tracing::warn!(items, "stopped before everything in memory was on flash; the region has it");
    } else if tier.acknowledges_durable() {
        tracing::warn!(items, "stopped before everything in memory was on flash; no reply had promised it");
    } else if tier.is_lossless() {
        tracing::error!(
            items,
            "flash stood still before everything in memory was there: up to so many items are lost"
        );
        stop.note_loss();
    } else {
        tracing::warn!(
            items,
            "flash stood still before everything in memory was there: up to so many items are lost"
        );
    }
}

/// Wakes the workers that wait for what became durable, or for followers.
pub(crate) fn wake_holders<M: Mode, I: Io>(shared: &Shared<M, I>) {
    // A worker that does not see the news, which came before this, is seen to wait.
    fence(SeqCst);
    for worker in shared.workers.iter().filter(|worker| worker.holds.load(Relaxed)) {
        worker.waker.wake();
    }
}
