//! The native protocol is no amplifier: a client without a cookie for its address never gets more bytes than
//! it sent.

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    net::SocketAddr,
    os::{fd::AsFd, unix::fs::PermissionsExt},
    time::{Duration, Instant},
};

use common::{Wanted, connect, start};
use minos_base::{hash_key, seeded};
use minos_net::{
    Wait,
    udp::{MESSAGE_BYTES_MAX, ReceiveBurst, Sent, TransmitBurst, UdpOptions, UdpPort},
    wait_readable,
};
use minos_proto::native::{
    Composer, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, FragmentRange, HEADER_BYTES,
    HELLO_DATAGRAM_BYTES, Header, Hello, Kind, OpFlags, Opcode, Operation, Reason, SealKey, SealKeys, Status,
    TAG_BYTES, Welcome, padded, push_ranges, replies,
};
use minos_testkit::Server;
use rand::{Rng, RngExt};
use tempfile::TempDir;

const LARGE: &str = "large";
const SMALL: &str = "small";
const LARGE_BYTES: usize = 500_000;
const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
/// Largest datagram of these tests.
const DATAGRAM_BYTES: usize = 1448;
/// Datagrams sent between two waits for the server, so that no buffer overflows.
const BATCH: usize = 16;
/// Sequence numbers of datagrams that only ask for the server's progress.
const MARKS_FROM: u64 = 1 << 63;
const PATIENCE: Duration = Duration::from_secs(30);
/// Silence after which no more answers are expected.
const QUIET: Duration = Duration::from_millis(300);

/// The bytes of one datagram and of its answers.
#[derive(Clone, Debug)]
struct Account {
    what: String,
    bytes_in: usize,
    bytes_out: usize,
    answer: Option<Header>,
}

/// A socket that counts the bytes it sends, and the bytes of the answers to each datagram.
struct Source {
    port: UdpPort,
    transmit: TransmitBurst,
    receive: ReceiveBurst,
    server: SocketAddr,
    accounts: BTreeMap<u64, Account>,
    marks: u64,
    /// The secret with which it seals its requests.
    key: Option<SealKey>,
}

impl Source {
    fn new(server: SocketAddr) -> Self {
        // Without GRO each answer is a message of its own.
        let options = UdpOptions { gro: false, ..UdpOptions::default() };
        Self {
            port: UdpPort::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap(),
            transmit: TransmitBurst::new(),
            receive: ReceiveBurst::with_slots(1, MESSAGE_BYTES_MAX),
            server,
            accounts: BTreeMap::new(),
            marks: MARKS_FROM,
            key: None,
        }
    }

    /// Sends `datagram`, numbered so that its answers can be matched.
    fn send(&mut self, what: impl Into<String>, datagram: Vec<u8>) {
        self.send_train(what, &[datagram]);
        if self.accounts.len().is_multiple_of(BATCH) {
            self.wait();
        }
    }

    /// Sends `datagrams`, which are equally long, as one train.
    fn send_train(&mut self, what: impl Into<String>, datagrams: &[Vec<u8>]) {
        let what = what.into();
        let (mut train, bytes_in) = (datagrams.concat(), datagrams[0].len());
        for datagram in train.chunks_mut(bytes_in.max(1)) {
            let sequence = self.accounts.len() as u64 + 1;
            if let Some(place) = datagram.get_mut(40..HEADER_BYTES) {
                place.copy_from_slice(&sequence.to_le_bytes());
            }
            self.accounts
                .insert(sequence, Account { what: what.clone(), bytes_in, bytes_out: 0, answer: None });
        }
        self.transmit(&train, bytes_in);
    }

    fn transmit(&mut self, train: &[u8], segment_bytes: usize) {
        assert!(self.transmit.push(self.server, train, segment_bytes));
        let trains = u64::from(!train.is_empty());
        assert_eq!(self.transmit.send(&self.port), Sent { trains, ..Sent::default() });
    }

    /// Sends a hello, whose answer shows that the server has seen what came before it.
    fn mark(&mut self) {
        self.marks += 1;
        let header = Header { sequence: self.marks, ..Header::of(Kind::Hello) };
        let hello = hello(header, DATAGRAM_BYTES as u16, self.key.as_ref());
        self.transmit(&hello, hello.len());
    }

    /// Sends a hello and receives all answers up to its own.
    fn wait(&mut self) -> Welcome {
        self.mark();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server has stopped answering");
            let Some(datagram) = self.receive() else { continue };
            let header = Header::parse(&datagram).unwrap();
            if header.sequence == self.marks && header.kind == Kind::Welcome {
                return Welcome::parse(header.body(&datagram)).unwrap();
            }
        }
    }

    /// Receives answers until the server has seen all that was sent, and no more arrive.
    fn settle(&mut self) -> Vec<Vec<u8>> {
        self.mark();
        let (mut answers, mut is_seen) = (Vec::new(), false);
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server has stopped answering");
            match self.receive() {
                Some(answer) if Header::parse(&answer).unwrap().sequence == self.marks => is_seen = true,
                Some(answer) => answers.push(answer),
                None if is_seen => return answers,
                None => {}
            }
        }
    }

    /// Receives and counts one answer; `None` if none arrives.
    fn receive(&mut self) -> Option<Vec<u8>> {
        if self.port.receive(&mut self.receive).unwrap() == 0 {
            wait_readable(&[self.port.as_fd()], Wait::For(QUIET)).unwrap();
            self.port.receive(&mut self.receive).unwrap();
        }
        let datagram = self.receive.messages().next()?.bytes.to_vec();
        let bytes = datagram.len();
        let header = Header::parse(&datagram).unwrap();
        if header.sequence < MARKS_FROM {
            let account = self.accounts.get_mut(&header.sequence).expect("an answer to nothing");
            account.bytes_out += bytes;
            account.answer.get_or_insert(header);
        }
        Some(datagram)
    }

    fn assert_no_gain(&self) {
        for account in self.accounts.values() {
            assert!(account.bytes_out <= account.bytes_in, "{account:?}");
        }
    }

    /// Asserts that every datagram was refused for this reason and gained no bytes.
    fn assert_refused(&self, reason: Reason) {
        for account in self.accounts.values() {
            let answer = account.answer.unwrap_or_else(|| panic!("no answer: {account:?}"));
            assert_eq!((answer.kind, answer.count), (Kind::Refusal, reason.to_count()), "{account:?}");
        }
        self.assert_no_gain();
    }
}

fn hello(header: Header, datagram_bytes_max: u16, key: Option<&SealKey>) -> Vec<u8> {
    let flags = if key.is_some() { header.flags | Flags::SEALED } else { header.flags };
    let (mut out, header) = (Vec::new(), Header { flags, ..header });
    Hello { nonce: 7, datagram_bytes_max, window: 32, version_max: 2 }.compose(&mut out, header, key);
    out
}

fn request(cookie: u64, operations: &[Operation<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header { cookie, ..Header::of(Kind::Request) };
    let mut composer = Composer::begin(&mut out, header, DATAGRAM_BYTES);
    assert!(operations.iter().all(|operation| composer.push_operation(operation)));
    composer.finish();
    out
}

fn operation<'a>(opcode: Opcode, key: &'a str, seed: u64, value: &'a [u8]) -> Operation<'a> {
    let hash = hash_key(key.as_bytes(), seed);
    let detail = Detail { value_bytes: value.len() as u32, ..Detail::default() };
    let detail = if opcode.is_long() { detail } else { Detail::default() };
    Operation { opcode, flags: OpFlags::NONE, request: 1, hash, key: key.as_bytes(), detail, value }
}

/// One request of every kind that a server answers, and several with long answers.
fn requests(cookie: u64, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut ranges = Vec::new();
    push_ranges(&mut ranges, [FragmentRange { first: 0, count: 32 }]);
    let stores =
        [Opcode::Put, Opcode::Add, Opcode::Replace, Opcode::Append, Opcode::Prepend, Opcode::Compare];
    let others = [Opcode::Get, Opcode::GetTouch, Opcode::Touch, Opcode::Delete, Opcode::Incr, Opcode::Decr];
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for key in [LARGE, SMALL, "missing"] {
        for opcode in stores {
            let mut store = operation(opcode, key, seed, b"forged");
            all.push((format!("{opcode:?} {key}"), request(cookie, &[store])));
            store = Operation { flags: OpFlags::DEFERRED, value: &[], ..store };
            store.detail.value_bytes = LARGE_BYTES as u32;
            all.push((format!("deferred {opcode:?} {key}"), request(cookie, &[store])));
        }
        for opcode in others {
            all.push((format!("{opcode:?} {key}"), request(cookie, &[operation(opcode, key, seed, &[])])));
        }
        let fetch = operation(Opcode::Fetch, key, seed, &ranges);
        all.push((format!("fetch {key}"), request(cookie, &[fetch])));
        let many = [operation(Opcode::Get, key, seed, &[]); 40];
        all.push((format!("many gets of {key}"), request(cookie, &many)));
    }
    all.push(("stats".to_owned(), request(cookie, &[operation(Opcode::Stats, "", seed, &[])])));
    all.push(("noop".to_owned(), request(cookie, &[operation(Opcode::Noop, "", seed, &[])])));
    all.push(("nothing".to_owned(), request(cookie, &[])));
    all.push(("fragment".to_owned(), fragment(cookie)));
    all
}

fn fragment(cookie: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header { cookie, flags: Flags::ACK_WANTED, ..Header::of(Kind::Fragment) };
    let mut composer = Composer::begin(&mut out, header, DATAGRAM_BYTES);
    let mut head = [0; FRAGMENT_HEAD_BYTES];
    FragmentHead { transfer: 1, index: 0 }.write(&mut head);
    assert!(composer.push_bytes(&head) && composer.push_bytes(&[1; 600]));
    composer.finish();
    out
}

/// `datagram` with an invalid tag at its end.
fn with_false_tag(mut datagram: Vec<u8>) -> Vec<u8> {
    let length = datagram.len() + TAG_BYTES;
    datagram.resize(length, 0xa5);
    datagram[4] |= Flags::SEALED.0;
    datagram[8..10].copy_from_slice(&(length as u16).to_le_bytes());
    datagram
}

/// A server with a large and a small item, and the address of its first queue.
fn server(minos_only: &[&str]) -> (Server, SocketAddr) {
    let options = [&["--native=127.0.0.1:0"], minos_only].concat();
    let mut server = start(Wanted { minos_only: &options, ..Wanted::default() });
    let mut client = connect(&server);
    assert_eq!(client.set(LARGE, &vec![b'x'; LARGE_BYTES]).unwrap(), "STORED");
    assert_eq!(client.set(SMALL, b"a small value, though longer than its key").unwrap(), "STORED");
    let address = server.native_address().unwrap_or_else(|error| panic!("{error}"));
    (server, address)
}

#[test]
fn requests_without_a_cookie_gain_nothing() {
    for options in [&[][..], &["--native-single-port"]] {
        let (_server, address) = server(options);
        let seed = Source::new(address).wait().direction_seed;
        let mut source = Source::new(address);
        for (what, datagram) in requests(0, seed) {
            source.send(what, datagram);
        }
        source.settle();
        source.assert_refused(Reason::Cookie);
    }
}

#[test]
fn cookies_of_others_gain_nothing() {
    let (server_before, before) = server(&[]);
    let of_another_start = Source::new(before).wait().cookie;
    drop(server_before);
    let (_server, address) = server(&[]);
    let of_another_port = Source::new(address).wait();
    let (seed, mut source) = (of_another_port.direction_seed, Source::new(address));
    let own = source.wait().cookie;
    assert_ne!(own, of_another_port.cookie);
    let flipped = (0..64).map(|bit| own ^ 1 << bit);
    let cookies = [of_another_port.cookie, of_another_start, !own, u64::MAX].into_iter().chain(flipped);
    for (index, cookie) in cookies.enumerate() {
        let all = requests(cookie, seed);
        // All kinds with the first cookies, and one kind with each flipped bit.
        let count = if index < 4 { all.len() } else { 1 };
        for (what, datagram) in all.into_iter().cycle().skip(index).take(count) {
            source.send(format!("{what} with cookie {index}"), datagram);
        }
    }
    source.settle();
    source.assert_refused(Reason::Cookie);
}

/// The kernel joins datagrams that a peer sends together; each of them needs a valid cookie all the same.
#[test]
fn a_cookie_opens_nothing_for_its_neighbours_in_a_train() {
    let (_server, address) = server(&[]);
    let mut source = Source::new(address);
    let Welcome { cookie, direction_seed, .. } = source.wait();
    let get = [operation(Opcode::Get, SMALL, direction_seed, &[])];
    let with_and_without = [request(cookie, &get), request(0, &get), request(cookie, &get)];
    source.send_train("a train", &with_and_without);
    source.settle();
    let kinds: Vec<Kind> = source.accounts.values().map(|account| account.answer.unwrap().kind).collect();
    assert_eq!(kinds, [Kind::Reply, Kind::Refusal, Kind::Reply]);
}

#[test]
fn who_does_not_know_the_secret_gains_nothing() {
    let folder = TempDir::with_prefix("minos-spoof-").unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, SECRET).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let (_server, address) = server(&[&format!("--native-secret-file={}", path.display())]);
    let mut source = Source::new(address);
    // Only the requests for progress are sealed.
    source.key = Some(SealKeys::of(&SECRET.parse().unwrap()).to_server);
    let Welcome { cookie, direction_seed, .. } = source.wait();
    for (what, datagram) in requests(cookie, direction_seed) {
        source.send(format!("sealed {what}"), with_false_tag(datagram.clone()));
        source.send(what, datagram);
    }
    let hello = hello(Header::of(Kind::Hello), DATAGRAM_BYTES as u16, None);
    source.send("sealed hello", with_false_tag(hello.clone()));
    source.send("hello", hello);
    source.settle();
    source.assert_refused(Reason::Seal);
}

#[test]
fn a_cookie_opens_what_was_closed() {
    let (_server, address) = server(&[]);
    let mut source = Source::new(address);
    let Welcome { cookie, direction_seed, .. } = source.wait();
    source.send("get large", request(cookie, &[operation(Opcode::Get, LARGE, direction_seed, &[])]));
    source.send("get small", request(cookie, &[operation(Opcode::Get, SMALL, direction_seed, &[])]));
    // The control: the same harness counts more bytes out than in. Another worker may send the large value later.
    let (mut answers, end) = (Vec::new(), Instant::now() + PATIENCE);
    loop {
        answers.extend(source.settle());
        let accounts = source.accounts.values();
        let gains: Vec<f64> =
            accounts.map(|account| account.bytes_out as f64 / account.bytes_in as f64).collect();
        if gains[0] > 10.0 && gains[1] > 1.0 {
            break;
        }
        assert!(Instant::now() < end, "{gains:?}");
    }
    let mut statuses = Vec::new();
    for answer in &answers {
        let header = Header::parse(answer).unwrap();
        statuses.extend(replies(answer, &header).map(|reply| reply.unwrap().status));
    }
    statuses.sort_by_key(|status| status.to_byte());
    assert_eq!(statuses, [Status::Ok, Status::Large]);
}

#[test]
fn hellos_gain_nothing_however_long_they_are() {
    let (_server, address) = server(&[]);
    let mut source = Source::new(address);
    for flags in [Flags::NONE, Flags::OPEN, Flags(u8::MAX).without(Flags::SEALED), Flags(u8::MAX)] {
        for datagram_bytes_max in [0, 512, u16::MAX] {
            let mut whole = hello(Header::of(Kind::Hello), datagram_bytes_max, None);
            assert_eq!(whole.len(), HELLO_DATAGRAM_BYTES);
            whole[4] = flags.0;
            // Also longer than necessary.
            whole.resize(400, 0);
            for length in (0..=whole.len()).step_by(8).chain([47, 255, 256]) {
                let mut datagram = whole[..length.min(whole.len())].to_vec();
                source.send(format!("hello cut to {length}"), datagram.clone());
                if let Some(place) = datagram.get_mut(8..10) {
                    place.copy_from_slice(&(length as u16).to_le_bytes());
                    source.send(format!("hello of {length}"), datagram);
                }
            }
        }
    }
    source.settle();
    source.assert_no_gain();
    let welcomed = source.accounts.values().filter(|account| account.bytes_out > HEADER_BYTES).count();
    assert!(welcomed > 0, "no hello was answered, so that nothing was shown");
}

#[test]
fn every_kind_version_and_length_gains_nothing() {
    let (_server, address) = server(&[]);
    let seed = Source::new(address).wait().direction_seed;
    let mut source = Source::new(address);
    let whole = request(0, &[operation(Opcode::Get, LARGE, seed, &[])]);
    for kind in 0..=u8::MAX {
        for version in [0, 1, 2, 255] {
            let mut datagram = whole.clone();
            (datagram[2], datagram[3]) = (version, kind);
            source.send(format!("kind {kind} of version {version}"), datagram);
        }
    }
    for length in 0..whole.len() {
        source.send(format!("cut to {length}"), whole[..length].to_vec());
    }
    source.settle();
    source.assert_no_gain();
    for account in source.accounts.values() {
        let answers = [2, 4, 5, 7, 8].map(|kind| account.what == format!("kind {kind} of version 2"));
        assert!(!answers.contains(&true) || account.answer.is_none(), "{account:?}");
        assert!(account.bytes_in >= HEADER_BYTES || account.answer.is_none(), "{account:?}");
    }
}

#[test]
fn random_bytes_gain_nothing() {
    let (_server, address) = server(&[]);
    let seed = Source::new(address).wait().direction_seed;
    let (mut source, mut random) = (Source::new(address), seeded(4));
    let own = source.wait().cookie;
    for round in 0..3000 {
        let mut datagram = match round % 3 {
            0 => vec![0; random.random_range(0..DATAGRAM_BYTES)],
            _ => {
                let all = requests(0, seed);
                all[random.random_range(0..all.len())].1.clone()
            }
        };
        if round % 3 == 0 {
            random.fill_bytes(&mut datagram);
            let head = datagram.len().min(4);
            datagram[..head].copy_from_slice(&[b'M', b'n', 1, random.random_range(0..10)][..head]);
        }
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..datagram.len().max(1));
            if let Some(byte) = datagram.get_mut(at) {
                *byte ^= random.random_range(1..=u8::MAX);
            }
        }
        // Removes the right cookie, if it occurs by chance.
        if let Some(place) = datagram.get_mut(24..32).filter(|place| place[..] == own.to_le_bytes()) {
            place.fill(0);
        }
        source.send(format!("random {round}"), datagram);
    }
    source.settle();
    source.assert_no_gain();
    // The server has processed all of that.
    let cookie = source.wait().cookie;
    source.send("get small", request(cookie, &[operation(Opcode::Get, SMALL, seed, &[])]));
    source.settle();
    let last = source.accounts.values().next_back().unwrap();
    assert!(last.bytes_out > padded(last.bytes_in), "{last:?}");
}
