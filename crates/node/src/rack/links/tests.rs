//! Links to a node that is stopped, slow or crowded, at times that the tests make.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    sync::Arc,
};

use minos_base::limits::SLICE_BYTES;
use minos_engine::{Engine, StoreConfig, StoreMode};
use minos_net::{Epoll, Socket};
use minos_proto::memcache::Limits;
use tempfile::TempDir;

use super::*;
use crate::{
    memcache::{MemcacheSession, harness::Session, serve},
    ops::receiving::Receiving,
    rack::{Intent, Owner, Rack},
    tcp::{
        queue::VISIT_REQUESTS_MAX,
        registry::{Entry, Registry},
        session,
    },
};

const MICRO_SHARDS: u32 = 64;
const TIMEOUT: Duration = Duration::from_secs(1);
const OTHER: Owner = Owner { node: 1, micro_shard: 0 };
const LATE: &str = "SERVER_ERROR node 1 of the rack is late; the command may be done\r\n";

/// Asks for nothing.
struct Nobody;

impl Admin for Nobody {}

/// The links of a node of two, and the other node, which does nothing by itself.
struct Rig {
    links: Links<StoreMode, Epoll>,
    /// The first line of each.
    hello: Vec<u8>,
    view: RackView<StoreMode>,
    session: Session<StoreMode>,
    listener: UnixListener,
    /// The stream at the other node, once it has accepted one.
    other: Option<UnixStream>,
    /// Keys of the other node.
    keys: Vec<String>,
    now: Instant,
    _folder: TempDir,
}

impl Rig {
    fn new(waiting_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node");
        let listener = UnixListener::bind(&path).unwrap();
        // Who has not called fails a test, and does not hang it.
        listener.set_nonblocking(true).unwrap();
        let mut config = RackConfig::of_units(0, &[0, 1], MICRO_SHARDS);
        config.nodes[1].address = Address::Unix(path);
        (config.timeout, config.waiting_max) = (TIMEOUT, waiting_max);
        let (session, now) = (Session::<StoreMode>::new(1000), Instant::now());
        let hello = hello(&config, 1);
        let links = Links::new(Epoll::open().unwrap(), &config, now);
        let rack = Arc::new(Rack::new(config, 1));
        let store = StoreConfig { micro_shards: MICRO_SHARDS, ..StoreConfig::new(8 << 20) };
        rack.settle(&Engine::<StoreMode>::create(&store).unwrap()).unwrap();
        let view = RackView::new(Arc::clone(&rack), &session.clock, Arc::default());
        let keys = (0..).map(|number| format!("key{number}"));
        let keys = keys.filter(|key| rack.reader(key.as_bytes()) == 1).take(40).collect();
        Self { links, hello, view, session, listener, other: None, keys, now, _folder: folder }
    }

    /// A client of its own says this; a visit takes so many requests.
    fn say_within(&mut self, input: &str, mut requests: usize) -> usize {
        let limits = Limits { value_bytes_max: 1 << 20, line_bytes_max: 64 << 10 };
        let (mut state, mut tx) = (MemcacheSession::new(limits, SLICE_BYTES), Vec::new());
        let (consumed, next) = self
            .session
            .in_rack(&self.view, |cx| serve(cx, &mut state, input.as_bytes(), &mut requests, &mut tx));
        let Next::Forward(forwards) = next else { panic!("all is here") };
        self.begin(session::Session::Memcache(state), *forwards, &tx);
        consumed
    }

    fn say(&mut self, input: &str) {
        assert_eq!(self.say_within(input, VISIT_REQUESTS_MAX), input.len());
    }

    fn begin(&mut self, session: session::Session, forwards: Forwards<StoreMode>, replies: &[u8]) {
        let (stream, _) = UnixStream::pair().unwrap();
        let entry = || Entry::new(0, 0, String::new(), String::new(), 0);
        let registration = Arc::new(Registry::default()).register(1, entry).unwrap();
        let stream = Stream::Plain(Socket::from_nonblocking(stream.into()));
        let connection = Box::new(Connection::new(stream, session, 0, registration));
        self.links.begin(connection, forwards, replies, (&self.view, self.now));
        self.pass(Duration::ZERO);
    }

    /// Time passes, in which bytes move and what is late is given up.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.links.advance(&Nobody, &self.view, self.now);
        self.links.give_up_late(&self.view, self.now);
    }

    /// The other node reads what has come.
    fn read(&mut self) -> Vec<u8> {
        let other = self.other.get_or_insert_with(|| self.listener.accept().unwrap().0);
        other.set_nonblocking(true).unwrap();
        let mut bytes = Vec::new();
        match other.read_to_end(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => bytes,
            read => panic!("the link is closed: {read:?}"),
        }
    }

    /// The other node reads all that is on its way.
    fn read_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let bytes = self.read();
            if bytes.is_empty() {
                return all;
            }
            all.extend(bytes);
            self.pass(Duration::ZERO);
        }
    }

    /// The other node replies to a command.
    fn reply(&mut self, reply: &str) {
        self.other.as_mut().unwrap().write_all(format!("{reply}MN\r\n").as_bytes()).unwrap();
        self.pass(Duration::ZERO);
    }

    fn answers(&mut self) -> Vec<Answered<StoreMode>> {
        std::iter::from_fn(|| self.links.take_answered()).collect()
    }

    /// What clients read.
    fn said(&mut self) -> Vec<String> {
        let text =
            |answered: &Answered<_>| String::from_utf8_lossy(answered.connection.output.bytes()).into();
        self.answers().iter().map(text).collect()
    }
}

fn value(key: &str) -> String {
    format!("VALUE {key} 0 1\r\nx\r\n")
}

#[test]
fn a_command_is_late_however_many_leave_behind_it() {
    let mut rig = Rig::new(64);
    let set = format!("set {} 0 0 1\r\nx\r\n", rig.keys[0]);
    for tenths in (0..=20).step_by(2) {
        rig.say(&set);
        // Those of the second that has ended.
        assert_eq!(rig.said(), vec![LATE; usize::from(tenths >= 10)], "after {tenths} tenths");
        rig.pass(Duration::from_millis(200));
    }
}

#[test]
fn a_value_that_still_leaves_is_not_late() {
    let mut rig = Rig::new(64);
    let set = format!("set {} 0 0 1000000\r\n{}\r\n", rig.keys[0], "x".repeat(1_000_000));
    rig.say(&set);
    let mut received = 0;
    while received < set.len() {
        assert!(rig.said().is_empty(), "late after {received} bytes");
        rig.pass(TIMEOUT * 9 / 10);
        received += rig.read().len();
        rig.pass(Duration::ZERO);
    }
    rig.pass(TIMEOUT);
    assert_eq!(rig.said(), [LATE]);
}

#[test]
fn late_commands_keep_no_memory_and_those_that_have_not_left_never_do() {
    const BYTES: usize = 1 << 20;
    let mut rig = Rig::new(64);
    let receiving = Arc::new(Receiving::new(8 * BYTES as u64));
    let command = |number: u8| [b"set k 0 0 1048576\r\n", &*vec![number; BYTES], b"\r\n"].concat();
    let begin = |rig: &mut Rig, number: u8, permit| {
        let forward = Forward { bytes: command(number), is_large: true, permit, ..Forward::to(OTHER) };
        let limits = Limits { value_bytes_max: 1 << 20, line_bytes_max: 64 << 10 };
        let session = session::Session::Memcache(MemcacheSession::new(limits, SLICE_BYTES));
        rig.begin(session, Forwards::one(forward), &[]);
    };
    (0..8).for_each(|number| begin(&mut rig, number, receiving.admit(BYTES as u64)));
    assert!(receiving.admit(1).is_none());
    rig.pass(TIMEOUT);
    assert_eq!(rig.said(), vec![LATE; 8]);
    assert!(receiving.admit(8 * BYTES as u64).is_some(), "the memory is still in use");
    let held: usize = rig.links.links.iter().map(|link| link.output.bytes().len()).sum();
    assert!(held <= BYTES, "{held} bytes are still to be sent");
    // The other node goes on.
    begin(&mut rig, 8, None);
    let received = rig.read_all();
    let expected = [&*rig.hello, &command(0), END_OF_FORWARD, &command(8), END_OF_FORWARD].concat();
    assert!(received == expected, "{} bytes", received.len());
    rig.reply("STORED\r\n");
    assert!(rig.said().is_empty(), "a reply that comes too late is nobody's");
    rig.reply("STORED\r\n");
    assert_eq!(rig.said(), ["STORED\r\n"]);
}

#[test]
fn a_line_of_keys_of_which_a_part_fails_is_one_error() {
    let mut rig = Rig::new(64);
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| rig.keys[at].clone());
    let failed = "SERVER_ERROR out of memory writing get response\r\n";
    let [of_a, of_b, of_d] = [&a, &b, &d].map(|key| format!("{}END\r\n", value(key)));
    for (replies, expected) in [
        ([&*of_d, &of_a, &of_b, "END\r\n"], format!("MN\r\n{of_d}MN\r\n{}{of_b}", value(&a))),
        ([&*of_d, &of_a, failed, "END\r\n"], format!("MN\r\n{of_d}MN\r\n{failed}")),
        ([failed, failed, &of_b, failed], format!("MN\r\n{failed}MN\r\n{failed}")),
    ] {
        rig.say(&format!("mn\r\nget {d}\r\nmn\r\nget {a} {b} {c}\r\n"));
        rig.read();
        replies.iter().for_each(|reply| rig.reply(reply));
        assert_eq!(rig.said(), [expected]);
    }
}

#[test]
fn the_rest_of_a_line_that_has_failed_is_passed_over() {
    let mut rig = Rig::new(64);
    let input = format!("get {}\r\nversion\r\n", rig.keys.join(" "));
    let consumed = rig.say_within(&input, 2);
    rig.pass(TIMEOUT);
    let Answered { mut connection, then, .. } = rig.answers().remove(0);
    assert!(matches!(then, Next::Yield));
    assert_eq!(connection.output.bytes(), LATE.as_bytes());
    let session::Session::Memcache(state) = &mut connection.session else { panic!("it was another one") };
    let rest = &input.as_bytes()[consumed..];
    let mut tx = Vec::new();
    let (more, _) =
        rig.session.in_rack(&rig.view, |cx| serve(cx, state, rest, &mut { VISIT_REQUESTS_MAX }, &mut tx));
    assert_eq!(more, rest.len());
    assert!(tx.starts_with(b"VERSION "), "{}", String::from_utf8_lossy(&tx));
}

#[test]
fn no_value_follows_a_line_that_has_failed() {
    let mut rig = Rig::new(64);
    let is_own = |key: &String| rig.view.elsewhere(key.as_bytes(), || Intent::Read).is_none();
    let own = (0..).map(|number| format!("own{number}")).find(is_own).unwrap();
    // So large that it is sent from its item.
    assert_eq!(rig.session.say(&format!("set {own} 0 0 2000\r\n{}\r\n", "x".repeat(2000))), "STORED\r\n");
    rig.say(&format!("get {} {own}\r\n", rig.keys[0]));
    rig.pass(TIMEOUT);
    let Answered { connection, then, .. } = rig.answers().remove(0);
    assert!(matches!(then, Next::Yield));
    assert_eq!(connection.output.bytes(), LATE.as_bytes());
}

#[test]
fn reads_wait_for_others_under_way() {
    const WAITING_MAX: usize = 3;
    let mut rig = Rig::new(WAITING_MAX);
    rig.say(&format!("get {}\r\n", rig.keys.join(" ")));
    let mut received = Vec::new();
    for (at, key) in rig.keys.clone().iter().enumerate() {
        received.extend(rig.read());
        let asked = received.windows(END_OF_FORWARD.len()).filter(|bytes| *bytes == END_OF_FORWARD).count();
        assert_eq!(asked, (at + WAITING_MAX).min(rig.keys.len()));
        rig.reply(&format!("{}END\r\n", value(key)));
        rig.pass(Duration::ZERO);
    }
    let values: String = rig.keys.iter().map(|key| value(key)).collect();
    assert_eq!(rig.said(), [format!("{values}END\r\n")]);
    // They do not wait for ever.
    rig.say(&format!("get {}\r\n", rig.keys.join(" ")));
    rig.pass(TIMEOUT);
    assert_eq!(rig.said(), [LATE]);
    assert_eq!(rig.links.under_way, WAITING_MAX);
}

/// Nobody tells of the end again, and a link that others keep watched is not looked at.
#[test]
fn a_link_that_ends_with_its_last_reply_is_opened_again() {
    let mut rig = Rig::new(64);
    let set = format!("set {} 0 0 1\r\nx\r\n", rig.keys[0]);
    rig.say(&set);
    rig.read();
    let mut other = rig.other.take().unwrap();
    other.write_all(b"STORED\r\nMN\r\n").unwrap();
    drop(other);
    rig.pass(Duration::ZERO);
    assert_eq!(rig.said(), ["STORED\r\n"]);
    rig.say(&set);
    assert!(rig.read().ends_with(&[set.as_bytes(), END_OF_FORWARD].concat()));
    rig.reply("STORED\r\n");
    assert_eq!(rig.said(), ["STORED\r\n"]);
}
