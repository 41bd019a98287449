//! Visits without sockets: streams that give and take a few bytes at a time, as a seed says.

use std::{
    fs::File,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use minos_engine::{Engine, StoreConfig, StoreMode};
use minos_net::{Interest, Io, Kernel, Poller, PortOptions, Progress, Ready, Token, Wait};
use minos_sched::{Design, Threshold, WorkerId};
use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{connection::Stream, patience::Terms};
use crate::{
    ServerConfig,
    server::{
        settings::{self, Tuning},
        shared::{InForce, Shared},
        start::share,
    },
    worker::{Worker, large_set::LargeSet, lockstep::take_in},
};

/// Bytes that a stream seals before it is blocked: more than a slice has.
const HELD_BYTES_MAX: usize = 10_000;

/// A stream that plays one client.
pub(crate) struct Script {
    state: Arc<Mutex<State>>,
    /// Something to be watched; the poller below never looks.
    file: File,
}

struct State {
    random: SmallRng,
    /// Bytes that the client still sends.
    sends: Vec<u8>,
    /// Bytes that the client has received.
    received: Vec<u8>,
    /// Calls after which the connection breaks.
    calls_left: usize,
    /// Bytes that a blocked call has sealed, as one over TLS does. The next call must begin with them.
    held: Vec<u8>,
    /// True for a stream that claims to have taken a byte more than it has, for the control.
    loses: bool,
}

impl State {
    /// The number of bytes that a call moves of `bytes`: none in one call of three.
    fn next(&mut self, bytes: usize) -> Progress {
        if self.calls_left == 0 {
            return Progress::Closed;
        }
        self.calls_left -= 1;
        if bytes == 0 || self.random.random_ratio(1, 3) {
            return Progress::Blocked;
        }
        let few = self.random.random_bool(0.5);
        Progress::Bytes(self.random.random_range(1..=if few { bytes.min(40) } else { bytes }))
    }
}

impl Script {
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Progress {
        let mut state = self.state.lock();
        let bytes = buffer.len().min(state.sends.len());
        let progress = state.next(bytes);
        if let Progress::Bytes(moved) = progress {
            buffer[..moved].copy_from_slice(&state.sends[..moved]);
            state.sends.drain(..moved);
        }
        progress
    }

    pub(super) fn send(&self, bytes: &[u8]) -> Progress {
        let mut state = self.state.lock();
        if !bytes.starts_with(&state.held) {
            return Progress::Closed;
        }
        match state.next(bytes.len()) {
            Progress::Bytes(moved) => {
                let moved = moved.max(state.held.len());
                state.held.clear();
                let lost = usize::from(state.loses);
                state.received.extend_from_slice(&bytes[..moved - lost]);
                Progress::Bytes(moved)
            }
            Progress::Blocked if state.held.is_empty() => {
                state.held = bytes[..bytes.len().min(HELD_BYTES_MAX)].to_vec();
                Progress::Blocked
            }
            other => other,
        }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.state.lock().held.len()
    }

    pub(super) fn send_pieces(&self, pieces: &[IoSlice<'_>]) -> Progress {
        self.send(&pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<_>>())
    }
}

impl AsFd for Script {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Reports everything that it watches as ready, in each poll.
struct Always {
    tokens: Vec<Token>,
    file: File,
}

impl Poller for Always {
    fn add(&mut self, token: Token, _socket: BorrowedFd<'_>, _interest: Interest) -> io::Result<()> {
        self.tokens.push(token);
        Ok(())
    }

    fn change(&mut self, _token: Token, _socket: BorrowedFd<'_>, _interest: Interest) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, token: Token, _socket: BorrowedFd<'_>) {
        self.tokens.retain(|&other| other != token);
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, max: usize, _wait: Wait) -> io::Result<()> {
        let all = self.tokens.iter().take(max);
        ready.extend(all.map(|&token| Ready { token, readable: true, writable: true, hangup: false }));
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Transports without the kernel.
struct Scripted;

impl Io for Scripted {
    type Poller = Always;
    type Port = <Kernel as Io>::Port;

    fn poller(&self) -> io::Result<Always> {
        Ok(Always { tokens: Vec::new(), file: nothing() })
    }

    fn ports(&self, _wanted: &PortOptions) -> io::Result<Vec<Self::Port>> {
        Ok(Vec::new())
    }
}

fn nothing() -> File {
    File::open("/dev/null").unwrap()
}

/// A server of one worker that serves values above 1000 bytes in slices of 4 KiB.
fn shared(dispatch: Design) -> Arc<Shared<StoreMode, Scripted>> {
    let mut config = ServerConfig::new(1);
    config.dispatch = dispatch;
    config.control.threshold = Threshold::Static(1000);
    config.slice_bytes = 4096;
    let (choice, tuning) = (config.choice(), Tuning::of(&config, 1 << 20));
    let policy = settings::policy(choice, &tuning).unwrap();
    let store = Arc::new(Engine::<StoreMode>::create(&StoreConfig::new(16 << 20)).unwrap());
    share(&Scripted, config, (store, None), InForce::of(choice, &policy, tuning)).unwrap()
}

/// Serves a client that sends `sends` on a stream of `seed`. Returns the replies, and whether the server has
/// closed the connection.
fn serve(sends: &[u8], seed: u64, calls_max: usize, loses: bool) -> (Vec<u8>, bool) {
    serve_by(Design::SizeAware, sends, seed, calls_max, loses)
}

fn serve_by(dispatch: Design, sends: &[u8], seed: u64, calls_max: usize, loses: bool) -> (Vec<u8>, bool) {
    let shared = shared(dispatch);
    let state = Arc::new(Mutex::new(State {
        random: SmallRng::seed_from_u64(seed),
        sends: sends.to_vec(),
        received: Vec::new(),
        calls_left: calls_max,
        held: Vec::new(),
        loses,
    }));
    let stream = Stream::Scripted(Script { state: Arc::clone(&state), file: nothing() });
    take_in(&shared, stream, 0);
    let terms = Terms { wait_max: Duration::from_secs(60), rate_min: 0 };
    let config = &shared.config;
    let large = LargeSet::new(Scripted.poller().unwrap(), config.large_order, config.large_wait_max, terms);
    let mut worker = Worker::new(&shared, WorkerId(0), large, None, None);
    // A turn in which nothing moves may be one in which every call was blocked, so it takes many to be sure.
    let mut still = 0;
    while still < 200 && shared.connections.current() > 0 {
        let before = moved(&state);
        worker.turn(|_, _| {});
        still = if moved(&state) == before { still + 1 } else { 0 };
    }
    assert_eq!(shared.store.check(), Ok(()));
    let received = std::mem::take(&mut state.lock().received);
    (received, shared.connections.current() == 0)
}

fn moved(state: &Mutex<State>) -> (usize, usize) {
    let state = state.lock();
    (state.sends.len(), state.received.len())
}

/// Requests of every kind, small and large, some of them in one line, and their replies.
fn dialogue() -> (Vec<u8>, Vec<u8>) {
    let large = "large value ".repeat(2000);
    let bytes = large.len();
    let mut sends = format!("set small 0 0 5\r\nsmall\r\nset large 7 0 {bytes}\r\n{large}\r\n");
    let mut replies = "STORED\r\nSTORED\r\n".to_owned();
    let both = format!("VALUE small 0 5\r\nsmall\r\nVALUE large 7 {bytes}\r\n{large}\r\n");
    for _ in 0..3 {
        sends += "get small large small missing\r\nmg large s v\r\nbad command\r\nincr small 1\r\n";
        replies += &both;
        replies += &format!("VALUE small 0 5\r\nsmall\r\nEND\r\nVA {bytes} s{bytes}\r\n{large}\r\nERROR\r\n");
        replies += "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    }
    sends +=
        &format!("append large 0 0 3\r\nend\r\nset large 0 0 {bytes}\r\n{large}??get small\r\nget large\r\n");
    replies += "STORED\r\nCLIENT_ERROR bad data chunk\r\nVALUE small 0 5\r\nsmall\r\nEND\r\n";
    replies += &format!("VALUE large 7 {}\r\n{large}end\r\nEND\r\n", bytes + 3);
    (sends.into_bytes(), replies.into_bytes())
}

#[test]
fn replies_do_not_depend_on_how_bytes_come_and_go() {
    let (sends, replies) = dialogue();
    // The second one begins with all of a large value, and goes on in slices.
    for dispatch in [Design::SizeAware, Design::KeyHash] {
        for seed in 0..40 {
            let (received, closed) = serve_by(dispatch, &sends, seed, usize::MAX, false);
            assert!(received == replies, "{dispatch:?}, seed {seed}: {}", String::from_utf8_lossy(&received));
            assert!(!closed, "{dispatch:?}, seed {seed}");
        }
    }
}

#[test]
fn a_connection_that_breaks_anywhere_is_closed() {
    let (sends, replies) = dialogue();
    for calls in 0..300 {
        let (received, closed) = serve(&sends, 1, calls, false);
        assert!(replies.starts_with(&received), "{calls} calls");
        assert!(closed, "{calls} calls");
    }
}

#[test]
fn control_a_stream_that_loses_bytes_is_found_out() {
    let (sends, replies) = dialogue();
    assert_ne!(serve(&sends, 0, usize::MAX, true).0, replies);
}
