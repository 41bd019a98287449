//! The paths of the admin endpoint.

use hyper::{Method, Request, StatusCode, body::Incoming};
use tokio::time::Instant;

use super::{
    Endpoint, dispatch, flash, metrics, origin,
    reply::{self, Refusal, Reply},
    snapshot, statistics,
};

/// Answers a request, whose body has to arrive by `arrived_by`.
pub(super) async fn answer(request: Request<Incoming>, endpoint: &Endpoint, arrived_by: Instant) -> Reply {
    endpoint.counters.admin_requests.count();
    let path = request.uri().path().to_owned();
    let reply = match origin::refusal(&request, &endpoint.options.admin_host) {
        None if lacks_token(&request, endpoint) => {
            endpoint.counters.admin_unauthorized.count();
            reply::unauthorized()
        }
        None => route(request, &path, endpoint, arrived_by)
            .await
            .unwrap_or_else(|(status, text)| reply::error(status, &text)),
        Some(text) => {
            endpoint.counters.admin_foreign.count();
            reply::error(StatusCode::FORBIDDEN, &text)
        }
    };
    tracing::debug!(path, status = reply.status().as_u16(), "admin request");
    reply
}

/// True for a change that needs a token and has not the right one. No GET changes anything.
fn lacks_token(request: &Request<Incoming>, endpoint: &Endpoint) -> bool {
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
    is_change && endpoint.token.as_ref().is_some_and(|token| !token.is_in(request.headers()))
}

/// Answers a request of this endpoint's own, or says what is wrong with it.
async fn route(
    request: Request<Incoming>,
    path: &str,
    endpoint: &Endpoint,
    arrived_by: Instant,
) -> Result<Reply, Refusal> {
    let method = request.method().clone();
    // Nothing is read before it is awaited.
    let body = reply::body(request.into_body(), endpoint, arrived_by);
    Ok(match (path, method.as_str()) {
        ("/dispatch", "GET") => dispatch::show(endpoint),
        ("/dispatch", "PUT") => dispatch::switch(&body.await?, endpoint).await?,
        ("/dispatch", _) => reply::not_allowed("GET, PUT"),
        ("/flash", "GET") => flash::show(endpoint)?,
        ("/flash", "PUT") => flash::change(&body.await?, endpoint).await?,
        ("/flash", _) => reply::not_allowed("GET, PUT"),
        ("/snapshot", "GET") => snapshot::show(endpoint)?,
        ("/snapshot", "POST") => snapshot::begin(&body.await?, endpoint).await?,
        ("/snapshot", "DELETE") => snapshot::cancel(endpoint)?,
        ("/snapshot", _) => reply::not_allowed("GET, POST, DELETE"),
        ("/metrics", "GET") => metrics::show(endpoint),
        ("/stats", "GET") => statistics::show(endpoint, statistics::GENERAL),
        ("/metrics" | "/stats", _) => reply::not_allowed("GET"),
        _ => match path.strip_prefix("/stats/") {
            Some(group) if method == Method::GET => statistics::show(endpoint, group),
            Some(_) => reply::not_allowed("GET"),
            None => {
                let text = format!(
                    "there is no {path}; there are /stats, /stats/GROUP, /metrics, /dispatch, /flash and /snapshot"
                );
                reply::error(StatusCode::NOT_FOUND, &text)
            }
        },
    })
}
