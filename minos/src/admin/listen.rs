//! Who may connect to the admin endpoint.

use std::{io, net, os::fd::AsFd, os::unix, rc::Rc, time::Duration};

use hyper::StatusCode;
use minos_net::{Address, Listener};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixListener},
    sync::oneshot,
    task::{JoinSet, LocalSet},
    time::{sleep, timeout},
};

use super::{Endpoint, FAREWELL, connection, reply};

/// Time to wait when no connection can be taken: the process may have no descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Clients that are being told at a time that they are too many; those beyond them see their connection reset.
const REFUSALS_MAX: usize = 64;

/// A stream socket of either kind.
pub(super) type Stream = Box<dyn ReadWrite>;

/// What HTTP needs of a stream.
pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> ReadWrite for T {}

/// A listening socket of either kind, as tokio polls it.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves connections until `stopped`; those under way then get a little time to end.
pub(super) async fn serve_until(mut stopped: oneshot::Receiver<()>, listener: Listener, endpoint: Endpoint) {
    let endpoint = Rc::new(endpoint);
    let mut connections = JoinSet::new();
    let tasks = LocalSet::new();
    let accepting = async {
        tokio::select! {
            // The sender sends nothing; it is dropped.
            _ = &mut stopped => {}
            Err(error) = accept_all(&listener, &endpoint, &mut connections) => {
                tracing::error!(%error, address = %endpoint.address, "the admin endpoint serves nobody");
            }
        }
    };
    tasks.run_until(accepting).await;
    drop(listener);
    let finished = tasks.run_until(async { while connections.join_next().await.is_some() {} });
    if timeout(FAREWELL, finished).await.is_err() {
        tracing::debug!("requests to the admin endpoint were given up");
    }
}

/// Takes connections, and tells those who are too many.
///
/// # Errors
/// The listener cannot be polled.
async fn accept_all(
    listener: &Listener,
    endpoint: &Rc<Endpoint>,
    connections: &mut JoinSet<()>,
) -> io::Result<()> {
    let door = Door::of(listener)?;
    let mut refusals = JoinSet::new();
    loop {
        match door.accept().await {
            Ok(stream) => {
                while connections.try_join_next().is_some() || refusals.try_join_next().is_some() {}
                if connections.len() < endpoint.options.admin_connections {
                    connections.spawn_local(connection::serve(stream, Rc::clone(endpoint)));
                } else {
                    endpoint.counters.admin_connections_rejected.count();
                    if refusals.len() < REFUSALS_MAX {
                        let text = "too many connections at a time; see --admin-connections";
                        let status = StatusCode::SERVICE_UNAVAILABLE;
                        refusals.spawn_local(say(stream, status, text, endpoint.options.admin_timeout));
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the admin endpoint took no connection");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Tells a client what is wrong, and waits for at most `limit` until it leaves: if it were left with bytes of it
/// unread, the kernel would reset the connection, and it might never read what it was told.
pub(super) async fn say(mut stream: Stream, status: StatusCode, text: &str, limit: Duration) {
    let told = async {
        stream.write_all(&reply::composed(status, text)).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    // A client that is gone needs not be told.
    let _ = timeout(limit, told).await;
}

impl Door {
    /// Another descriptor of `listener`, which stays the one that removes its path.
    fn of(listener: &Listener) -> io::Result<Self> {
        let descriptor = listener.as_fd().try_clone_to_owned()?;
        Ok(match listener.address() {
            Address::Tcp(_) => Self::Tcp(TcpListener::from_std(net::TcpListener::from(descriptor))?),
            Address::Unix(_) => {
                Self::Unix(UnixListener::from_std(unix::net::UnixListener::from(descriptor))?)
            }
        })
    }

    async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}
