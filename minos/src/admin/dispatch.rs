//! `/dispatch`: the design in force, and the switch to another.

use hyper::StatusCode;
use minos_node::{
    StatsGroup, SwitchError,
    config::{Design, DispatchChoice},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Endpoint,
    reply::{self, Refusal, Reply},
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

#[derive(Debug, Serialize)]
struct InForce {
    dispatch: String,
    handoff_workers: usize,
    decision: Map<String, Value>,
}

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
pub(super) async fn switch(body: &[u8], endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let operator = endpoint.operator.clone();
    let choice = choice(body, operator.dispatch()).map_err(|text| (StatusCode::BAD_REQUEST, text))?;
    reply::blocking(move || operator.switch(choice), status_of).await?;
    endpoint.counters.admin_switches.count();
    Ok(show(endpoint))
}

/// The choice in `body`; omitted fields keep their value from `now`.
fn choice(body: &[u8], now: DispatchChoice) -> Result<DispatchChoice, String> {
    let wish: Wish = serde_json::from_slice(body)
        .map_err(|error| format!(r#"expected {{"dispatch": NAME, "handoff_workers": N}}: {error}"#))?;
    let dispatch: Design =
        wish.dispatch.parse().map_err(|expected| format!("dispatch {:?}: {expected}", wish.dispatch))?;
    Ok(DispatchChoice { dispatch, handoff_workers: wish.handoff_workers.unwrap_or(now.handoff_workers) })
}

fn status_of(error: &SwitchError) -> StatusCode {
    match error {
        SwitchError::Option(_) => StatusCode::BAD_REQUEST,
        SwitchError::Busy => StatusCode::CONFLICT,
        SwitchError::Stopping | SwitchError::Slow => StatusCode::SERVICE_UNAVAILABLE,
    }
}
