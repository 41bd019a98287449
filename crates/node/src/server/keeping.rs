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
use minos_tier::{Keeper, Now, SyncId, Turn};

use super::shared::Shared;

/// Longest wait for a snapshot to end.
const SNAPSHOT_MAX: Duration = Duration::from_secs(5);

/// Least patience with the device that takes the note of the end.
const NOTE_MIN: Duration = Duration::from_secs(1);

/// Longest rest of the keeper while the server stops.
const STOPPING_REST: Duration = Duration::from_millis(100);

/// Runs the keeper until the server is stopped and its workers have ended. Then it makes everything durable, if that
/// takes no longer than the time to stop.
pub(super) fn keep<M: Mode, I: Io>(mut keeper: Keeper, shared: &Shared<M, I>) {
    let began = Instant::now();
    let stop = &shared.stop;
    let mut stopped = None;
    let mut last: Option<SyncId> = None;
    let mut is_durable = false;
    loop {
        let now = Now { us: began.elapsed().as_micros() as u64, seconds: shared.clock.seconds() };
        let turned = keeper.turn(now).and_then(|turn| {
            if turn.synced {
                wake_holders(shared);
            }
            let rest = if stop.is_requested() { turn.rest.min(STOPPING_REST) } else { turn.rest };
            keeper.rest_for(&Turn { rest, ..turn })
        });
        if let Err(error) = turned {
            tracing::error!(%error, "the lane that writes to flash is unusable");
            stop.request();
            break;
        }
        if !stop.is_requested() {
            continue;
        }
        let since = *stopped.get_or_insert_with(Instant::now);
        if last.is_none() && shared.workers_left.load(Acquire) == 0 {
            last = Some(keeper.tier().sync());
        }
        let synced = last.map_or(Ok(false), |last| keeper.tier().is_synced(last));
        is_durable = synced == Ok(true);
        if stop.is_at_once() || synced != Ok(false) {
            break;
        }
        let patience = shared.plan.in_force().tuning.stop_timeout;
        // Workers that stop may take that long themselves.
        if since.elapsed() > patience.saturating_mul(2) {
            tracing::warn!("stopped before everything in memory was on flash");
            break;
        }
    }
    // Those who still wait are told that nothing more becomes durable.
    let tier = Arc::clone(keeper.tier());
    drop(keeper);
    wake_holders(shared);
    // A snapshot under way removes what it has written.
    if !tier.wait_snapshot(SNAPSHOT_MAX) {
        tracing::warn!("stopped before the unfinished snapshot was removed");
    }
    let patience = shared.plan.in_force().tuning.stop_timeout.max(NOTE_MIN);
    if is_durable && let Err(error) = tier.note_end(patience, || stop.is_at_once()) {
        tracing::warn!(%error, "the next start cannot tell what is damaged meanwhile");
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
