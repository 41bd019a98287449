//! `/snapshot`: copies of the table on flash.

use hyper::{StatusCode, body::Incoming};
use minos_tier::{Snapshot, SnapshotError, SnapshotPhase, SnapshotWish, Tier};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    Endpoint, body, flash,
    reply::{self, Reply},
};

/// The body of a request for a snapshot.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    name: String,
    /// Bytes a second; 0: no bound.
    rate: u64,
}

/// Shows the snapshot under way, or the last one.
pub(super) fn show(endpoint: &Endpoint) -> Reply {
    match endpoint.operator.tier() {
        Some(tier) => reply::json(StatusCode::OK, &view(tier.last_snapshot())),
        None => flash::absent(),
    }
}

/// Ends the snapshot under way.
pub(super) fn cancel(endpoint: &Endpoint) -> Reply {
    match endpoint.operator.tier() {
        Some(tier) if tier.cancel_snapshot() => {
            reply::json(StatusCode::ACCEPTED, &view(tier.last_snapshot()))
        }
        Some(_) => reply::error(StatusCode::CONFLICT, "no snapshot is under way"),
        None => flash::absent(),
    }
}

/// Begins the snapshot that `body` names.
pub(super) async fn begin(body: Incoming, endpoint: &Endpoint, arrived_by: Instant) -> Reply {
    let body = match body::read(body, endpoint, arrived_by).await {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let Some(tier) = endpoint.operator.tier() else { return flash::absent() };
    let Some(folder) = endpoint.options.snapshot_folder.clone() else {
        let text = "the server makes no snapshots: it runs without --snapshot-folder";
        return reply::error(StatusCode::FORBIDDEN, text);
    };
    match serde_json::from_slice(&body) {
        Ok(Wish { name, rate }) => begun(tier, SnapshotWish { folder, name, bytes_s: rate }).await,
        Err(error) => {
            let text = format!(r#"expected {{"name": NAME, "rate": N}}: {error}"#);
            reply::error(StatusCode::BAD_REQUEST, &text)
        }
    }
}

async fn begun(tier: Arc<Tier>, wish: SnapshotWish) -> Reply {
    match spawn_blocking(move || tier.snapshot(&wish)).await {
        Ok(Ok(snapshot)) => reply::json(StatusCode::ACCEPTED, &view(Some(snapshot))),
        Ok(Err(error)) => reply::error(status_of(&error), &error.to_string()),
        Err(error) => reply::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn status_of(error: &SnapshotError) -> StatusCode {
    match error {
        SnapshotError::Name(_) => StatusCode::BAD_REQUEST,
        SnapshotError::Exists(_) | SnapshotError::Busy => StatusCode::CONFLICT,
        SnapshotError::Ended => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn view(snapshot: Option<Snapshot>) -> Value {
    let Some(Snapshot { number, path, phase, copied_bytes, bytes }) = snapshot else {
        return json!({ "number": 0, "state": "none" });
    };
    let (state, reason) = match phase {
        SnapshotPhase::Syncing => ("syncing", None),
        SnapshotPhase::Copying => ("copying", None),
        SnapshotPhase::Done => ("done", None),
        SnapshotPhase::Failed(reason) => ("failed", Some(reason)),
    };
    let mut view = json!({
        "number": number, "path": path.display().to_string(), "state": state,
        "copied_bytes": copied_bytes, "bytes": bytes,
    });
    reason.into_iter().for_each(|reason| view["reason"] = reason.into());
    view
}
