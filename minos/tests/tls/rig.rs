//! A server over TLS, and the certificates of its authority.

use std::{
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Server};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring, pki_types::CertificateDer,
};
use tempfile::TempDir;

use crate::common;

/// Time for what must happen.
const WITHIN: Duration = Duration::from_secs(60);

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// The interpreter that `cargo xtask setup` makes, with pymemcache.
pub(crate) fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/venv/bin/python")
}

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Its own certificate, in PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes a certificate for localhost and its key to `folder`; returns their paths.
    pub(crate) fn certificate_in(&self, folder: &Path, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |kind: &str| folder.join(format!("{name}.{kind}")).to_str().unwrap().to_owned();
        let paths = (path("cert"), path("key"));
        fs::write(&paths.0, cert.pem()).unwrap();
        fs::write(&paths.1, key.serialize_pem()).unwrap();
        paths
    }
}

pub(crate) struct Rig {
    pub(crate) authority: Authority,
    server: Server,
    /// Where it speaks without TLS.
    pub(crate) plain: SocketAddr,
    folder: TempDir,
}

impl Rig {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_with(options, false)
    }

    pub(crate) fn with_client_certificates() -> Self {
        Self::start_with(&[], true)
    }

    pub(crate) fn with_client_certificates_and(options: &[&str]) -> Self {
        Self::start_with(options, true)
    }

    /// The rest of the line of the log that begins with `start`, once it is there.
    pub(crate) fn line(&self, start: &str) -> String {
        let found = || {
            let log = self.server.log();
            let whole = log.rsplit_once('\n').map_or("", |(lines, _)| lines);
            whole.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned)
        };
        self.until(start, || found().is_some());
        found().unwrap_or_default()
    }

    fn start_with(options: &[&str], asks: bool) -> Self {
        let (authority, folder) = (Authority::new(), TempDir::new().unwrap());
        let (cert, key) = authority.certificate_in(folder.path(), "server");
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, authority.issuer.pem()).unwrap();
        let mut all = vec![format!("--tls-cert={cert}"), format!("--tls-key={key}")];
        if asks {
            all.push(format!("--tls-client-ca={}", ca.display()));
        }
        all.extend(["--memcached=notls:127.0.0.2:0", "--memory=256m", "--pin=off"].map(str::to_owned));
        all.extend(options.iter().map(|&option| option.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let server = Server::minos(&common::program(), &all).unwrap_or_else(|error| panic!("{error}"));
        let plain = Self::plain_in(&server);
        Self { authority, server, plain, folder }
    }

    fn plain_in(server: &Server) -> SocketAddr {
        let deadline = Instant::now() + WITHIN;
        loop {
            let log = server.log();
            let found = log.lines().find_map(|line| line.strip_prefix("listening on memcached 127.0.0.2:"));
            if let Some(port) = found.and_then(|port| port.parse().ok()) {
                return SocketAddr::from(([127, 0, 0, 2], port));
            }
            assert!(Instant::now() < deadline, "{log}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn authority_file(&self) -> PathBuf {
        self.folder().join("ca.pem")
    }

    /// A counter of `stats minos`, asked for without TLS.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let stats = Client::connect(self.plain).unwrap().stats("minos").unwrap();
        let (_, value) = stats.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}"));
        value.parse().unwrap()
    }

    /// Waits until a counter has at least this value.
    pub(crate) fn wait_for(&self, name: &str, value: u64) {
        self.until(&format!("{name} {value}"), || self.stat(name) >= value);
    }

    /// Waits until the log has `line` and `is_so`.
    pub(crate) fn wait_until(&self, line: &str, is_so: impl Fn() -> bool) {
        self.until(line, || self.server.log().contains(line) && is_so());
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + WITHIN;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn hang_up(&self) {
        kill_process(Pid::from_raw(self.server.pid() as i32).unwrap(), Signal::HUP).unwrap();
    }

    fn client(&self) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.issuer.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// The first bytes of a client.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut hello = Vec::new();
        self.client().write_tls(&mut hello).unwrap();
        hello
    }

    pub(crate) fn connect(&self) -> Secured {
        self.connect_to(self.address())
    }

    pub(crate) fn connect_to(&self, address: SocketAddr) -> Secured {
        self.try_to_connect(address).unwrap()
    }

    pub(crate) fn try_to_connect(&self, address: SocketAddr) -> io::Result<Secured> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.set_write_timeout(Some(WITHIN))?;
        let mut secured = StreamOwned::new(self.client(), stream);
        while secured.conn.is_handshaking() {
            secured.conn.complete_io(&mut secured.sock)?;
        }
        Ok(secured)
    }

    /// A connection, and the certificate that the server has shown.
    pub(crate) fn connect_and_see(&self) -> (Secured, CertificateDer<'static>) {
        let secured = self.connect();
        let shown = secured.conn.peer_certificates().unwrap()[0].clone();
        (secured, shown)
    }

    /// Sends `request`; the reply must begin with `expected`, and the rest of its line is read.
    pub(crate) fn ask(&self, client: &mut Secured, request: &[u8], expected: &[u8]) {
        client.write_all(request).unwrap();
        self.expect(client, expected);
        let mut last = [expected[expected.len() - 1]];
        while last != *b"\n" {
            client.read_exact(&mut last).unwrap();
        }
    }

    /// Reads exactly `expected`.
    pub(crate) fn expect(&self, client: &mut Secured, expected: &[u8]) {
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).unwrap();
        assert!(received == expected, "{}", String::from_utf8_lossy(&received[..received.len().min(200)]));
    }
}
