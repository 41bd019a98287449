//! Answers of the admin endpoint.

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{self, HeaderValue},
};
use serde::Serialize;
use serde_json::json;

/// A complete answer.
pub(super) type Reply = Response<Full<Bytes>>;

/// `body` as JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Reply {
    match serde_json::to_string_pretty(body) {
        Ok(text) => with(status, "application/json", text + "\n"),
        Err(error) => with(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", format!("{error}\n")),
    }
}

/// An error, as `{"error": text}`.
pub(super) fn error(status: StatusCode, text: &str) -> Reply {
    json(status, &json!({ "error": text }))
}

/// The answer to a method that the path does not support.
pub(super) fn not_allowed(allowed: &'static str) -> Reply {
    let mut reply = error(StatusCode::METHOD_NOT_ALLOWED, &format!("this path takes {allowed}"));
    reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// `text` with the type `content_type`.
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
