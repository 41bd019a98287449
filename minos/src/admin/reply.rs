//! Bodies of requests to the admin endpoint, and its answers.

use std::fmt::Display;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::{self, HeaderValue},
};
use serde::Serialize;
use serde_json::json;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::Endpoint;

/// A complete answer.
pub(super) type Reply = Response<Full<Bytes>>;

/// The status and the text of an answer that is an error.
pub(super) type Refusal = (StatusCode, String);

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Reply {
    match serde_json::to_string_pretty(body) {
        Ok(text) => with(status, "application/json", text + "\n"),
        Err(error) => with(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n")),
    }
}

pub(super) fn error(status: StatusCode, text: &str) -> Reply {
    json(status, &json!({ "error": text }))
}

/// The answer to a method that the path does not support.
pub(super) fn not_allowed(allowed: &'static str) -> Reply {
    let mut reply = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {allowed}"));
    reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// The answer to a change without the token.
pub(super) fn unauthorized() -> Reply {
    let mut reply = error(StatusCode::UNAUTHORIZED, "a change needs the token of --admin-token-file");
    reply.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    reply
}

pub(super) fn with(status: StatusCode, content_type: &'static str, text: String) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// An error as raw bytes, for a connection whose request is not read.
pub(super) fn composed(status: StatusCode, text: &str) -> Vec<u8> {
    let body = format!("{:#}\n", json!({ "error": text }));
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    format!("{head}connection: close\r\n\r\n{body}").into_bytes()
}

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 4 << 10;

/// Reads a body, which has to arrive by `arrived_by`; otherwise the answer that says why not.
pub(super) async fn body(body: Incoming, endpoint: &Endpoint, arrived_by: Instant) -> Result<Bytes, Refusal> {
    match timeout_at(arrived_by, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            endpoint.counters.admin_body_too_large.count();
            Err((StatusCode::PAYLOAD_TOO_LARGE, format!("a body has at most {BODY_BYTES_MAX} bytes")))
        }
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, error.to_string())),
        Err(_) => {
            endpoint.counters.admin_timeouts.count();
            let text = "the body did not arrive in time; see --admin-timeout";
            Err((StatusCode::REQUEST_TIMEOUT, text.to_owned()))
        }
    }
}

/// Runs `work`, which may block, beside the other requests; an error becomes the answer.
pub(super) async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
    status_of: fn(&E) -> StatusCode,
) -> Result<T, Refusal>
where
    T: Send + 'static,
    E: Display + Send + 'static,
{
    match spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| (status_of(&error), error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}
