//! The state of the native protocol that the workers of a server share.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use minos_base::{Clock, hash_key, limits::KEY_BYTES_MAX};
use minos_engine::{Access as _, CacheMode, Engine, Mode};
use minos_proto::native::{
    Access, DATAGRAM_BYTES_MIN, Flags, Header, Hello, Kind, ONCE_WINDOW, WELCOME_BYTES, Welcome, WelcomeFlags,
};

use super::{
    AnswerTo, Cookies, Seals, Sessions, SessionsConfig,
    counters::{NativeCounters, TransferCounters},
    transfers::{TransferBounds, TransferLimits},
};
use crate::{rack::News, server::config::NativeConfig};

/// Most unanswered datagrams that a client should have: two bursts of a worker.
const IN_FLIGHT: u32 = 64;

/// Default part of the memory for values that are still arriving.
const TRANSFER_MEMORY_PART: u64 = 16;

/// Default part of that memory for one address.
const SOURCE_MEMORY_PART: u64 = 4;

/// Default part of the memory for operations that wait for flash.
const WAITING_MEMORY_PART: u64 = 16;

/// The part of that memory for one address.
const WAITING_SOURCE_PART: u64 = 2;

/// Bytes of [`NativeSetting::entropy`].
pub const ENTROPY_BYTES: usize = 64;

/// The parameters of a native server besides its configuration.
#[derive(Clone, Debug)]
pub struct NativeSetting {
    /// RX queues, each of one worker.
    pub queues: u16,
    /// The port of queue 0, once it is known.
    pub base_port: u16,
    /// Largest value that clients hear of, in bytes; the store decides.
    pub value_bytes_max: u64,
    /// True if items leave flash, too, for newer ones.
    pub evicts_from_flash: bool,
    /// True if the answers to changes wait until these are durable.
    pub holds_replies: bool,
    /// In a rack, the seed of directions, which all its nodes share.
    pub direction_seed: Option<u64>,
    /// Secret random bytes.
    pub entropy: [u8; ENTROPY_BYTES],
    /// When the server starts.
    pub start: Instant,
}

/// The state of the native protocol that the workers of a server share.
pub struct NativeShared<M: Mode> {
    pub(super) store: Arc<Engine<M>>,
    pub(super) clock: Clock,
    pub(super) cookies: Cookies,
    pub(super) sessions: Sessions,
    /// The keys of all tags, if there is a secret.
    pub(super) seals: Option<Arc<Seals>>,
    pub(super) config: NativeConfig,
    pub(super) queues: usize,
    /// True if the answers to changes wait.
    pub(super) holds_replies: bool,
    /// The part of a Welcome that is the same for all clients, but for the largest value.
    welcome: Welcome,
    value_bytes_max: AtomicU64,
    /// The upper half of a geometry: see [`NativeShared::geometry`].
    fingerprint: AtomicU32,
    draining: AtomicBool,
    /// What answers say of the rack; nothing without one.
    news: Arc<News>,
    pub(super) counters: Box<[NativeCounters]>,
    pub(crate) transfer_bounds: Arc<TransferBounds>,
    /// The bounds on operations that wait for flash.
    waiting_bounds: Arc<TransferBounds>,
    pub(super) transfer_counters: Box<[Arc<TransferCounters>]>,
    /// Makes the names of transfers.
    pub(super) transfer_key: [u8; 16],
}

impl<M: Mode> NativeShared<M> {
    /// The shared state of the workers that serve `store`, whose items expire by `clock`.
    pub fn new(store: Arc<Engine<M>>, clock: Clock, config: &NativeConfig, setting: &NativeSetting) -> Self {
        let [boot, own_seed, keys @ ..] = words(&setting.entropy);
        // Where it chooses a key's partition, the table has it.
        let of_table = M::Access::IS_BY_THREAD.then(|| store.direction_seed());
        let direction_seed = of_table.or(setting.direction_seed).unwrap_or(own_seed);
        let key = |at: usize| (u128::from(keys[at]) << 64 | u128::from(keys[at + 1])).to_le_bytes();
        let (sessions_max, per_address_max) = (config.sessions, config.sessions_per_source);
        let sessions = SessionsConfig { sessions_max, per_address_max };
        let welcome = welcome(&store, config, setting, (boot, direction_seed));
        let bytes_max = config.transfer_memory_bytes.unwrap_or(store.memory_limit() / TRANSFER_MEMORY_PART);
        let limits = TransferLimits {
            bytes_max,
            source_bytes_max: config.source_memory_bytes.unwrap_or(bytes_max / SOURCE_MEMORY_PART),
            source_max: config.transfers_per_source,
        };
        let bytes_max = config.waiting_memory_bytes.unwrap_or(store.memory_limit() / WAITING_MEMORY_PART);
        let waiting = TransferLimits {
            bytes_max,
            source_bytes_max: bytes_max / WAITING_SOURCE_PART,
            source_max: usize::MAX,
        };
        Self {
            clock,
            cookies: Cookies::new(&key(0), setting.start),
            sessions: Sessions::new(sessions, &key(2)),
            seals: Seals::of(&config.secrets).map(Arc::new),
            config: config.clone(),
            queues: usize::from(setting.queues),
            holds_replies: setting.holds_replies,
            fingerprint: AtomicU32::new(fingerprint(&welcome)),
            value_bytes_max: AtomicU64::new(welcome.value_bytes_max),
            welcome,
            draining: AtomicBool::new(false),
            news: Arc::default(),
            counters: (0..setting.queues).map(|_| NativeCounters::default()).collect(),
            transfer_bounds: Arc::new(TransferBounds::new(limits)),
            waiting_bounds: Arc::new(TransferBounds::new(waiting)),
            transfer_counters: (0..setting.queues).map(|_| Arc::default()).collect(),
            transfer_key: key(4),
            store,
        }
    }

    /// Answers tell the news of a rack.
    pub(crate) fn with_news(self, news: Arc<News>) -> Self {
        Self { news, ..self }
    }

    /// Clients hear of another largest value: answers carry another geometry, and who sees that says hello.
    pub fn set_value_bytes_max(&self, value_bytes_max: u64) {
        let welcome = Welcome { value_bytes_max, ..self.welcome };
        self.value_bytes_max.store(value_bytes_max, Ordering::Relaxed);
        // Release: a Welcome with this geometry has this value.
        self.fingerprint.store(fingerprint(&welcome), Ordering::Release);
    }

    /// From now on answers tell that the server is stopping.
    pub fn drain(&self) {
        // Relaxed: clients may learn of it a little later.
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Every counter with its name, of all workers.
    pub fn totals(&self) -> Vec<(&'static str, u64)> {
        let mut totals: Vec<(&str, u64)> = Vec::new();
        for (small, large) in self.counters.iter().zip(&self.transfer_counters) {
            for (at, (name, value)) in small.all().chain(large.all()).enumerate() {
                match totals.get_mut(at) {
                    Some((_, total)) => *total = total.wrapping_add(value),
                    None => totals.push((name, value)),
                }
            }
        }
        let sessions = self.sessions.totals();
        totals.extend([
            ("native_sessions", sessions.open),
            ("native_sessions_opened", sessions.opened),
            ("native_sessions_evicted", sessions.evicted),
            ("native_sessions_refused", sessions.refused),
            ("native_transfer_bytes", self.transfer_bytes()),
            ("native_waits_bytes", self.waiting_bounds.bytes()),
        ]);
        totals
    }

    /// Bytes of large values that are still arriving.
    pub fn transfer_bytes(&self) -> u64 {
        self.transfer_bounds.bytes()
    }

    /// The sessions, for their counts.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn waiting_bounds(&self) -> &Arc<TransferBounds> {
        &self.waiting_bounds
    }

    pub(super) fn is_draining(&self) -> bool {
        // Relaxed: see `drain`.
        self.draining.load(Ordering::Relaxed)
    }

    /// The geometry for a client that accepts datagrams of `datagram_bytes_max`.
    ///
    /// The upper half changes with the directory; the lower half comes from the client's Hello. The client
    /// sends the whole with every request, so that the server need not store it.
    fn geometry(&self, datagram_bytes_max: u16) -> u32 {
        self.fingerprint.load(Ordering::Acquire) << 16 | u32::from(datagram_bytes_max)
    }

    /// The largest datagram for a client that sent `geometry`, in bytes.
    fn datagram_bytes_max(&self, geometry: u32) -> u16 {
        let largest = self.welcome.datagram_bytes_max;
        match geometry as u16 {
            0 => largest,
            bytes => bytes.clamp(DATAGRAM_BYTES_MIN as u16, largest),
        }
    }

    #[inline]
    pub(super) fn answer_to(&self, peer: SocketAddr, request: &Header) -> AnswerTo {
        let datagram_bytes_max = self.datagram_bytes_max(request.geometry);
        let mut header = request.answer(Kind::Reply, self.geometry(datagram_bytes_max));
        header.cookie = self.news.word();
        if self.seals.is_some() {
            (header.flags, header.secret) = (Flags::SEALED, request.secret);
        }
        if self.is_draining() {
            header.flags |= Flags::DRAINING;
        }
        AnswerTo { peer, header, datagram_bytes_max: usize::from(datagram_bytes_max), number: 0 }
    }

    /// The Welcome for a client that sent `hello`.
    pub(super) fn welcome(&self, peer: SocketAddr, hello: &Hello, session: u64, now: Instant) -> Welcome {
        let datagram_bytes_max = self.welcome.datagram_bytes_max.min(hello.datagram_bytes_max);
        Welcome {
            nonce: hello.nonce,
            cookie: self.cookies.issue(peer, now),
            cookie_seconds: self.cookies.seconds_left(now),
            session,
            datagram_bytes_max,
            geometry: self.geometry(datagram_bytes_max),
            value_bytes_max: self.value_bytes_max.load(Ordering::Relaxed),
            ..self.welcome
        }
    }
}

fn words(bytes: &[u8; ENTROPY_BYTES]) -> [u64; ENTROPY_BYTES / 8] {
    std::array::from_fn(|at| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at * 8..][..8]);
        u64::from_le_bytes(word)
    })
}

/// The part of a Welcome that is the same for all clients.
fn welcome<M: Mode>(
    store: &Engine<M>,
    config: &NativeConfig,
    setting: &NativeSetting,
    (boot, direction_seed): (u64, u64),
) -> Welcome {
    let is_cache = M::NAME == <CacheMode as Mode>::NAME || setting.evicts_from_flash;
    let flag = |is_set: bool, flag| if is_set { flag } else { WelcomeFlags::NONE };
    let access = match (M::Access::IS_BY_THREAD, M::Access::IS_SHARED) {
        (false, _) => Access::Crcw,
        (true, true) => Access::Crew,
        (true, false) => Access::Erew,
    };
    Welcome {
        nonce: 0,
        boot,
        cookie: 0,
        direction_seed,
        session: 0,
        cookie_seconds: 0,
        geometry: 0,
        queues: setting.queues,
        partition_bits: store.partitions().ilog2() as u8,
        access,
        base_port: setting.base_port,
        flags: flag(config.single_port, WelcomeFlags::SINGLE_PORT)
            | flag(!config.secrets.is_empty(), WelcomeFlags::SEALED)
            | flag(is_cache, WelcomeFlags::CACHE)
            | flag(setting.direction_seed.is_some(), WelcomeFlags::RACK),
        datagram_bytes_max: config.datagram_bytes as u16,
        key_bytes_max: KEY_BYTES_MAX as u16,
        window: config.window,
        once_window: ONCE_WINDOW,
        value_bytes_max: setting.value_bytes_max.min(store.value_bytes_max()),
        transfers_per_client: config.transfers_per_source as u32,
        in_flight: IN_FLIGHT,
    }
}

/// A nonzero number below 2^16 that most likely differs for another directory.
fn fingerprint(welcome: &Welcome) -> u32 {
    let mut bytes = [0; WELCOME_BYTES];
    welcome.write(&mut bytes);
    let hash = hash_key(&bytes, 0).0;
    ((hash >> 48) as u32).max(1)
}
