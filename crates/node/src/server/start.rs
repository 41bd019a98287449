//! Start and end of a server and its threads.

use std::{
    fs::File,
    io::{self, Read},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};

use minos_base::limits::BURST_MAX;
use minos_engine::{Access, Engine, Mode};
#[cfg(all(debug_assertions, not(test), not(fuzzing)))]
use minos_engine::{CacheMode, StoreMode};
use minos_net::{Address, Io, Kernel, Listener, Waker};
use minos_sched::{SharedHistogram, WorkerId};
use minos_sealed::Keys;
use minos_sync::Ring;
use minos_tier::{Keeper, Tier};
use parking_lot::Mutex;

use super::{
    config::{InvalidOption, NativeConfig, ServerConfig},
    control::{Control, LISTENERS_MAX},
    gate::Gate,
    handshakes::AllHandshakeCounters,
    keeping::keep,
    mailbox::Mailbox,
    operator::Operator,
    owned,
    seats::{beside, bind, cpus},
    settings::{self, Tuning},
    shared::{InForce, NativeSide, PlanCell, Shared, TrackingHost},
    stop::Stop,
    tls::TlsFront,
};
#[cfg(feature = "ucx")]
use crate::rack::{Afar, answer_reads};
use crate::{
    access::{Checks, check},
    datagram::{
        native::{ENTROPY_BYTES, NativeSetting, NativeShared},
        ports::Ports,
    },
    ops::{
        Prefixes,
        counters::Counters,
        receiving::{self, Receiving},
    },
    rack::{
        Attacher, Driver, Hearing, Links, News, Passed, Rack,
        config::{RackConfig, RackFabric},
    },
    tcp::{
        queue::RxQueue,
        session::{Protocol, StreamListener},
    },
    tracking::Tracking,
    watch::Watch,
    worker::{
        Worker, copies::ReadLately, fetches::Fetches, flash::holds_replies, large_set::LargeSet,
        metrics::Metrics, rings::WorkerShared,
    },
};

/// A running server. Dropping it stops it and waits.
#[derive(Debug)]
pub struct Server {
    stop: Arc<Stop>,
    operator: Operator,
    addresses: Vec<Address>,
    resp_addresses: Vec<Address>,
    native_address: Option<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A value is out of its bounds.
    #[error(transparent)]
    Option(#[from] InvalidOption),
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: Address,
        /// The kernel's error.
        error: io::Error,
    },
    /// The ports of the native protocol cannot be bound.
    #[error("--native {address}: cannot open {ports} ports: {error}")]
    Native {
        /// The address of the first one.
        address: SocketAddr,
        /// The number of ports.
        ports: usize,
        /// The kernel's error.
        error: io::Error,
    },
    /// A node without a coordinator has memory of one with a coordinator.
    #[error(
        "this memory is of a rack with a coordinator, which may have moved micro-shards: give --coordinator, or remove the memory"
    )]
    Coordinated,
    /// There are too many addresses.
    #[error("{0} addresses to listen on are too many; at most {LISTENERS_MAX} are allowed")]
    TooManyListeners(usize),
    /// The kernel refused a thread or a descriptor.
    #[error("cannot start")]
    System(#[from] io::Error),
}

/// A thread of the server panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a thread of the server panicked")]
pub struct ThreadPanicked;

/// Starts a server over a table in mode `M`.
#[cfg(all(debug_assertions, not(test), not(fuzzing)))]
type Start<M> = fn(ServerConfig, Arc<Engine<M>>) -> Result<Server, StartError>;

/// Compiles the server here, once for the program and all tests beside these. Optimized builds share no generic code,
/// and fuzzing starts no server.
#[cfg(all(debug_assertions, not(test), not(fuzzing)))]
#[used]
static COMPILED_HERE: (Start<CacheMode>, Start<StoreMode>) = (Server::start, Server::start);

impl Server {
    /// Starts the threads and returns once clients can connect.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start<M: Mode>(config: ServerConfig, store: Arc<Engine<M>>) -> Result<Self, StartError> {
        Self::start_over(&Kernel, config, store)
    }

    /// Starts a server whose items leave memory for flash. Its own thread runs `keeper`.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_above_flash(config: ServerConfig, keeper: Keeper) -> Result<Self, StartError> {
        Self::start_above_flash_over(&Kernel, config, keeper)
    }

    /// The same, over the transports that `io` opens.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_above_flash_over<I: Io>(
        io: &I,
        config: ServerConfig,
        keeper: Keeper,
    ) -> Result<Self, StartError> {
        let store = Arc::clone(keeper.tier().engine());
        Self::start_with(io, config, (store, Some(keeper)))
    }

    /// As [`start`](Self::start), over the transports that `io` opens.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_over<M: Mode, I: Io>(
        io: &I,
        config: ServerConfig,
        store: Arc<Engine<M>>,
    ) -> Result<Self, StartError> {
        Self::start_with(io, config, (store, None))
    }

    fn start_with<M: Mode, I: Io>(
        io: &I,
        config: ServerConfig,
        (store, keeper): (Arc<Engine<M>>, Option<Keeper>),
    ) -> Result<Self, StartError> {
        config.check()?;
        owned::check::<M>(&config, &store)?;
        let choice = config.choice();
        let tuning = Tuning::of(&config, receive_memory_bytes(&config, &store));
        let policy = settings::policy(choice, &tuning)?;
        let (mut listeners, [addresses, resp_addresses]) = listen_for_clients(&config)?;
        let (peers, gate) = config.rack.as_ref().map(listen_for_peers).transpose()?.unwrap_or_default();
        listeners.extend(peers);
        let tier = keeper.as_ref().map(|keeper| Arc::clone(keeper.tier()));
        let shared = share(io, config, (store, tier), InForce::of(choice, &policy, tuning))?;
        shared.config.after_bind.as_ref().map_or(Ok(()), |after| (after.0)())?;
        let stop = Arc::clone(&shared.stop);
        let native_address = shared.native.as_ref().map(|side| side.ports.address());
        let operator = Operator::new(&shared);
        let mut server =
            Self { stop, operator, addresses, resp_addresses, native_address, threads: Vec::new() };
        server.spawn_workers(io, &shared)?;
        if let Some(keeper) = keeper {
            let shared = Arc::clone(&shared);
            server.spawn("minos-keeper".to_owned(), move || keep(keeper, &shared))?;
        }
        server.spawn_rack(io, &shared, gate)?;
        let listeners = server.spawn_fronts(io, &shared, listeners)?;
        let control = Control::new(shared, policy, listeners);
        server.spawn("minos-control".to_owned(), move || control.run())?;
        Ok(server)
    }

    /// Addresses that clients can connect to, with the actual ports.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Addresses that Redis' clients can connect to, with the actual ports.
    pub fn resp_addresses(&self) -> &[Address] {
        &self.resp_addresses
    }

    /// Address for the hello of native clients, with the actual port, if the protocol is served.
    pub fn native_address(&self) -> Option<SocketAddr> {
        self.native_address
    }

    /// The handle for requests to this server while it runs.
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// The handle that stops this server.
    pub fn stop(&self) -> &Arc<Stop> {
        &self.stop
    }

    /// Waits until every thread has ended.
    ///
    /// # Errors
    /// A thread panicked and may have left an operation on the store unfinished.
    pub fn join(mut self) -> Result<(), ThreadPanicked> {
        self.join_threads()
    }

    fn spawn_workers<M: Mode, I: Io>(&mut self, io: &I, shared: &Arc<Shared<M, I>>) -> io::Result<()> {
        let cpus = cpus(&shared.config);
        for (index, cpus) in cpus.into_iter().enumerate() {
            let (large, fetches, links) = beside(&shared.config, index, || outfit(io, shared, index))?;
            let shared = Arc::clone(shared);
            self.spawn(format!("minos-worker-{index}"), move || {
                bind(&cpus);
                shared.store.take_up(index);
                Worker::<M, I>::new(&shared, WorkerId(index as u16), large, fetches, links).run();
                shared.store.give_up(index);
                // It changes nothing any more. Release: after its last change.
                shared.workers_left.fetch_sub(1, Ordering::Release);
                shared.tier.iter().for_each(|tier| tier.call_keeper());
            })?;
        }
        Ok(())
    }

    /// Starts the threads that look at clients before workers do: for TLS, whose listeners are not among those returned,
    /// and for passwords.
    fn spawn_fronts<M: Mode, I: Io>(
        &mut self,
        io: &I,
        shared: &Arc<Shared<M, I>>,
        listeners: Vec<StreamListener>,
    ) -> io::Result<Vec<StreamListener>> {
        let (secured, others) = listeners.into_iter().partition(|each| each.over_tls);
        if let Some(front) = TlsFront::new(shared, secured, io.poller()?) {
            self.spawn("minos-tls".to_owned(), move || front.run())?;
        }
        if let Some(access) = &shared.config.access {
            let (shared, access) = (Arc::clone(shared), access.clone());
            self.spawn("minos-access".to_owned(), move || check(&shared, &access))?;
        }
        Ok(others)
    }

    /// Starts the threads of a node of a rack, if the server is one.
    fn spawn_rack<M: Mode, I: Io>(
        &mut self,
        io: &I,
        shared: &Arc<Shared<M, I>>,
        gate: Option<(Listener, Keys)>,
    ) -> Result<(), StartError> {
        // A constant, so that the code is not compiled where a rack is refused.
        if M::Access::IS_BY_THREAD {
            return Ok(());
        }
        #[cfg(feature = "ucx")]
        if let Some(RackFabric::Ucx(memory)) = shared.config.rack.as_ref().map(|rack| &rack.fabric) {
            let (memory, stop) = (Arc::clone(memory), Arc::clone(&shared.stop));
            self.spawn("minos-ucx".to_owned(), move || answer_reads(&memory, &stop))?;
        }
        let mut visitors = None;
        if let Some(attacher) = attacher(shared)? {
            self.spawn("minos-rack".to_owned(), move || attacher.run())?;
        }
        if let Some(rack) = &shared.rack
            && let Some(managed) = &rack.config.managed
        {
            let (driver, copier, admits) = Driver::new(shared, rack, managed)?;
            self.spawn("minos-copy".to_owned(), move || copier.run())?;
            self.spawn("minos-member".to_owned(), move || driver.run())?;
            visitors = Some(admits);
        }
        if let Some(rack) = shared.rack.as_ref().filter(|_| !shared.config.resp.is_empty()) {
            let (store, tracking) = (Arc::clone(&shared.store), Arc::clone(&shared.tracking));
            let hearing = Hearing::new((rack, store, tracking), Arc::clone(&shared.stop), io.poller()?)?;
            self.spawn("minos-hearing".to_owned(), move || hearing.run())?;
        }
        if let Some(gate) = gate {
            let gate = Gate::new(Arc::clone(shared), gate, io.poller()?, visitors);
            self.spawn("minos-gate".to_owned(), move || gate.run())?;
        }
        Ok(())
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.threads.push(thread::Builder::new().name(name).spawn(run)?);
        Ok(())
    }

    fn join_threads(&mut self) -> Result<(), ThreadPanicked> {
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                ended = Err(ThreadPanicked);
                self.stop.request();
            }
        }
        ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.request();
        if let Err(error) = self.join_threads() {
            tracing::error!(%error, "the server was dropped");
        }
    }
}

/// Listens for clients. Returns also the addresses of memcached's and of Redis'.
fn listen_for_clients(config: &ServerConfig) -> Result<(Vec<StreamListener>, [Vec<Address>; 2]), StartError> {
    let is_over_tls = |at: &Address| config.is_over_tls(at);
    let mut listeners = listen(&config.memcached, Protocol::Memcache, is_over_tls)?;
    let resp = listen(&config.resp, Protocol::Resp, is_over_tls)?;
    let of_both = [&listeners, &resp].map(|listeners| addresses(listeners));
    listeners.extend(resp);
    Ok((listeners, of_both))
}

fn listen(
    addresses: &[Address],
    protocol: Protocol,
    over_tls: impl Fn(&Address) -> bool,
) -> Result<Vec<StreamListener>, StartError> {
    if addresses.len() > LISTENERS_MAX {
        return Err(StartError::TooManyListeners(addresses.len()));
    }
    let bind = |address: &Address| {
        StreamListener::bind(address, protocol, over_tls(address))
            .map_err(|error| StartError::Listen { address: address.clone(), error })
    };
    addresses.iter().map(bind).collect()
}

fn addresses(listeners: &[StreamListener]) -> Vec<Address> {
    listeners.iter().map(|each| each.listener.address().clone()).collect()
}

/// Listens for the other nodes: for control, which takes them at their word, or for the gate, if there are secrets.
#[expect(clippy::type_complexity)]
fn listen_for_peers(
    rack: &RackConfig,
) -> Result<(Vec<StreamListener>, Option<(Listener, Keys)>), StartError> {
    let own = std::slice::from_ref(&rack.nodes[rack.node].address);
    let mut peers = listen(own, Protocol::Peer, |_| false)?;
    let gate = rack.keys().and_then(|keys| Some((peers.pop()?.listener, keys)));
    Ok((peers, gate))
}

/// The RX queues, one a worker.
fn queues<I: Io>(io: &I, config: &ServerConfig) -> io::Result<Vec<RxQueue<I>>> {
    let open = || RxQueue::open(io.poller()?, config.connections_max + config.links_max());
    (0..config.control.workers).map(|worker| beside(config, worker, open)).collect()
}

/// Builds the state that the threads share.
pub(crate) fn share<M: Mode, I: Io>(
    io: &I,
    config: ServerConfig,
    (store, tier): (Arc<Engine<M>>, Option<Arc<Tier>>),
    in_force: InForce,
) -> Result<Arc<Shared<M, I>>, StartError> {
    let workers = workers(&config)?;
    let rack = config.rack.clone().map(|rack| Rack::<M>::new(rack, workers.len()));
    rack.iter().filter(|rack| !rack.config.is_managed()).try_for_each(|rack| rack.settle(&store))?;
    let news = rack.as_ref().map(|rack| Arc::clone(&rack.readers.news));
    let native = native_side(io, &config, (&store, tier.as_deref()), news.unwrap_or_default())?;
    let shared = Shared {
        rack: rack.map(Arc::new),
        checks: Checks::new(config.access.as_ref()),
        workers_left: AtomicUsize::new(workers.len()),
        watch: Arc::new(Watch::new(config.watch, histograms(&workers), config.clock)),
        receiving: Arc::new(Receiving::new(in_force.tuning.receive_memory_bytes)),
        plan: Arc::new(PlanCell::new(in_force)),
        store,
        started: Instant::now(),
        clock: config.clock,
        queues: queues(io, &config)?,
        workers,
        stop: Arc::new(Stop::new()?),
        flush_due_s: AtomicU32::new(0),
        flushes: AtomicU64::new(0),
        connections: Arc::default(),
        counters_baseline: Mutex::default(),
        prefixes: Prefixes::new(config.detail_prefixes_max),
        settings_changes: Mutex::default(),
        native,
        read_lately: tier.as_ref().map(|tier| Arc::new(ReadLately::new(tier.engine().memory_limit()))),
        tier,
        tracking: Tracking::new(config.tracking_keys_max, config.buffer_bytes_max),
        mailbox: Mailbox::new()?,
        handshakes: AllHandshakeCounters::default(),
        config,
    };
    Ok(TrackingHost::of(shared))
}

/// The memory for values that are still arriving.
fn receive_memory_bytes<M: Mode>(config: &ServerConfig, store: &Engine<M>) -> u64 {
    config.receive_memory_bytes.unwrap_or(store.memory_limit() / receiving::MEMORY_PART)
}

fn histograms<M: Mode>(workers: &[WorkerShared<M>]) -> Vec<Arc<SharedHistogram>> {
    workers.iter().map(|worker| Arc::clone(&worker.histogram)).collect()
}

/// The thread that passes this node's memory and attaches that of others, if the server is a node of a rack and others
/// may be on the same machine.
fn attacher<M: Mode, I: Io>(shared: &Arc<Shared<M, I>>) -> Result<Option<Attacher<M>>, StartError> {
    let Some(rack) = &shared.rack else { return Ok(None) };
    let path = rack.config.memory_path(rack.config.node);
    if path.is_none() && matches!(rack.config.fabric, RackFabric::Mapped) {
        return Ok(None);
    }
    let bind = |path: PathBuf| {
        Listener::bind_private(&Address::Unix(path.clone()))
            .map_err(|error| StartError::Listen { address: Address::Unix(path), error })
    };
    let listener = path.map(bind).transpose()?;
    Ok(Some(Attacher {
        rack: Arc::clone(rack),
        store: Arc::clone(&shared.store),
        listener,
        memory: Passed::of(&*shared.store, &rack.config.fabric)?,
        stop: Arc::clone(&shared.stop),
    }))
}

fn workers<M: Mode>(config: &ServerConfig) -> io::Result<Vec<WorkerShared<M>>> {
    (0..config.control.workers).map(|index| beside(config, index, || worker(config))).collect()
}

fn worker<M: Mode>(config: &ServerConfig) -> io::Result<WorkerShared<M>> {
    Ok(WorkerShared {
        ring: Ring::new(config.ring_capacity.next_power_of_two()),
        waiting: Ring::new(config.ring_capacity.next_power_of_two()),
        lent: Ring::new(BURST_MAX),
        plan_version: AtomicU64::new(0),
        waker: Waker::new()?,
        holds: AtomicBool::new(false),
        histogram: Arc::new(SharedHistogram::new()),
        fetched: Arc::new(SharedHistogram::new()),
        counters: Arc::new(Counters::default()),
        rack_counters: Arc::default(),
        metrics: Metrics::default(),
    })
}

/// Opens the ports of the native protocol, if it is served.
fn native_side<M: Mode, I: Io>(
    io: &I,
    config: &ServerConfig,
    (store, tier): (&Arc<Engine<M>>, Option<&Tier>),
    news: Arc<News>,
) -> Result<Option<NativeSide<M, I::Port>>, StartError> {
    let Some(native) = &config.native else { return Ok(None) };
    let workers = config.control.workers;
    let ports = Ports::open(io, native, workers).map_err(|error| StartError::Native {
        address: native.address,
        ports: 2 * workers,
        error,
    })?;
    let mut entropy = [0; ENTROPY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut entropy)?;
    let setting = NativeSetting {
        queues: workers as u16,
        base_port: ports.address().port(),
        value_bytes_max: config.value_bytes_max,
        evicts_from_flash: tier.is_some_and(|tier| !tier.is_lossless()),
        holds_replies: tier.is_some_and(holds_replies)
            || config.rack.as_ref().is_some_and(RackConfig::acknowledges_copies),
        direction_seed: config.rack.as_ref().map(RackConfig::direction_seed),
        entropy,
        start: Instant::now(),
    };
    let native = NativeConfig { datagram_bytes: ports.datagram_bytes(native), ..native.clone() };
    let core = NativeShared::new(Arc::clone(store), config.clock, &native, &setting).with_news(news);
    Ok(Some(NativeSide { core: Arc::new(core), ports }))
}

/// What a worker alone has: large transfers, reads from flash, links to other nodes of a rack.
type Outfit<M, P> = (LargeSet<M, P>, Option<Fetches<M>>, Option<Links<M, P>>);

fn outfit<M: Mode, I: Io>(io: &I, shared: &Shared<M, I>, index: usize) -> io::Result<Outfit<M, I::Poller>> {
    let config = &shared.config;
    let terms = shared.plan.in_force().tuning.terms();
    let large = LargeSet::new(io.poller()?, config.large_order, config.large_wait_max, terms);
    let lane = |(tier, read_lately): (_, &Arc<ReadLately>)| {
        let promote = (config.promote, Arc::clone(read_lately));
        let fetched = Arc::clone(&shared.workers[index].fetched);
        Fetches::of(tier, (config.gathering, config.flash_wait), promote, fetched)
    };
    let fetches = shared.tier.as_ref().zip(shared.read_lately.as_ref()).map(lane).transpose()?;
    let links = |rack: &Arc<Rack<M>>| {
        let links = Links::new(io.poller()?, &rack.config, Instant::now());
        #[cfg(feature = "ucx")]
        let links = match &rack.config.fabric {
            RackFabric::Mapped => links,
            RackFabric::Ucx(own) => {
                links.reading(Some(Afar::new(own, &rack.config, (&*shared.store, shared.clock))?))
            }
        };
        Ok::<_, io::Error>(links)
    };
    Ok((large, fetches, shared.rack.as_ref().map(links).transpose()?))
}
