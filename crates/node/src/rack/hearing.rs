//! The thread that hears what changes at the other nodes, as long as clients of this one track keys.
//!
//! It asks each node for that on a stream of its own, and sends no-ops, so that it notices a node that cannot be heard. Until
//! that one is heard again it may change anything untold: clients are told so when it is missed first, then once a second as
//! long as it owns keys, and when it is heard again.

use std::{
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::is_left_out;
use minos_engine::{Engine, Mode};
use minos_net::{Interest, Poller, Progress, Ready, Token, Wait, Waker, wait_readable};
use minos_sealed::{Ends, Keys, Purpose};

use super::{END_OF_FORWARD, TELL_MARK, greeting::hello, owners::Rack};
use crate::{
    server::Stop,
    tcp::connection::{Buffer, Stream},
    tracking::{Heard, Tracking, read_heard},
};

/// Time until a node is called again.
const RETRY: Duration = Duration::from_millis(100);
/// Time that a node has to answer, at least: a shorter one is meant for commands.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// No-ops in the time that a node has to answer.
const ASKED: u32 = 4;
/// Time between two no-ops, at most.
const ASK_MAX: Duration = Duration::from_millis(500);
/// Time after which clients are told again that a node is not heard.
const MISS_EVERY: Duration = Duration::from_secs(1);
/// Sleep while nobody tracks.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Bytes received at a time.
const RECEIVE_BYTES: usize = 64 << 10;
/// Receive calls for one node in one turn.
const RECEIPTS_MAX: usize = 8;
/// The reply to a no-op.
const ANSWER: &[u8] = b"MN\r\n";

/// The thread's state.
pub(crate) struct Hearing<M: Mode, P> {
    rack: Arc<Rack<M>>,
    store: Arc<Engine<M>>,
    tracking: Arc<Tracking>,
    stop: Arc<Stop>,
    waker: Arc<Waker>,
    poller: P,
    ready: Vec<Ready>,
    keys: Option<Keys>,
    voices: Vec<Voice>,
    buffer: Box<[u8]>,
    /// When clients were told last that a node is not heard.
    missed: Instant,
}

/// Another node.
struct Voice {
    node: usize,
    stream: Option<Stream>,
    output: Buffer,
    input: Vec<u8>,
    /// It tells of every change.
    is_heard: bool,
    /// No process is there, which is known of this machine alone.
    is_gone: bool,
    /// When something came from it, or when it was called.
    heard: Instant,
    /// When it was asked last.
    asked: Instant,
    /// When it may be called.
    retry: Instant,
}

/// A node cannot be heard any more.
struct Broken;

impl<M: Mode, P: Poller> Hearing<M, P> {
    /// The thread of a node that knows its rack, its items, and which clients track.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(
        (rack, store, tracking): (&Arc<Rack<M>>, Arc<Engine<M>>, Arc<Tracking>),
        stop: Arc<Stop>,
        poller: P,
    ) -> io::Result<Self> {
        let waker = Arc::new(Waker::new()?);
        tracking.hear_with(Arc::clone(&waker));
        let now = Instant::now();
        let others = (0..rack.config.nodes.len()).filter(|&node| node != rack.config.node);
        Ok(Self {
            voices: others.map(|node| Voice::new(node, now)).collect(),
            keys: rack.config.keys(),
            rack: Arc::clone(rack),
            store,
            tracking,
            stop,
            waker,
            poller,
            ready: Vec::new(),
            buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            missed: now,
        })
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        while !self.stop.is_requested() {
            let tracks = self.tracking.has_clients();
            if tracks {
                self.turn(Instant::now())
            } else {
                self.rest()
            }
            self.waker.prepare();
            if self.tracking.has_clients() == tracks {
                let own = [self.stop.descriptor(), self.waker.as_fd(), self.poller.descriptor()];
                let sleep = if tracks { self.sleep_max() } else { SLEEP_MAX };
                if wait_readable(&own, Wait::For(sleep)).is_err() {
                    std::thread::sleep(RETRY);
                }
            }
            self.waker.awake();
            self.waker.drain();
        }
    }

    fn patience(&self) -> Duration {
        self.rack.config.timeout.max(PATIENCE_MIN)
    }

    fn ask_every(&self) -> Duration {
        (self.patience() / ASKED).min(ASK_MAX)
    }

    fn sleep_max(&self) -> Duration {
        let calls = self.voices.iter().any(|voice| voice.stream.is_none());
        if calls { self.ask_every().min(RETRY) } else { self.ask_every() }
    }

    /// Nobody wants to hear anything.
    fn rest(&mut self) {
        let now = Instant::now();
        for at in 0..self.voices.len() {
            self.hang_up(at, now);
            self.voices[at].is_heard = false;
        }
        self.missed = now;
    }

    fn turn(&mut self, now: Instant) {
        for at in 0..self.voices.len() {
            if self.call(at, now).and_then(|()| self.speak(at, now)).is_err() {
                self.miss(at, now);
            }
        }
        self.ready.clear();
        if self.poller.poll(&mut self.ready, usize::MAX, Wait::No).is_err() {
            self.ready.clear();
        }
        for ready in std::mem::take(&mut self.ready) {
            let at = ready.token.0 as usize;
            if self.hear(at, now).and_then(|()| self.speak(at, now)).is_err() {
                self.miss(at, now);
            }
        }
        let routes = &self.rack.routes;
        let is_missed =
            |voice: &Voice| !voice.is_heard && !voice.is_gone && routes.count(voice.node as u16) > 0;
        if now.saturating_duration_since(self.missed) >= MISS_EVERY && self.voices.iter().any(is_missed) {
            self.missed = now;
            self.tracking.miss();
        }
    }

    /// Calls a node that is not called yet, and gives up one that is late.
    fn call(&mut self, at: usize, now: Instant) -> Result<(), Broken> {
        let patience = self.patience();
        let voice = &mut self.voices[at];
        if voice.stream.is_some() {
            let is_late = now.saturating_duration_since(voice.heard) >= patience;
            return if is_late { Err(Broken) } else { Ok(()) };
        }
        if now < voice.retry {
            return Ok(());
        }
        let config = &self.rack.config;
        let ends = Ends { purpose: Purpose::Commands, from: config.node as u16, to: voice.node as u16 };
        let sealing = self.keys.as_ref().map(|keys| (keys, ends));
        let called = Stream::connect(&config.nodes[voice.node].address, sealing).and_then(|stream| {
            let token = Token(at as u64);
            self.poller.add(token, stream.as_fd(), Interest::ReadWrite).map(|()| stream)
        });
        voice.is_gone = called.as_ref().is_err_and(|error| {
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
        });
        voice.stream = Some(called.map_err(|_| Broken)?);
        voice.output.append(&hello(config, voice.node));
        voice.output.append(&[TELL_MARK]);
        voice.output.append(END_OF_FORWARD);
        (voice.heard, voice.asked) = (now, now);
        Ok(())
    }

    /// Sends what there is to say, and a no-op now and then.
    fn speak(&mut self, at: usize, now: Instant) -> Result<(), Broken> {
        let ask_every = self.ask_every();
        let voice = &mut self.voices[at];
        let Some(stream) = &mut voice.stream else { return Ok(()) };
        if voice.is_heard && now.saturating_duration_since(voice.asked) >= ask_every {
            voice.asked = now;
            voice.output.append(END_OF_FORWARD);
        }
        // It goes on with a handshake that is under way.
        if !stream.is_open() && stream.receive(&mut []) == Progress::Closed {
            return Err(Broken);
        }
        while stream.is_open() && !voice.output.is_empty() {
            match stream.send(voice.output.bytes()) {
                Progress::Bytes(sent) => voice.output.consume(sent),
                Progress::Blocked => break,
                Progress::Closed => return Err(Broken),
            }
        }
        Ok(())
    }

    /// Receives what has come from a node.
    fn hear(&mut self, at: usize, now: Instant) -> Result<(), Broken> {
        for _ in 0..RECEIPTS_MAX {
            let voice = &mut self.voices[at];
            let Some(stream) = voice.stream.as_mut().filter(|stream| stream.is_open()) else { return Ok(()) };
            match stream.receive(&mut self.buffer) {
                Progress::Bytes(received) => {
                    voice.input.extend_from_slice(&self.buffer[..received]);
                    voice.heard = now;
                    self.take_in(at)?;
                }
                Progress::Blocked => return Ok(()),
                Progress::Closed => return Err(Broken),
            }
        }
        // Edges are not repeated.
        let stream = self.voices[at].stream.as_ref().ok_or(Broken)?;
        let token = Token(at as u64);
        self.poller.change(token, stream.as_fd(), Interest::ReadWrite).map_err(|_| Broken)
    }

    /// Passes on what a node has said.
    fn take_in(&mut self, at: usize) -> Result<(), Broken> {
        let (tracking, me) = (&self.tracking, self.rack.config.node as u16);
        let Voice { input, is_heard, .. } = &mut self.voices[at];
        let mut taken = 0;
        while let Some((heard, bytes)) = read_heard(&input[taken..]) {
            taken += bytes;
            match heard {
                Heard::Change(key, origin) => tracking.hear_change((self.store.hash(key), key), origin, me),
                Heard::Lost(hash) => tracking.hear_loss(hash),
                Heard::LostAlike(buckets, hash) => tracking.hear_loss_alike(buckets, hash),
                Heard::All => tracking.hear_all(),
                Heard::Other if input[taken..].starts_with(ANSWER) => {
                    taken += ANSWER.len();
                    // What was read before it answered may have changed untold.
                    if !std::mem::replace(is_heard, true) && !is_left_out("hearing") {
                        tracking.miss();
                    }
                }
                Heard::Other if ANSWER.starts_with(&input[taken..]) => break,
                Heard::Other => return Err(Broken),
            }
        }
        input.drain(..taken);
        Ok(())
    }

    /// Tells clients that a node is not heard any more.
    fn miss(&mut self, at: usize, now: Instant) {
        self.hang_up(at, now);
        if std::mem::take(&mut self.voices[at].is_heard) && !is_left_out("hearing") {
            self.missed = now;
            self.tracking.miss();
        }
    }

    fn hang_up(&mut self, at: usize, now: Instant) {
        let voice = &mut self.voices[at];
        if let Some(stream) = voice.stream.take() {
            self.poller.remove(Token(at as u64), stream.as_fd());
        }
        (voice.output, voice.input, voice.retry) = (Buffer::default(), Vec::new(), now + RETRY);
    }
}

impl Voice {
    fn new(node: usize, now: Instant) -> Self {
        Self {
            node,
            stream: None,
            output: Buffer::default(),
            input: Vec::new(),
            is_heard: false,
            is_gone: false,
            heard: now,
            asked: now,
            retry: now,
        }
    }
}
