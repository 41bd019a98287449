//! `/flash`: the log on the device, and the rates of its upkeep.

use hyper::StatusCode;
use minos_tier::{Stats, Tier, Wish, WishError};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{
    Endpoint,
    reply::{self, Refusal, Reply},
};

/// The body of a request to change something; rates are bytes a second.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    scrub_rate: Option<u64>,
    compaction_rate: Option<u64>,
    /// Scrub everything once, at this rate.
    scrub: Option<u64>,
}

pub(super) fn show(endpoint: &Endpoint) -> Result<Reply, Refusal> {
    Ok(reply::json(StatusCode::OK, &view(&tier(endpoint)?.stats())))
}

/// Changes what `body` names, and shows the log afterwards.
pub(super) async fn change(body: &[u8], endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let tier = tier(endpoint)?;
    let Change { scrub_rate, compaction_rate, scrub } = serde_json::from_slice(body).map_err(|error| {
        let expected = r#"{"scrub_rate": N, "compaction_rate": N, "scrub": N}"#;
        (StatusCode::BAD_REQUEST, format!("expected some of {expected}: {error}"))
    })?;
    let wish = Wish { scrub_bytes_s: scrub_rate, compaction_bytes_s: compaction_rate, sweep_bytes_s: scrub };
    let stats = reply::blocking(move || tier.wish(wish).map(|()| tier.stats()), status_of).await?;
    Ok(reply::json(StatusCode::OK, &view(&stats)))
}

/// The table on flash; otherwise the answer of a server without one.
pub(super) fn tier(endpoint: &Endpoint) -> Result<Arc<Tier>, Refusal> {
    let text = "there is no flash below the memory: the server runs without --flash";
    endpoint.operator.tier().ok_or_else(|| (StatusCode::NOT_FOUND, text.to_owned()))
}

fn status_of(error: &WishError) -> StatusCode {
    match error {
        WishError::Rate(_) | WishError::NoRate => StatusCode::BAD_REQUEST,
        WishError::ReadOnly => StatusCode::CONFLICT,
        WishError::Ended | WishError::Slow => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// The state of the log, in groups. No name is in two of them.
fn view(stats: &Stats) -> Value {
    let Stats { engine, log, reads, state, snapshots, .. } = stats;
    let standing = match (reads.read_gone > 0, state.is_read_only) {
        (true, _) => "failed",
        (false, true) => "read-only",
        (false, false) => "live",
    };
    let segments = state.segments;
    json!({
        "state": standing,
        "segments": {
            "segment_bytes": state.segment_bytes,
            "free": segments.free, "reserved": segments.reserved, "open": segments.open,
            "closing": segments.closing, "sealed": segments.sealed, "ending": segments.ending,
            "bad": segments.bad,
        },
        "bytes": {
            "capacity_bytes": state.capacity_bytes, "live_bytes": state.live_bytes,
            "appended_bytes": log.appended_bytes, "written_bytes": log.written_bytes,
            "write_amplification": ratio(log.written_bytes, log.appended_bytes),
            "failed_writes": log.failed_writes,
        },
        "index": {
            "items": engine.cold, "in_flight": engine.tickets,
            "tombstones_waiting": engine.tombstones_waiting,
            "evicted": log.dropped_records, "expired": log.expired_records, "lost": log.lost_records,
        },
        "scrub": {
            "scrub_rate": state.scrub.bytes_s, "scrub_segment": state.scrub.segment,
            "scrub_left": state.scrub.left, "scrubs": log.sweeps,
            "scrubbed_segments": log.scrubbed_segments, "scrub_faults": log.scrub_faults,
            "scrub_read_bytes": log.scrub_read_bytes,
        },
        "compaction": {
            "compaction_rate": state.compaction_bytes_s, "compacting": state.is_compacting,
            "moved_bytes": log.moved_bytes, "compacted_segments": log.compacted_segments,
            "carried_tombstones": log.carried_tombstones,
            "compaction_read_bytes": log.compaction_read_bytes,
        },
        "snapshots": {
            "snapshots": snapshots.done, "snapshots_failed": snapshots.failed,
            "snapshots_given_up": snapshots.given_up, "snapshot_bytes": snapshots.copied_bytes,
            "held_segments": state.held_segments,
        },
    })
}

/// How often a byte of an item was written, in thousandths; null before the first.
fn ratio(written: u64, appended: u64) -> Option<f64> {
    (appended > 0).then(|| (written as f64 / appended as f64 * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_name_hides_another() {
        let view = view(&Stats::default());
        let groups = view.as_object().unwrap().values().filter_map(Value::as_object);
        let names: Vec<&String> = groups.flat_map(|group| group.keys()).collect();
        assert!(names.len() > 25, "{names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn the_state_says_what_still_works() {
        let mut stats = Stats::default();
        assert_eq!(
            (&view(&stats)["state"], &view(&stats)["bytes"]["write_amplification"]),
            (&json!("live"), &Value::Null)
        );
        stats.state.is_read_only = true;
        assert_eq!(view(&stats)["state"], "read-only");
        stats.reads.read_gone = 1;
        assert_eq!(view(&stats)["state"], "failed");
        (stats.log.appended_bytes, stats.log.written_bytes) = (3, 4);
        assert_eq!(view(&stats)["bytes"]["write_amplification"], 1.333);
    }
}
