//! The body of a request.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::{
    StatusCode,
    body::{Bytes, Incoming},
};
use tokio::time::{Instant, timeout_at};

use super::{
    Endpoint,
    reply::{self, Reply},
};

/// Largest body of a request, in bytes.
const BODY_BYTES_MAX: usize = 4 << 10;

/// Reads a body, which has to arrive by `arrived_by`; otherwise the answer that says why not.
pub(super) async fn read(body: Incoming, endpoint: &Endpoint, arrived_by: Instant) -> Result<Bytes, Reply> {
    match timeout_at(arrived_by, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            endpoint.counters.admin_body_too_large.count();
            let text = format!("a body has at most {BODY_BYTES_MAX} bytes");
            Err(reply::error(StatusCode::PAYLOAD_TOO_LARGE, &text))
        }
        Ok(Err(error)) => Err(reply::error(StatusCode::BAD_REQUEST, &error.to_string())),
        Err(_) => {
            endpoint.counters.admin_timeouts.count();
            let text = "the body did not arrive in time; see --admin-timeout";
            Err(reply::error(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}
