//! The paths of the admin endpoint.

use hyper::{Method, Request, StatusCode, body::Incoming};
use tokio::time::Instant;

use super::{
    Endpoint, dispatch, flash, metrics, origin,
    reply::{self, Reply},
    snapshot, statistics,
};

/// Answers a request, whose body has to arrive by `arrived_by`.
pub(super) async fn answer(request: Request<Incoming>, endpoint: &Endpoint, arrived_by: Instant) -> Reply {
    endpoint.counters.admin_requests.count();
    let path = request.uri().path().to_owned();
    let reply = match origin::refusal(&request, &endpoint.options.admin_host) {
        None => route(request, &path, endpoint, arrived_by).await,
        Some(text) => {
            endpoint.counters.admin_foreign.count();
            reply::error(StatusCode::FORBIDDEN, &text)
        }
    };
    tracing::debug!(path, status = reply.status().as_u16(), "admin request");
    reply
}

async fn route(request: Request<Incoming>, path: &str, endpoint: &Endpoint, arrived_by: Instant) -> Reply {
    let is_get = request.method() == Method::GET;
    match path {
        "/dispatch" if is_get => dispatch::show(endpoint),
        "/dispatch" if request.method() == Method::PUT => {
            dispatch::switch(request.into_body(), endpoint, arrived_by).await
        }
        "/dispatch" => reply::not_allowed("GET, PUT"),
        "/flash" if is_get => flash::show(endpoint),
        "/flash" if request.method() == Method::PUT => {
            flash::change(request.into_body(), endpoint, arrived_by).await
        }
        "/flash" => reply::not_allowed("GET, PUT"),
        "/snapshot" if is_get => snapshot::show(endpoint),
        "/snapshot" if request.method() == Method::POST => {
            snapshot::begin(request.into_body(), endpoint, arrived_by).await
        }
        "/snapshot" if request.method() == Method::DELETE => snapshot::cancel(endpoint),
        "/snapshot" => reply::not_allowed("GET, POST, DELETE"),
        "/metrics" if is_get => metrics::show(endpoint),
        "/stats" if is_get => statistics::show(endpoint, statistics::GENERAL),
        "/metrics" | "/stats" => reply::not_allowed("GET"),
        _ => match path.strip_prefix("/stats/") {
            Some(group) if is_get => statistics::show(endpoint, group),
            Some(_) => reply::not_allowed("GET"),
            None => {
                let text = format!(
                    "there is no {path}; there are /stats, /stats/GROUP, /metrics, /dispatch, /flash and /snapshot"
                );
                reply::error(StatusCode::NOT_FOUND, &text)
            }
        },
    }
}
