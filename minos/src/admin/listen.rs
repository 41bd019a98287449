//! The listener of the admin endpoint, and its connection limit.

use std::{cell::Cell, collections::VecDeque, io, net, os::fd::AsFd, os::unix, rc::Rc, time::Duration};

use hyper::StatusCode;
use minos_net::{Address, Listener};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::oneshot,
    task::{AbortHandle, JoinSet, LocalSet},
    time::{sleep, timeout},
};

use super::{
    Endpoint, FAREWELL,
    connection::{self, Stream, say},
};

/// Wait after a failed accept: the process may have run out of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Clients that are being refused at a time; connections beyond them are reset.
const REFUSALS_MAX: usize = 64;

/// A listening socket of either kind, as tokio polls it.
enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Serves connections until `stopped`; open connections then get a little time to finish.
pub(super) async fn serve_until(mut stopped: oneshot::Receiver<()>, listener: Listener, endpoint: Endpoint) {
    let endpoint = Rc::new(endpoint);
    let mut connections = JoinSet::new();
    let tasks = LocalSet::new();
    let accepting = async {
        tokio::select! {
            // The sender sends nothing; dropping it stops the loop.
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

/// Connections whose requests have not arrived, oldest first. Each tells by itself when that is over.
#[derive(Default)]
struct Silent(VecDeque<(Rc<Cell<bool>>, AbortHandle)>);

impl Silent {
    /// Forgets those that have asked or ended.
    fn forget_past(&mut self) {
        self.0.retain(|(has_asked, task)| !has_asked.get() && !task.is_finished());
    }

    /// Gives the oldest one up; false if there is none. Whoever sends nothing keeps no honest client out, which asks at once.
    fn give_up_oldest(&mut self) -> bool {
        self.0.pop_front().map(|(_, task)| task.abort()).is_some()
    }
}

/// Accepts connections. Above the limit it gives up the oldest one that has not asked, or refuses the new one with an answer.
async fn accept_all(
    listener: &Listener,
    endpoint: &Rc<Endpoint>,
    connections: &mut JoinSet<()>,
) -> io::Result<()> {
    let door = Door::of(listener)?;
    let (mut refusals, mut silent) = (JoinSet::new(), Silent::default());
    loop {
        match door.accept().await {
            Ok(stream) => {
                while connections.try_join_next().is_some() || refusals.try_join_next().is_some() {}
                silent.forget_past();
                let is_full = connections.len() >= endpoint.options.admin_connections;
                if is_full {
                    endpoint.counters.admin_connections_rejected.count();
                }
                if !is_full || silent.give_up_oldest() {
                    if is_full {
                        // It ends at once.
                        connections.join_next().await;
                    }
                    let has_asked = Rc::new(Cell::new(false));
                    let admitted = connection::admit(stream, Rc::clone(endpoint), Rc::clone(&has_asked));
                    silent.0.push_back((has_asked, connections.spawn_local(admitted)));
                } else if refusals.len() < REFUSALS_MAX && endpoint.acceptor.is_none() {
                    // Over TLS nothing can be said before a handshake, which is what there are too many of.
                    let text = "too many connections at a time; see --admin-connections";
                    let status = StatusCode::SERVICE_UNAVAILABLE;
                    refusals.spawn_local(say(stream, status, text, endpoint.options.admin_timeout));
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the admin endpoint took no connection");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

impl Door {
    /// Duplicates the descriptor of `listener`, which still removes its path.
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
