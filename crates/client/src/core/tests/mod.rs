//! Tests of the core against a fake server, in virtual time.

mod large;
mod leaving;
pub(crate) mod server;
mod small;
mod strange;

use std::{collections::HashMap, net::SocketAddr};

use minos_proto::native::SealKeys;

use self::server::{Answer, Server};
use super::{Completion, Core, OpId};
use crate::{Config, Error, Outcome, Request, Value, Verb};

/// Secrets of tests.
const ROSE: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const DAISY: &str = "8:102132435465768798a9bacbdcedfe0fefcdab89674523011032547698badcfe";

/// Travel time of a datagram.
const TRAVEL_NS: u64 = 25_000;
/// Steps after which a run counts as endless.
const STEPS_MAX: usize = 100_000;

/// The fate of a datagram in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    Lost,
    Twice,
}

/// A client, a server, and the network between them.
struct World {
    core: Core,
    server: Server,
    now_ns: u64,
    /// Datagrams in flight to the client.
    coming: Vec<Answer>,
    results: HashMap<OpId, Result<Outcome, Error>>,
    order: Vec<OpId>,
}

impl World {
    fn new(config: Config) -> Self {
        Self::with_server(config, Server::new())
    }

    /// A client and a server that share a secret.
    fn sealed() -> Self {
        let (config, server) = sealed_server();
        Self::with_server(config, server)
    }

    fn with_server(config: Config, server: Server) -> Self {
        let core = Core::new(config, Server::address(0), 11, 1000).unwrap();
        Self { core, server, now_ns: 1000, coming: Vec::new(), results: HashMap::new(), order: Vec::new() }
    }

    fn submit(&mut self, request: Request) -> OpId {
        let id = self.core.submit(request, self.now_ns).unwrap();
        self.order.push(id);
        id
    }

    /// Runs until all operations have ended. `fate` decides about each datagram; its first argument is true
    /// for those to the client.
    fn run(&mut self, mut fate: impl FnMut(bool, &[u8]) -> Fate) {
        for _ in 0..STEPS_MAX {
            self.take_completions();
            if self.core.unfinished() == 0 {
                return;
            }
            self.core.on_timer(self.now_ns);
            let sent = self.sent();
            for (to, datagram) in &sent {
                for _ in 0..copies(fate(false, datagram)) {
                    self.coming.extend(self.server.answer(*to, datagram));
                }
            }
            if self.coming.is_empty() && sent.is_empty() {
                // No timer is left once the last operation has ended, as it may have just now.
                self.now_ns = self.core.next_timer().unwrap_or(0).max(self.now_ns + 1);
            } else {
                self.now_ns += 2 * TRAVEL_NS;
            }
            for (from, datagram) in std::mem::take(&mut self.coming) {
                for _ in 0..copies(fate(true, &datagram)) {
                    self.receive(from, &datagram);
                }
            }
        }
        panic!("it goes on for ever");
    }

    /// Runs without faults until all operations have ended.
    fn finish(&mut self) {
        self.run(|_, _| Fate::Arrives);
    }

    fn receive(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.core.receive(from, datagram, datagram.len(), self.now_ns);
    }

    fn receive_all(&mut self, answers: Vec<Answer>) {
        answers.iter().for_each(|(from, answer)| self.receive(*from, answer));
    }

    /// The server's answers to all that the client sends now.
    fn answers(&mut self) -> Vec<Answer> {
        self.sent().iter().flat_map(|(to, datagram)| self.server.answer(*to, datagram)).collect()
    }

    /// All datagrams that the client sends now, one by one.
    fn sent(&mut self) -> Vec<Answer> {
        let mut sent = Vec::new();
        while let Some(train) = self.core.poll_transmit(self.now_ns) {
            let datagrams = train.bytes.chunks(train.segment_bytes);
            sent.extend(datagrams.map(|datagram| (train.to, datagram.to_vec())));
        }
        sent
    }

    fn take_completions(&mut self) {
        while let Some(Completion { id, result, .. }) = self.core.poll_completion() {
            assert!(self.results.insert(id, result).is_none(), "it ended twice");
        }
    }

    /// Submits `request` and runs without faults.
    fn call(&mut self, request: Request) -> Result<Outcome, Error> {
        let id = self.submit(request);
        self.finish();
        self.results[&id].clone()
    }
}

fn copies(fate: Fate) -> usize {
    match fate {
        Fate::Arrives => 1,
        Fate::Lost => 0,
        Fate::Twice => 2,
    }
}

/// A server with a secret, and the configuration of a client that knows it.
fn sealed_server() -> (Config, Server) {
    let secret = ROSE.parse().unwrap();
    let mut server = Server::new();
    server.secret = Some(SealKeys::of(&secret));
    (Config::new().secret(&secret), server)
}

fn get(key: &str) -> Request {
    Request::new(Verb::Get, key)
}

fn put(key: &str, value: impl Into<Vec<u8>>) -> Request {
    Request::new(Verb::Put, key).value(value)
}

fn incr(key: &str) -> Request {
    Request::new(Verb::Incr, key).operand(1)
}

fn bytes_of(result: &Result<Outcome, Error>) -> &[u8] {
    match result {
        Ok(Outcome::Value(Value { bytes, .. })) => bytes,
        other => panic!("no value but {other:?}"),
    }
}

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], server::BASE_PORT))
}
