//! A server in this process and a client of it.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use minos_engine::{Engine, Mode, StoreConfig};
use minos_net::Address;
use minos_node::{Server, ServerConfig};

/// Time after which a client gives up. Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) pinned: Box<dyn Fn() -> u64 + Sync>,
}

impl TestServer {
    /// A server on a free port with a store of `memory_bytes`.
    pub(crate) fn with_memory<M: Mode>(memory_bytes: u64, mut config: ServerConfig) -> Self {
        let owners = config.control.workers as u32;
        config.memcached = vec!["127.0.0.1:0".parse().unwrap()];
        config.pin = false;
        let store =
            Arc::new(Engine::<M>::create(&StoreConfig { owners, ..StoreConfig::new(memory_bytes) }).unwrap());
        let server = Server::start(config, Arc::clone(&store)).unwrap();
        Self { server, pinned: Box::new(move || store.stats().pinned) }
    }

    /// Items pinned because they are being sent.
    pub(crate) fn pinned(&self) -> u64 {
        (self.pinned)()
    }

    pub(crate) fn connect(&self) -> Client {
        connect(&self.server)
    }
}

/// A client of a server in this process.
pub(crate) fn connect(server: &Server) -> Client {
    let Address::Tcp(address) = server.addresses()[0].clone() else { panic!("no TCP address") };
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    Client { reader: BufReader::new(stream) }
}

pub(crate) struct Client {
    pub(crate) reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line
    }
}
