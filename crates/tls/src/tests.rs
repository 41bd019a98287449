//! Streams over wires that move a few bytes at a time, with an honest client and with one that is not.

use std::{
    cell::RefCell,
    fs,
    io::{ErrorKind, IoSlice, Read as _, Write as _},
    rc::Rc,
    sync::Arc,
};

use minos_net::{Progress, Wire};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion, RootCertStore,
    SupportedCipherSuite,
    crypto::{
        CryptoProvider,
        cipher::{OutboundChunks, OutboundPlainMessage},
        ring,
    },
    pki_types::{CertificateDer, PrivateKeyDer},
    version::TLS12,
};
use tempfile::TempDir;

use super::*;

/// The kind, the version and the length of a record.
const RECORD_HEAD_BYTES: usize = 5;

/// The server's end of a wire without a kernel. The client's bytes are put into it by hand.
#[derive(Clone, Debug, Default)]
struct Pipe {
    comes: Rc<RefCell<Vec<u8>>>,
    leaves: Rc<RefCell<Vec<u8>>>,
    /// Most bytes moved by a call; 0 is any number. With a bound each second call moves none.
    few: usize,
    is_odd: Rc<RefCell<bool>>,
    is_closed: Rc<RefCell<bool>>,
}

impl Pipe {
    fn may_move(&self, bytes: usize) -> Option<usize> {
        if self.few == 0 {
            return (bytes > 0).then_some(bytes);
        }
        let is_odd = !*self.is_odd.borrow();
        *self.is_odd.borrow_mut() = is_odd;
        (bytes > 0 && is_odd).then_some(bytes.min(self.few))
    }
}

impl Wire for Pipe {
    fn receive(&self, buffer: &mut [u8]) -> Progress {
        let mut comes = self.comes.borrow_mut();
        let Some(count) = self.may_move(comes.len().min(buffer.len())) else {
            let is_over = comes.is_empty() && *self.is_closed.borrow();
            return if is_over { Progress::Closed } else { Progress::Blocked };
        };
        buffer[..count].copy_from_slice(&comes[..count]);
        comes.drain(..count);
        Progress::Bytes(count)
    }

    fn send(&self, bytes: &[u8]) -> Progress {
        match self.may_move(bytes.len()) {
            Some(count) => {
                self.leaves.borrow_mut().extend_from_slice(&bytes[..count]);
                Progress::Bytes(count)
            }
            None => Progress::Blocked,
        }
    }

    fn break_off(&self) {
        *self.is_closed.borrow_mut() = true;
    }
}

/// An authority, and files with a certificate that it has signed.
struct Rig {
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
    files: Files,
}

impl Rig {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = Files { cert: at("cert.pem"), key: at("key.pem"), client_ca: None };
        let rig = Self { authority, files, folder };
        rig.renew();
        rig
    }

    /// A certificate for localhost, and its key.
    fn sign(&self) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// Puts another certificate into the server's files.
    fn renew(&self) {
        let (cert, key) = self.sign();
        fs::write(&self.files.cert, cert.pem()).unwrap();
        fs::write(&self.files.key, key.serialize_pem()).unwrap();
    }

    /// Lets clients need a certificate of the authority.
    fn ask_clients(&mut self) {
        let path = self.folder.path().join("ca.pem");
        fs::write(&path, self.authority.pem()).unwrap();
        self.files.client_ca = Some(path);
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        roots
    }

    /// A client of TLS 1.2, which tells its secrets.
    fn old_client(&self) -> Client {
        let suite = ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
        let provider = CryptoProvider { cipher_suites: vec![suite], ..ring::default_provider() };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_protocol_versions(&[&TLS12]).unwrap();
        let mut config = builder.with_root_certificates(self.roots()).with_no_client_auth();
        config.enable_secret_extraction = true;
        Client::of(config)
    }

    fn client(&self, own: Option<(rcgen::Certificate, KeyPair)>) -> Client {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain: Vec<CertificateDer<'static>> = vec![cert.der().clone()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from(key)).unwrap()
            }
        };
        Client::of(config)
    }
}

struct Client {
    tls: ClientConnection,
    received: Vec<u8>,
    error: Option<rustls::Error>,
}

impl Client {
    fn of(config: ClientConfig) -> Self {
        let tls = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
        Self { tls, received: Vec::new(), error: None }
    }

    /// Moves all bytes that are there.
    fn turn(&mut self, pipe: &Pipe) {
        self.tls.write_tls(&mut *pipe.comes.borrow_mut()).unwrap();
        let came = std::mem::take(&mut *pipe.leaves.borrow_mut());
        let mut left = &came[..];
        while !left.is_empty() {
            self.tls.read_tls(&mut left).unwrap();
            if let Err(error) = self.tls.process_new_packets() {
                self.error = Some(error);
                return;
            }
            let mut buffer = [0; 1 << 16];
            match self.tls.reader().read(&mut buffer) {
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        while self.tls.wants_write() {
            self.tls.write_tls(&mut *pipe.comes.borrow_mut()).unwrap();
        }
    }
}

/// Shakes hands; the server's refusal if there is one.
fn shake(acceptor: &Acceptor, client: &mut Client, pipe: &Pipe) -> Result<Stream<Pipe>, Refusal> {
    let mut incoming = acceptor.accept(pipe.clone()).unwrap();
    for _ in 0..100_000 {
        client.turn(pipe);
        let advanced = incoming.advance();
        client.turn(pipe);
        if advanced? && client.error.is_none() {
            return Ok(incoming.open());
        }
    }
    panic!("the handshake does not end");
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 % 251) as u8).collect()
}

fn open(few: usize) -> (Stream<Pipe>, Client, Pipe) {
    let (stream, client, pipe, _) = open_at(few);
    (stream, client, pipe)
}

fn open_at(few: usize) -> (Stream<Pipe>, Client, Pipe, Acceptor) {
    let rig = Rig::new();
    let (acceptor, mut client) = (Acceptor::load(rig.files.clone()).unwrap(), rig.client(None));
    let pipe = Pipe { few, ..Pipe::default() };
    let stream = shake(&acceptor, &mut client, &pipe).unwrap();
    (stream, client, pipe, acceptor)
}

#[test]
fn bytes_come_as_they_were_sent_however_few_move_at_a_time() {
    for (few, count) in [(0, 3_000_000), (1, 3000), (100, 100_000), (5000, 1_000_000)] {
        let (mut stream, mut client, pipe) = open(few);
        let all = bytes(count);
        let (mut sent, mut at) = (0, 0);
        while client.received.len() < count {
            let (head, tail) = all[sent..].split_at((count - sent).min(30));
            match stream.send_pieces(&[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)]) {
                Progress::Bytes(bytes) => sent += bytes,
                other => assert_eq!(other, Progress::Blocked),
            }
            client.turn(&pipe);
        }
        assert!(client.received == all, "to the client, {few} at a time");
        let (mut received, mut buffer) = (Vec::new(), vec![0; 65_160]);
        while received.len() < count {
            at += client.tls.writer().write(&all[at..]).unwrap();
            client.turn(&pipe);
            // A small buffer now and then, which leaves opened bytes.
            let room = if received.len() % 3 == 0 { 100 } else { buffer.len() };
            match stream.receive(&mut buffer[..room]) {
                Progress::Bytes(bytes) => received.extend_from_slice(&buffer[..bytes]),
                other => assert_eq!(other, Progress::Blocked),
            }
        }
        assert!(received == all, "to the server, {few} at a time");
    }
}

#[test]
fn a_request_behind_the_handshake_is_there_at_once() {
    let rig = Rig::new();
    let (acceptor, mut client) = (Acceptor::load(rig.files.clone()).unwrap(), rig.client(None));
    let pipe = Pipe::default();
    client.tls.writer().write_all(b"get a\r\n").unwrap();
    let mut stream = shake(&acceptor, &mut client, &pipe).unwrap();
    let is_seen = stream.has_received() || !pipe.comes.borrow().is_empty();
    assert!(is_seen);
    let mut buffer = [0; 100];
    assert_eq!(stream.receive(&mut buffer), Progress::Bytes(7));
    assert!(!stream.has_received());
    assert_eq!(stream.receive(&mut buffer), Progress::Blocked);
}

#[test]
fn replies_reach_a_client_that_has_said_its_last() {
    let (mut stream, mut client, pipe) = open(0);
    client.tls.writer().write_all(b"get a\r\n").unwrap();
    client.tls.send_close_notify();
    client.turn(&pipe);
    let mut buffer = [0; 100];
    assert_eq!(stream.receive(&mut buffer), Progress::Bytes(7));
    assert_eq!(stream.receive(&mut buffer), Progress::Closed);
    assert_eq!(stream.send(b"END\r\n"), Progress::Bytes(5));
    drop(stream);
    client.turn(&pipe);
    assert_eq!(client.received, b"END\r\n");
    assert!(client.tls.process_new_packets().unwrap().peer_has_closed(), "the server says that it has ended");
}

/// A client of TLS 1.2 may ask for another handshake, and waits for the answer.
#[test]
fn who_renegotiates_is_told_at_once_that_it_cannot() {
    let rig = Rig::new();
    let hello = {
        let (mut client, pipe) = (rig.old_client(), Pipe::default());
        client.turn(&pipe);
        pipe.comes.take()[RECORD_HEAD_BYTES..].to_vec()
    };
    let (acceptor, mut client) = (Acceptor::load(rig.files.clone()).unwrap(), rig.old_client());
    let pipe = Pipe::default();
    let mut stream = shake(&acceptor, &mut client, &pipe).unwrap();
    let again = sealed(client.tls, ContentType::Handshake, &hello);
    pipe.comes.borrow_mut().extend_from_slice(&again);
    assert_eq!(stream.receive(&mut [0; 100]), Progress::Blocked);
    let said = pipe.leaves.take();
    assert_eq!(said.first(), Some(&u8::from(ContentType::Alert)), "{said:?}");
    assert_eq!(stream.send(b"x"), Progress::Bytes(1), "it stays open");
}

/// A record that the client could have sent next.
fn sealed(tls: ClientConnection, kind: ContentType, payload: &[u8]) -> Vec<u8> {
    let Some(SupportedCipherSuite::Tls12(suite)) = tls.negotiated_cipher_suite() else { unreachable!() };
    let (number, secrets) = tls.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else { unreachable!() };
    let message = OutboundPlainMessage {
        typ: kind,
        version: ProtocolVersion::TLSv1_2,
        payload: OutboundChunks::Single(payload),
    };
    suite.aead_alg.encrypter(key, iv.as_ref(), &[]).encrypt(message, number).unwrap().encode()
}

/// They cost much, so that others wait for their worker.
#[test]
fn a_call_opens_few_small_records_and_any_number_of_full_ones() {
    let (mut stream, mut client, pipe) = open(0);
    let all = bytes(10_000);
    for byte in all.chunks(1) {
        client.tls.writer().write_all(byte).unwrap();
        client.turn(&pipe);
    }
    let (mut received, mut buffer, mut cuts) = (Vec::new(), vec![0; 1 << 20], 0);
    while let Progress::Bytes(bytes) = stream.receive(&mut buffer) {
        assert!(bytes < 3000, "{bytes}");
        received.extend_from_slice(&buffer[..bytes]);
        cuts += usize::from(stream.is_cut());
    }
    assert!(received == all && cuts >= 3 && !stream.is_cut(), "{cuts}");
    let all = bytes(1_000_000);
    let mut at = 0;
    while at < all.len() {
        at += client.tls.writer().write(&all[at..]).unwrap();
        client.turn(&pipe);
    }
    assert_eq!(stream.receive(&mut buffer), Progress::Bytes(all.len()));
    assert!(!stream.is_cut() && buffer[..all.len()] == all);
}

#[test]
fn garbage_ends_an_open_stream_with_an_alert() {
    let (mut stream, mut client, pipe, acceptor) = open_at(0);
    pipe.comes.borrow_mut().extend_from_slice(&[0x17, 3, 3, 0, 40, 1, 2, 3]);
    let mut buffer = [0; 100];
    assert_eq!(stream.receive(&mut buffer), Progress::Blocked, "it is not whole");
    pipe.comes.borrow_mut().extend_from_slice(&[0; 37]);
    assert_eq!(stream.receive(&mut buffer), Progress::Closed);
    assert_eq!(stream.send(b"x"), Progress::Closed);
    assert_eq!(acceptor.broken(), 1);
    client.turn(&pipe);
    assert!(matches!(client.error, Some(rustls::Error::AlertReceived(_))), "{:?}", client.error);
}

#[test]
fn clients_need_a_certificate_of_the_authority_if_there_is_one() {
    let mut rig = Rig::new();
    rig.ask_clients();
    let acceptor = Acceptor::load(rig.files.clone()).unwrap();
    let refused = |own| {
        let (mut client, pipe) = (rig.client(own), Pipe::default());
        let refusal = shake(&acceptor, &mut client, &pipe).err();
        client.turn(&pipe);
        assert!(matches!(client.error, Some(rustls::Error::AlertReceived(_))), "{:?}", client.error);
        refusal
    };
    assert!(matches!(refused(None), Some(Refusal::Broken(rustls::Error::NoCertificatesPresented))));
    let strange = Rig::new().sign();
    assert!(matches!(refused(Some(strange)), Some(Refusal::Broken(rustls::Error::InvalidCertificate(_)))));
    let mut client = rig.client(Some(rig.sign()));
    assert!(shake(&acceptor, &mut client, &Pipe::default()).is_ok());
}

#[test]
fn a_changed_byte_never_goes_unseen_and_never_panics() {
    let rig = Rig::new();
    let acceptor = Acceptor::load(rig.files.clone()).unwrap();
    let hello = {
        let (mut client, pipe) = (rig.client(None), Pipe::default());
        client.turn(&pipe);
        pipe.comes.take()
    };
    let outcome = |first: &[u8]| {
        let pipe = Pipe::default();
        pipe.comes.borrow_mut().extend_from_slice(first);
        pipe.break_off();
        let mut incoming = acceptor.accept(pipe.clone()).unwrap();
        incoming.advance()
    };
    assert!(matches!(outcome(&hello), Err(Refusal::Gone)), "the control: it waits for more");
    for at in 0..hello.len() {
        for change in [1, 0x80, 0xff] {
            let mut changed = hello.clone();
            changed[at] ^= change;
            // Random bytes, names of algorithms and keys may be any; but nobody gets through.
            assert!(outcome(&changed).is_err());
        }
        assert!(outcome(&hello[..at]).is_err());
    }
    for seed in 0..2000_usize {
        let junk: Vec<u8> = (0..seed % 300).map(|at| ((at * 31 + seed * 17) % 256) as u8).collect();
        assert!(outcome(&junk).is_err());
        // Such as looks like records.
        assert!(outcome(&[&[22, 3, 1, 0, (seed % 250) as u8], &junk[..]].concat()).is_err());
    }
}

#[test]
fn a_reload_takes_effect_and_a_bad_file_changes_nothing() {
    let rig = Rig::new();
    let acceptor = Acceptor::load(rig.files.clone()).unwrap();
    let shown = || {
        let mut client = rig.client(None);
        let _stream = shake(&acceptor, &mut client, &Pipe::default()).unwrap();
        client.tls.peer_certificates().unwrap().to_vec()
    };
    let first = shown();
    rig.renew();
    assert_eq!(shown(), first);
    acceptor.reload().unwrap();
    let second = shown();
    assert_ne!(second, first);
    for (path, text) in [(&rig.files.cert, "nonsense"), (&rig.files.key, "")] {
        let good = fs::read(path).unwrap();
        fs::write(path, text).unwrap();
        let error = acceptor.reload().unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        fs::write(path, good).unwrap();
    }
    fs::write(&rig.files.key, Rig::new().sign().1.serialize_pem()).unwrap();
    assert!(acceptor.reload().unwrap_err().to_string().contains("key"), "a key of another certificate");
    fs::remove_file(&rig.files.cert).unwrap();
    assert!(matches!(acceptor.reload(), Err(LoadError::Read { .. })));
    assert_eq!(shown(), second);
}
