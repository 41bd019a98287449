//! `/snapshot`: copies of the table on flash.

use hyper::StatusCode;
use minos_tier::{Snapshot, SnapshotError, SnapshotPhase, SnapshotWish};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Endpoint, flash,
    reply::{self, Refusal, Reply},
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
pub(super) fn show(endpoint: &Endpoint) -> Result<Reply, Refusal> {
    Ok(reply::json(StatusCode::OK, &view(flash::tier(endpoint)?.last_snapshot())))
}

/// Ends the snapshot under way.
pub(super) fn cancel(endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let tier = flash::tier(endpoint)?;
    if !tier.cancel_snapshot() {
        return Err((StatusCode::CONFLICT, "no snapshot is under way".to_owned()));
    }
    Ok(reply::json(StatusCode::ACCEPTED, &view(tier.last_snapshot())))
}

/// Begins the snapshot that `body` names.
pub(super) async fn begin(body: &[u8], endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let tier = flash::tier(endpoint)?;
    let folder = endpoint.options.snapshot_folder.clone().ok_or_else(|| {
        let text = "the server makes no snapshots: it runs without --snapshot-folder";
        (StatusCode::FORBIDDEN, text.to_owned())
    })?;
    let Wish { name, rate } = serde_json::from_slice(body).map_err(|error| {
        (StatusCode::BAD_REQUEST, format!(r#"expected {{"name": NAME, "rate": N}}: {error}"#))
    })?;
    let wish = SnapshotWish { folder, name, bytes_s: rate };
    let snapshot = reply::blocking(move || tier.snapshot(&wish), status_of).await?;
    Ok(reply::json(StatusCode::ACCEPTED, &view(Some(snapshot))))
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
