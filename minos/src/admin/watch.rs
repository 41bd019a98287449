//! `/now`, `/hot`, `/large` and `/slow`: what the server observes of requests, and `/healthz` and `/readyz`.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::StatusCode;
use minos_node::{
    Health, Operator, StatsGroup,
    config::Design,
    watch::{Durations, HotKey, LargeKey, Series, SlowRequest, Watch},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Endpoint,
    reply::{self, Refusal, Reply},
    statistics,
};

/// The body of a request to change the slow log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    threshold_us: u64,
}

/// Everything that the page and `minos top` show, in one answer.
pub(super) fn now(endpoint: &Endpoint) -> Reply {
    let operator = &endpoint.operator;
    let watch = operator.watch();
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let sizes = watch.sizes();
    let sizes =
        sizes.iter().filter(|(_, count)| *count > 0).map(|(class, count)| json!([class.bytes_max(), count]));
    let mut now = json!({
        "unix_ms": unix_ms,
        "dispatch": operator.dispatch().dispatch.to_string(),
        "designs": Design::SERVED.map(Design::name),
        "general": group(operator, StatsGroup::General),
        "minos": group(operator, StatsGroup::Minos),
        "sizes": sizes.collect::<Vec<_>>(),
        "latency": latency(watch),
        "hot": watch.hot_keys().iter().map(hot).collect::<Vec<_>>(),
        "large": watch.large_keys().iter().map(large).collect::<Vec<_>>(),
        "slow": watch.slow_requests().iter().map(slow).collect::<Vec<_>>(),
        "slow_us": watch.slow_us(),
    });
    for (name, of) in [("flash", StatsGroup::Flash), ("rack", StatsGroup::Rack)] {
        let object = group(operator, of);
        if !object.is_empty() {
            now[name] = object.into();
        }
    }
    reply::json(StatusCode::OK, &now)
}

pub(super) fn show_hot(endpoint: &Endpoint) -> Reply {
    let keys = endpoint.operator.watch().hot_keys();
    reply::json(StatusCode::OK, &json!({ "keys": keys.iter().map(hot).collect::<Vec<_>>() }))
}

pub(super) fn show_large(endpoint: &Endpoint) -> Reply {
    let keys = endpoint.operator.watch().large_keys();
    reply::json(StatusCode::OK, &json!({ "keys": keys.iter().map(large).collect::<Vec<_>>() }))
}

pub(super) fn show_slow(endpoint: &Endpoint) -> Reply {
    let watch = endpoint.operator.watch();
    let requests: Vec<_> = watch.slow_requests().iter().map(slow).collect();
    reply::json(StatusCode::OK, &json!({ "threshold_us": watch.slow_us(), "requests": requests }))
}

/// Changes from which time on a request is slow, and shows the log.
pub(super) fn change_slow(body: &[u8], endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let Wish { threshold_us } = serde_json::from_slice(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!(r#"expected {{"threshold_us": N}}: {error}"#)))?;
    endpoint.operator.watch().set_slow_us(threshold_us);
    Ok(show_slow(endpoint))
}

/// Forgets the slow requests so far.
pub(super) fn clear_slow(endpoint: &Endpoint) -> Reply {
    endpoint.operator.watch().clear_slow();
    show_slow(endpoint)
}

/// 200 as long as the server's threads run.
pub(super) fn health(endpoint: &Endpoint) -> Reply {
    let health = endpoint.operator.health();
    told(health, matches!(health, Health::Serving | Health::Stopping))
}

/// 200 as long as the server takes requests.
pub(super) fn readiness(endpoint: &Endpoint) -> Reply {
    let health = endpoint.operator.health();
    told(health, health == Health::Serving)
}

fn told(health: Health, is_good: bool) -> Reply {
    let text = match health {
        Health::Serving => "serving\n",
        Health::Stopping => "stopping\n",
        Health::Broken => "a worker has ended\n",
        Health::Stopped => "stopped\n",
    };
    let status = if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::with(status, "text/plain; charset=utf-8", text.to_owned())
}

fn group(operator: &Operator, group: StatsGroup) -> Map<String, Value> {
    let pairs = statistics::pairs(operator, group);
    statistics::object(pairs.iter().map(|(name, value)| (&**name, &**value)))
}

/// Steps of durations in nanoseconds, by size and stage.
fn latency(watch: &Watch) -> Value {
    let steps =
        |durations: &Durations| durations.steps().map(|(end, count)| json!([end, count])).collect::<Vec<_>>();
    let mut latency = json!({});
    for (series, durations) in watch.latencies() {
        if let Series::Stage(size, stage) = series {
            latency[size.name()][stage.name()] = steps(&durations).into();
        }
    }
    latency
}

fn hot(hot: &HotKey) -> Value {
    let HotKey { key, requests_s, share } = hot;
    json!({ "key": key.to_string(), "requests_s": requests_s, "share": share })
}

fn large(large: &LargeKey) -> Value {
    let LargeKey { key, bytes, requests, idle_s } = large;
    json!({ "key": key.to_string(), "bytes": bytes, "requests": requests, "idle_s": idle_s })
}

fn slow(slow: &SlowRequest) -> Value {
    let SlowRequest { number, unix_s, duration_us, command, key, bytes, client } = slow;
    json!({
        "number": number, "time": unix_s, "us": duration_us, "command": command,
        "key": key.to_string(), "bytes": bytes, "client": client,
    })
}
