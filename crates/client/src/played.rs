//! The played server behind a real socket.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use minos_proto::native::WelcomeFlags;

use crate::{Config, core::tests::server::Server};

/// How long the server waits for a datagram before it checks for its end.
const WAIT: Duration = Duration::from_millis(5);

/// Options of a client that waits long and tries again soon.
pub(crate) fn patient() -> Config {
    Config::new()
        .timeout(Duration::from_secs(20))
        .retry_between(Duration::from_millis(5), Duration::from_millis(50))
}

/// A server in a thread of its own, on one port. It ends when dropped.
pub(crate) struct Played {
    pub(crate) address: SocketAddr,
    losses: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Server>>,
}

impl Played {
    /// Serves until dropped. Datagrams for whose number, from 0 on, `loses` returns true are lost.
    pub(crate) fn start(loses: impl Fn(usize) -> bool + Send + 'static) -> Self {
        let played = Self::start_honest(loses);
        played.begin_losses();
        played
    }

    /// The same, but nothing is lost, or counted, until the losses begin. A client that connects repeats what is answered
    /// late, so how many datagrams that takes depends on the machine.
    pub(crate) fn start_honest(loses: impl Fn(usize) -> bool + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        let address = socket.local_addr().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let losses = Arc::new(AtomicBool::new(false));
        let have_begun = Arc::clone(&losses);
        let thread = thread::spawn(move || {
            let mut server = Server::new();
            server.welcome.base_port = address.port();
            server.welcome.flags = WelcomeFlags::SINGLE_PORT;
            let mut bytes = vec![0; 65_536];
            let mut count = 0;
            while !until.load(Ordering::Acquire) {
                let Ok((length, peer)) = socket.recv_from(&mut bytes) else { continue };
                if have_begun.load(Ordering::Acquire) {
                    count += 1;
                    if loses(count - 1) {
                        continue;
                    }
                }
                for (_, answer) in server.answer(Server::address(0), &bytes[..length]) {
                    socket.send_to(&answer, peer).unwrap();
                }
            }
            server
        });
        Self { address, losses, ends, thread: Some(thread) }
    }

    pub(crate) fn begin_losses(&self) {
        self.losses.store(true, Ordering::Release);
    }

    pub(crate) fn end(mut self) -> Server {
        self.ends.store(true, Ordering::Release);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
    }
}
