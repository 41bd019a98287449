//! The ways of a GET and a PUT through the client's core that `cargo xtask instructions` counts, a fixed number of each.
//!
//! Runs under callgrind, which counts within [`measured_operations`] only. Prints a line for each call of it: the
//! way and its number of operations. The answers come from a first run, which is not counted: the same calls at the
//! same times send the same bytes, so that the second run finds its answers ready.

#![forbid(unsafe_code)]

use std::{collections::VecDeque, hint::black_box};

use minos_client::{Config, Outcome, QueueBy, Request, Verb, core::Core};
use minos_proto::native::{
    Access, Composer, DATAGRAM_BYTES_DEFAULT, Flags, Header, Hello, Kind, Opcode, ReplyRecord, Status,
    WELCOME_BYTES, Welcome, WelcomeFlags, operations,
};

/// Operations of each way.
const OPERATIONS: u64 = 2048;
/// Operations of a vector, and of a pipeline.
const BURST: usize = 32;
/// Time from a burst to its answers, and from these to the next burst.
const PAUSE_NS: u64 = 20_000;
const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 23_711);
const VALUE: [u8; 8] = *b"instruct";
const WELCOME: Welcome = Welcome {
    nonce: 0,
    boot: 1,
    cookie: 2,
    direction_seed: 3,
    session: 0,
    cookie_seconds: 600,
    geometry: 4,
    queues: 2,
    partition_bits: 4,
    access: Access::Crew,
    base_port: SERVER.1,
    flags: WelcomeFlags::NONE,
    datagram_bytes_max: DATAGRAM_BYTES_DEFAULT as u16,
    key_bytes_max: 250,
    window: 32,
    once_window: 64,
    value_bytes_max: 1 << 20,
    transfers_per_client: 4,
    in_flight: 64,
};

fn main() {
    let keys: Vec<[u8; 8]> = (0..OPERATIONS).map(u64::to_le_bytes).collect();
    count("nothing", || keys.iter().for_each(|key| _ = black_box(key)));
    for way in [
        Way { name: "client.get_vector", verb: Verb::Get, burst: BURST, is_vector: true },
        Way { name: "client.get_pipeline", verb: Verb::Get, burst: BURST, is_vector: false },
        Way { name: "client.get_single", verb: Verb::Get, burst: 1, is_vector: false },
        Way { name: "client.put_vector", verb: Verb::Put, burst: BURST, is_vector: true },
        Way { name: "client.put_pipeline", verb: Verb::Put, burst: BURST, is_vector: false },
        Way { name: "client.put_single", verb: Verb::Put, burst: 1, is_vector: false },
    ] {
        let mut network = Network::default();
        way.play(&mut greet(way.verb, &mut network), &keys, &mut network);
        let mut core = greet(way.verb, &mut Network::default());
        network.repeat();
        count(way.name, || way.play(&mut core, &keys, &mut network));
    }
}

/// The only function within which instructions are counted.
#[inline(never)]
fn measured_operations(run: &mut dyn FnMut()) {
    run();
    // Keeps the call above from becoming a tail call, which would leave this function too early.
    black_box(());
}

fn count(name: &str, mut run: impl FnMut()) {
    measured_operations(&mut run);
    println!("{name} {OPERATIONS}");
}

/// A core that knows its server, and has a session if it needs one for this verb.
fn greet(verb: Verb, network: &mut Network) -> Core {
    // Any queue, so that a burst of PUTs is one train, too.
    let config = Config::new().queue_by(QueueBy::Random);
    let mut core = Core::new(config, SERVER.into(), 1, 0).expect("valid options");
    core.submit(Request::new(verb, "greeting"), 0).expect("room for one");
    for now_ns in 1.. {
        network.carry(&mut core, now_ns);
        network.deliver(&mut core, now_ns);
        if core.poll_completion().is_some() {
            break;
        }
    }
    network.recorded.clear();
    core
}

/// How operations are sent.
struct Way {
    name: &'static str,
    verb: Verb,
    /// Those that wait for their answers together.
    burst: usize,
    /// True if they share datagrams.
    is_vector: bool,
}

impl Way {
    fn play(&self, core: &mut Core, keys: &[[u8; 8]], network: &mut Network) {
        let mut now_ns = PAUSE_NS;
        for burst in keys.chunks(self.burst) {
            for key in burst {
                core.submit(self.request(*black_box(key)), now_ns).expect("room for a burst");
                if !self.is_vector {
                    network.carry(core, now_ns);
                }
            }
            network.carry(core, now_ns);
            now_ns += PAUSE_NS;
            network.deliver(core, now_ns);
            for _ in burst {
                let completion = core.poll_completion().expect("an answer to each");
                assert!(matches!(black_box(completion).result, Ok(Outcome::Value(_) | Outcome::Done { .. })));
            }
            now_ns += PAUSE_NS;
            core.on_timer(now_ns);
        }
    }

    fn request(&self, key: [u8; 8]) -> Request {
        let request = Request::new(self.verb, key);
        if self.verb == Verb::Put { request.value(VALUE) } else { request }
    }
}

/// Answers of one length, one behind the other.
#[derive(Default)]
struct Train {
    segment_bytes: usize,
    bytes: Vec<u8>,
}

/// The server with the network before it, or the memory of what it has answered.
#[derive(Default)]
struct Network {
    is_memory: bool,
    coming: Train,
    recorded: VecDeque<Train>,
}

impl Network {
    /// From now on only repeats the answers that it has given.
    fn repeat(&mut self) {
        self.is_memory = true;
    }

    /// Takes what the core has to send.
    fn carry(&mut self, core: &mut Core, now_ns: u64) {
        while let Some(train) = core.poll_transmit(now_ns) {
            if !black_box(self.is_memory) {
                train.bytes.chunks(train.segment_bytes).for_each(|datagram| self.coming.answer(datagram));
            }
        }
    }

    /// Gives the core its answers.
    fn deliver(&mut self, core: &mut Core, now_ns: u64) {
        if !self.is_memory {
            self.recorded.push_back(std::mem::take(&mut self.coming));
        }
        let at = if self.is_memory { 0 } else { self.recorded.len() - 1 };
        let Train { segment_bytes, bytes } = &self.recorded[at];
        core.receive(SERVER.into(), bytes, *segment_bytes, now_ns);
        if self.is_memory {
            self.recorded.pop_front();
        }
    }
}

impl Train {
    fn answer(&mut self, datagram: &[u8]) {
        let header = Header::parse(datagram).expect("a datagram of the core");
        let begin = self.bytes.len();
        let kind = if header.kind == Kind::Hello { Kind::Welcome } else { Kind::Reply };
        let mut composer =
            Composer::begin(&mut self.bytes, header.answer(kind, WELCOME.geometry), DATAGRAM_BYTES_DEFAULT);
        if header.kind == Kind::Hello {
            let Hello { nonce, .. } = Hello::parse(header.body(datagram)).expect("a hello of the core");
            let mut body = [0; WELCOME_BYTES];
            Welcome { nonce, session: u64::from(header.flags.contains(Flags::OPEN)), ..WELCOME }
                .write(&mut body);
            composer.push_bytes(&body);
        }
        for operation in operations(datagram, &header) {
            let operation = operation.expect("an operation of the core");
            let bare = ReplyRecord::bare(operation.opcode, Status::Ok, operation.request);
            let value: &[u8] = if operation.opcode == Opcode::Get { &VALUE } else { &[] };
            assert!(composer.push_reply(&ReplyRecord { value, cas: 1, ..bare }));
        }
        composer.finish();
        self.segment_bytes = self.bytes.len() - begin;
    }
}
