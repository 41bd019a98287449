//! `/dispatch`: the design in force, and the switch to another.

use hyper::{StatusCode, body::Incoming};
use minos_node::{
    StatsGroup, SwitchError,
    config::{Design, DispatchChoice},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    Endpoint, body,
    reply::{self, Reply},
    statistics,
};

/// Prefixes of `stats minos` names that are not part of the design's decision.
const OTHERS: [&str; 4] = ["worker:", "store_", "native_", "receiving_"];

/// The body of a request to switch the design.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    dispatch: String,
    handoff_workers: Option<usize>,
}

/// The design in force.
#[derive(Debug, Serialize)]
struct InForce {
    dispatch: String,
    handoff_workers: usize,
    decision: Map<String, Value>,
}

/// Shows the design in force.
pub(super) fn show(endpoint: &Endpoint) -> Reply {
    let choice = endpoint.operator.dispatch();
    let pairs = statistics::pairs(&endpoint.operator, StatsGroup::Minos);
    let of_decision = pairs.iter().map(|(name, value)| (&**name, &**value));
    let of_decision = of_decision.filter(|(name, _)| !OTHERS.iter().any(|other| name.starts_with(other)));
    let in_force = InForce {
        dispatch: choice.dispatch.to_string(),
        handoff_workers: choice.handoff_workers,
        decision: statistics::object(of_decision),
    };
    reply::json(StatusCode::OK, &in_force)
}

/// Switches to the design that `body` names, and shows the design in force afterwards.
pub(super) async fn switch(body: Incoming, endpoint: &Endpoint, arrived_by: Instant) -> Reply {
    let body = match body::read(body, endpoint, arrived_by).await {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    match choice(&body, endpoint.operator.dispatch()) {
        Ok(choice) => switch_to(choice, endpoint).await,
        Err(text) => reply::error(StatusCode::BAD_REQUEST, &text),
    }
}

/// The choice in `body`; omitted fields keep their value from `now`.
fn choice(body: &[u8], now: DispatchChoice) -> Result<DispatchChoice, String> {
    let wish: Wish = serde_json::from_slice(body)
        .map_err(|error| format!(r#"expected {{"dispatch": NAME, "handoff_workers": N}}: {error}"#))?;
    let dispatch: Design =
        wish.dispatch.parse().map_err(|expected| format!("dispatch {:?}: {expected}", wish.dispatch))?;
    Ok(DispatchChoice { dispatch, handoff_workers: wish.handoff_workers.unwrap_or(now.handoff_workers) })
}

async fn switch_to(choice: DispatchChoice, endpoint: &Endpoint) -> Reply {
    let operator = endpoint.operator.clone();
    match spawn_blocking(move || operator.switch(choice)).await {
        Ok(Ok(())) => {
            endpoint.counters.admin_switches.count();
            show(endpoint)
        }
        Ok(Err(error)) => reply::error(status_of(&error), &error.to_string()),
        Err(error) => reply::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn status_of(error: &SwitchError) -> StatusCode {
    match error {
        SwitchError::Option(_) => StatusCode::BAD_REQUEST,
        SwitchError::Busy => StatusCode::CONFLICT,
        SwitchError::Stopping | SwitchError::Slow => StatusCode::SERVICE_UNAVAILABLE,
    }
}
