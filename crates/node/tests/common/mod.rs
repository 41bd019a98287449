//! A server in this process, and a client that speaks to it.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use minos_engine::{Store, StoreConfig};
use minos_net::Address;
use minos_node::{Server, ServerConfig};

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) store: Arc<Store>,
}

impl TestServer {
    /// A server on a free port, with a store of `memory_bytes`.
    pub(crate) fn with_memory(memory_bytes: u64, mut config: ServerConfig) -> Self {
        config.memcached = vec!["127.0.0.1:0".parse().unwrap()];
        config.pin = false;
        let store = Arc::new(Store::create(&StoreConfig::new(memory_bytes)).unwrap());
        let server = Server::start(config, Arc::clone(&store)).unwrap();
        Self { server, store }
    }

    /// A client that gives up when it has to wait for longer than `patience`.
    pub(crate) fn connect_for(&self, patience: Duration) -> Client {
        let Address::Tcp(address) = self.server.addresses()[0].clone() else { panic!("no TCP address") };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        Client { reader: BufReader::new(stream) }
    }
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
