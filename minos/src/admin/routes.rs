//! The paths of the admin endpoint.

use hyper::{Method, Request, StatusCode, body::Incoming};
use tokio::time::Instant;

use super::{
    Endpoint, dispatch, flash, metrics, origin, page,
    reply::{self, Refusal, Reply},
    settings, snapshot, statistics, watch,
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
    // The connection leaves the body out.
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    // Nothing is read before it is awaited.
    let body = reply::body(request.into_body(), endpoint, arrived_by);
    Ok(match (path, method.as_str()) {
        ("/dispatch", "GET") => dispatch::show(endpoint),
        ("/dispatch", "PUT") => dispatch::switch(&body.await?, endpoint).await?,
        ("/dispatch", _) => reply::not_allowed("GET, PUT"),
        ("/flash", "GET") => flash::show(endpoint)?,
        ("/flash", "PUT") => flash::change(&body.await?, endpoint).await?,
        ("/flash", _) => reply::not_allowed("GET, PUT"),
        ("/settings", "GET") => settings::show(endpoint),
        ("/settings", "PUT") => settings::change(&body.await?, endpoint).await?,
        ("/settings", _) => reply::not_allowed("GET, PUT"),
        ("/snapshot", "GET") => snapshot::show(endpoint)?,
        ("/snapshot", "POST") => snapshot::begin(&body.await?, endpoint).await?,
        ("/snapshot", "DELETE") => snapshot::cancel(endpoint)?,
        ("/snapshot", _) => reply::not_allowed("GET, POST, DELETE"),
        ("/slow", "GET") => watch::show_slow(endpoint),
        ("/slow", "PUT") => watch::change_slow(&body.await?, endpoint)?,
        ("/slow", "DELETE") => watch::clear_slow(endpoint),
        ("/slow", _) => reply::not_allowed("GET, PUT, DELETE"),
        _ => match view(path, endpoint) {
            Some(reply) if method == Method::GET => reply,
            Some(_) => reply::not_allowed("GET"),
            None => {
                let text = format!(
                    "there is no {path}; there are /, /now, /hot, /large, /slow, /stats, /stats/GROUP, /metrics, /healthz, \
                     /readyz, /dispatch, /flash, /settings and /snapshot"
                );
                reply::error(StatusCode::NOT_FOUND, &text)
            }
        },
    })
}

/// The answer at a path that only shows something; `None` if there is none.
fn view(path: &str, endpoint: &Endpoint) -> Option<Reply> {
    Some(match path {
        "/metrics" => metrics::show(endpoint),
        "/stats" => statistics::show(endpoint, statistics::GENERAL),
        "/now" => watch::now(endpoint),
        "/hot" => watch::show_hot(endpoint),
        "/large" => watch::show_large(endpoint),
        "/healthz" => watch::health(endpoint),
        "/readyz" => watch::readiness(endpoint),
        _ => match path.strip_prefix("/stats/") {
            Some(group) => statistics::show(endpoint, group),
            None => page::file(path)?,
        },
    })
}
