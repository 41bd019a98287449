//! One connection to the admin endpoint: one request, within bounds.

use std::{cell::Cell, convert::Infallible, rc::Rc, time::Duration};

use hyper::{Request, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::watch,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;

use super::{Endpoint, FAREWELL, reply, routes};

/// Largest head of a request, in bytes; the smallest that hyper takes.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most header fields of a request.
const HEADERS_MAX: usize = 64;

/// A stream socket of either kind.
pub(super) type Stream = Box<dyn ReadWrite>;

/// The traits that HTTP needs of a stream.
pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ReadWrite for T {}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its head arrives.
    Head,
    /// It is being served; the handler bounds the time.
    Work,
    /// Its answer is being sent.
    Answer,
}

/// Serves a connection, over TLS if the endpoint speaks it. A handshake takes its time from the request's. `has_asked`
/// becomes true with the head of the request.
pub(super) async fn admit(stream: Stream, endpoint: Rc<Endpoint>, has_asked: Rc<Cell<bool>>) {
    let arrived_by = Instant::now() + endpoint.options.admin_timeout;
    let Some(acceptor) = &endpoint.acceptor else {
        return serve(stream, endpoint, arrived_by, &has_asked).await;
    };
    let handshake = TlsAcceptor::from(acceptor.config()).accept(stream);
    match timeout_at(arrived_by, handshake).await {
        Ok(Ok(secured)) => serve(Box::new(secured), endpoint, arrived_by, &has_asked).await,
        Ok(Err(error)) => {
            endpoint.counters.admin_tls_refused.count();
            tracing::debug!(%error, "a client of the admin endpoint is refused");
        }
        Err(_) => endpoint.counters.admin_timeouts.count(),
    }
}

async fn serve(stream: Stream, endpoint: Rc<Endpoint>, arrived_by: Instant, has_asked: &Cell<bool>) {
    let (stage, mut stages) = watch::channel(Stage::Head);
    let service = service_fn(|request: Request<Incoming>| {
        has_asked.set(true);
        stage.send_replace(Stage::Work);
        let (endpoint, stage) = (Rc::clone(&endpoint), stage.clone());
        async move {
            let answer = routes::answer(request, &endpoint, arrived_by).await;
            stage.send_replace(Stage::Answer);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    loop {
        let now = *stages.borrow_and_update();
        let deadline = match now {
            Stage::Head => Some(arrived_by),
            Stage::Work => None,
            Stage::Answer => Some(Instant::now() + endpoint.options.admin_timeout),
        };
        tokio::select! {
            // Input that is not HTTP was answered by hyper, with 400 or 431.
            _ = &mut connection => return,
            _ = stages.changed() => {}
            () = passed(deadline) => {
                endpoint.counters.admin_timeouts.count();
                if now == Stage::Head {
                    let stream = connection.into_parts().io.into_inner();
                    let text = "the request did not arrive in time; see --admin-timeout";
                    say(stream, StatusCode::REQUEST_TIMEOUT, text, FAREWELL).await;
                }
                return;
            }
        }
    }
}

/// Sends an error, then waits at most `limit` for the client to close. Closing a connection with unread input
/// would make the kernel reset it, and the client might never read the answer.
pub(super) async fn say(mut stream: Stream, status: StatusCode, text: &str, limit: Duration) {
    let told = async {
        stream.write_all(&reply::composed(status, text)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // A client that is gone needs no answer.
    let _ = timeout(limit, told).await;
}

/// Waits until `deadline`, or forever if there is none.
async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
