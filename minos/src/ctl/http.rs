//! One request to an admin endpoint.

use std::time::Duration;

use anyhow::{Context, anyhow};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use minos_net::Address;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    runtime,
    time::timeout,
};

use super::server::Trust;
use crate::admin::AdminAddress;

/// Longest answer that is read, in bytes: more than the statistics of a million connections.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A request to the admin endpoint.
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: String,
}

impl Question {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: String::new() }
    }
}

/// The server's answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

/// Sends a request to `server`, over TLS if it is to be trusted by that, with its token if there is one, and waits at
/// most `limit` for the answer.
///
/// # Errors
/// Nothing listens there, the server is another one or does not speak HTTP, or the answer is late.
pub(super) fn ask(
    (server, trust, token): (&AdminAddress, Option<Trust>, Option<&str>),
    limit: Duration,
    question: Question,
) -> anyhow::Result<Answer> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = connect_and_ask((server, trust, token), question);
    let answer = runtime.block_on(async { timeout(limit, asked).await });
    answer.map_err(|_| anyhow!("{server} did not answer within {}", humantime::format_duration(limit)))?
}

async fn connect_and_ask(
    (server, trust, token): (&AdminAddress, Option<Trust>, Option<&str>),
    question: Question,
) -> anyhow::Result<Answer> {
    let nobody = || format!("cannot connect to {server}: is there a `minos serve --admin {server}`?");
    let answer = match (&server.address, trust) {
        (Address::Tcp(address), trust) => {
            let stream = TcpStream::connect(address).await.with_context(nobody)?;
            let host = (&*address.to_string(), token);
            match trust {
                None => ask_by(stream, host, question).await,
                Some((connector, name)) => {
                    let secured = connector.connect(name, stream).await;
                    let secured = secured.with_context(|| format!("{server} is not trusted"))?;
                    ask_by(secured, host, question).await
                }
            }
        }
        (Address::Unix(path), _) => {
            let stream = UnixStream::connect(path).await.with_context(nobody)?;
            ask_by(stream, ("localhost", token), question).await
        }
    };
    answer.with_context(|| format!("{server} does not answer as an admin endpoint does"))
}

async fn ask_by<S>(
    stream: S,
    (host, token): (&str, Option<&str>),
    question: Question,
) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Its errors show up in the request.
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(question.method)
        .uri(question.path)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Full::new(Bytes::from(question.body)))?).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!(error))?.to_bytes().to_vec();
    Ok(Answer { status, body })
}
