//! Nodes of a rack, and the client that knows racks, over a network that loses, repeats and delays.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Clock, SizeClass, seeded};
use minos_client::{Config, OnceFor, Outcome, ReadBy, Request, Verb, core::OpId, rack::Router};
use minos_engine::{Backing, Engine, ReadOnly, StoreConfig, StoreMode};
use minos_proto::native::{DIRECTORY_WEIGHTS, Detail, OpFlags, Opcode, Operation, Status};
use minos_rack::ServerId;
use minos_unit::{PARTS, Weights};
use rand::{RngExt, rngs::StdRng};

use super::site::{Answer, Client, HASH_SEED, SECRET, Site, Wire, config, sealed_config, setting};
use crate::{
    datagram::native::{
        Job, NativeShared, Turn,
        job::HandedOperation,
        waiting::{Waiting, WaitingOperation},
    },
    ops::{Fetch, Need},
    rack::{
        Rack, RackCounters, RackView,
        config::{Acknowledge, Managed, RackConfig, RackFabric, RackNode},
    },
    server::config::NativeConfig,
};

const WORKERS: u16 = 2;
const MICRO_SHARDS: u32 = 64;
const PORTS: u16 = 10;
/// Largest way of a datagram.
const TRAVEL_NS: u64 = 2_000_000;
const MS: u64 = 1_000_000;

/// The nodes of a rack.
struct Nodes {
    sites: Vec<Site>,
    racks: Vec<Arc<Rack<StoreMode>>>,
    counters: Vec<Arc<RackCounters>>,
}

fn address(node: usize) -> SocketAddr {
    ([127, 0, 0, 1], 7000 + PORTS * node as u16).into()
}

fn rack_config(node: usize, units: &[u32]) -> RackConfig {
    let peer = |(number, &unit)| RackNode {
        unit,
        address: minos_net::Address::Unix(format!("/{number}").into()),
        native: Some(address(number)),
    };
    // Copies in other units come from a coordinator.
    let managed = || Managed {
        coordinators: Vec::new(),
        lease: Duration::from_secs(1),
        acknowledge: Acknowledge::Owner,
        read_copies: None,
    };
    RackConfig {
        name: "test".to_owned(),
        node,
        nodes: units.iter().enumerate().map(peer).collect(),
        micro_shards: MICRO_SHARDS,
        timeout: Duration::from_secs(1),
        waiting_max: 8,
        managed: units.iter().any(|unit| *unit != units[0]).then(managed),
        secrets: Vec::new(),
        fabric: RackFabric::Mapped,
    }
}

impl Nodes {
    /// Nodes of these units, which read each other's memory.
    fn new(units: &[u32], config: &NativeConfig) -> Self {
        let mut nodes = Self { sites: Vec::new(), racks: Vec::new(), counters: Vec::new() };
        let start = Instant::now();
        for node in 0..units.len() {
            let config_of_store = StoreConfig {
                value_bytes_max: 1 << 20,
                hash_seed: HASH_SEED,
                backing: Backing::Memfd,
                micro_shards: MICRO_SHARDS,
                ..StoreConfig::new(8 << 20)
            };
            let store = Engine::<StoreMode>::create(&config_of_store).expect("that much memory can be had");
            let (store, clock) = (Arc::new(store), Clock::new());
            let rack_config = rack_config(node, units);
            let seed = Some(rack_config.direction_seed());
            let rack = Arc::new(Rack::new(rack_config, 1));
            rack.settle(&store).expect("the memory is new");
            let setting = setting(WORKERS, address(node).port(), seed);
            let shared = NativeShared::new(Arc::clone(&store), clock, config, &setting);
            let shared = Arc::new(shared.with_news(Arc::clone(&rack.readers.news)));
            let counters = Arc::<RackCounters>::default();
            let view = || RackView::new(Arc::clone(&rack), &clock, Arc::clone(&counters));
            nodes.sites.push(Site::over(store, shared, start, |worker| worker.of_rack(Some(view()))));
            nodes.racks.push(rack);
            nodes.counters.push(counters);
        }
        nodes
    }

    fn attach(&self) {
        for rack in &self.racks {
            for node in rack.unit() {
                let memory = self.sites[node].store.descriptor_to_read().expect("it is a file");
                let table = ReadOnly::from_descriptor(memory).expect("it is a table");
                rack.attach(node, Some(Arc::new(table)), "attached");
            }
        }
    }

    /// Some weights, of which half of the nodes hear.
    fn weigh(&self, version: u32, random: &mut StdRng) {
        let parts = (0..self.racks.len() as u32).map(|node| (ServerId(node), random.random_range(0..=PARTS)));
        let weights = Arc::new(Weights::new(version, parts.collect()).expect("within their bounds"));
        self.racks.iter().step_by(2).for_each(|rack| rack.weigh(Arc::clone(&weights)));
    }

    fn counter(&self, node: usize, name: &str) -> u64 {
        self.counters[node].all().find(|(other, _)| *other == name).expect("there is such a counter").1
    }

    fn sum(&self, name: &str) -> u64 {
        (0..self.sites.len()).map(|node| self.counter(node, name)).sum()
    }

    /// A key that this node owns, or another one.
    fn key(&self, node: usize, is_own: bool) -> String {
        let is_meant =
            |key: &String| (usize::from(self.racks[node].reader(key.as_bytes())) == node) == is_own;
        (0..).map(|number| format!("key{number}")).find(is_meant).expect("there are many")
    }
}

#[test]
fn a_read_is_answered_from_the_memory_of_the_owner() {
    let mut nodes = Nodes::new(&[0, 0], &config());
    nodes.attach();
    let key = nodes.key(0, false);
    let mut owner = Client::of(&mut nodes.sites[1]);
    let put = owner.put(key.as_bytes(), b"value");
    let stored = owner.ask_one(&mut nodes.sites[1], put);
    let mut other = Client::of(&mut nodes.sites[0]);
    let read = other.ask_one(&mut nodes.sites[0], other.get(key.as_bytes()));
    assert_eq!((read.status, read.value.as_slice(), read.cas), (Status::Ok, &b"value"[..], stored.cas));
    let (theirs, missing) = (nodes.key(0, false) + "x", other.get(b"no such key"));
    let absent = other.ask(&mut nodes.sites[0], &[other.get(theirs.as_bytes()), missing]);
    assert!(absent.iter().all(|answer| answer.status == Status::NotFound), "{absent:?}");
    assert!(nodes.counter(0, "remote_hits") == 1 && nodes.counter(0, "native_not_owner") == 0);
    // A value that fits no datagram, and every write, are the owner's.
    let large = vec![7; 3000];
    let large = owner.put(key.as_bytes(), &large);
    assert_eq!(owner.ask_one(&mut nodes.sites[1], large).status, Status::Ok);
    let operations = [
        other.get(key.as_bytes()),
        other.put(key.as_bytes(), b"x"),
        other.operation(Opcode::Incr, key.as_bytes(), b""),
        other.operation(Opcode::GetTouch, key.as_bytes(), b""),
        other.operation(Opcode::Fetch, key.as_bytes(), b""),
    ];
    for operation in operations {
        let answer = other.ask_one(&mut nodes.sites[0], operation);
        assert_eq!((answer.status, answer.item_flags, answer.cas), (Status::NotOwner, 1, 1), "{operation:?}");
        assert!(answer.value.is_empty());
    }
}

#[test]
fn a_copy_answers_who_asks_for_it_while_it_is_fresh() {
    let mut nodes = Nodes::new(&[0, 1], &config());
    let key = nodes.key(1, false);
    let (rack, micro_shard) = (Arc::clone(&nodes.racks[1]), nodes.racks[1].micro_shard(key.as_bytes()));
    let route_to = |node| {
        rack.routes.set(micro_shard, node, false);
        rack.routes.raise();
    };
    let mut client = Client::of(&mut nodes.sites[1]);
    // What a copy would have.
    route_to(1);
    let put = client.put(key.as_bytes(), b"value");
    assert_eq!(client.ask_one(&mut nodes.sites[1], put).status, Status::Ok);
    route_to(0);
    rack.routes.copy(micro_shard, true);
    let mut read = |nodes: &mut Nodes, key: &str, flags, fresh_until_us| {
        rack.routes.freshen(fresh_until_us);
        for worker in &mut nodes.sites[1].workers {
            worker.refresh_rack(Instant::now());
        }
        let get = Operation { flags, ..client.get(key.as_bytes()) };
        // Alone, and in a burst.
        let answers = client.ask(&mut nodes.sites[1], &[get, get]);
        let answer = client.ask_one(&mut nodes.sites[1], get);
        assert!(answers.iter().all(|it| (it.status, &it.value) == (answer.status, &answer.value)));
        (answer.status, answer.value)
    };
    assert_eq!(read(&mut nodes, &key, OpFlags::COPIES, u64::MAX), (Status::Ok, b"value".to_vec()));
    assert_eq!(nodes.counter(1, "copy_reads"), 3);
    let refused = (Status::NotOwner, Vec::new());
    assert_eq!(read(&mut nodes, &key, OpFlags::NONE, u64::MAX), refused);
    assert_eq!(read(&mut nodes, &key, OpFlags::COPIES, 1), refused);
    // Nothing is known of the micro-shards that are not copied.
    let mut others = (0..).map(|number| format!("other{number}"));
    let is_another =
        |it: &String| rack.reader(it.as_bytes()) == 0 && rack.micro_shard(it.as_bytes()) != micro_shard;
    let other = others.find(is_another).expect("there are many");
    assert_eq!(read(&mut nodes, &other, OpFlags::COPIES, u64::MAX), refused);
    // What is large is the owner's.
    route_to(1);
    let mut writer = Client::of(&mut nodes.sites[1]);
    let put = writer.put(key.as_bytes(), &[7; 3000]);
    assert_eq!(writer.ask_one(&mut nodes.sites[1], put).status, Status::Ok);
    route_to(0);
    assert_eq!(read(&mut nodes, &key, OpFlags::COPIES, u64::MAX), refused);
    route_to(1);
    let delete = writer.operation(Opcode::Delete, key.as_bytes(), b"");
    assert_eq!(writer.ask_one(&mut nodes.sites[1], delete).status, Status::Ok);
    route_to(0);
    assert_eq!(read(&mut nodes, &key, OpFlags::COPIES, u64::MAX), (Status::NotFound, Vec::new()));
}

/// The answer to a GET that has waited for flash, or for another worker, at the first worker of a site.
fn answer_later(site: &mut Site, client: &Client, get: &Operation<'_>, is_fetched: bool) -> Answer {
    let to = site.shared.answer_to(client.peer, &client.header);
    let operation = Operation { hash: site.store.hash(get.key), ..*get };
    let (mut wire, mut hand_off) = (Wire::default(), |_, job| Err(job));
    let (now, placement) = (site.now, &mut site.placement);
    let turn = Turn { now, placement, egress: &mut wire, hand_off: &mut hand_off };
    if is_fetched {
        let permit = site.shared.waiting_bounds().admit(client.peer.ip(), 1).expect("nothing else waits");
        let handed = HandedOperation::of(&to, &operation);
        let waiting = Waiting::Operations(vec![WaitingOperation { handed, ticket: None, permit }]);
        let fetch = Fetch::<StoreMode>::of(operation.hash, operation.key, SizeClass::of(5), Need::Copy);
        site.workers[0].go_on(waiting, &fetch.fetched(Default::default()), turn);
    } else {
        site.workers[0].on_job(Job::operation(&to, &operation), turn);
    }
    client.read(&wire.trains).remove(0)
}

#[test]
fn an_operation_that_has_waited_is_not_answered_for_a_key_that_has_gone_meanwhile() {
    let mut nodes = Nodes::new(&[0, 1], &config());
    let key = nodes.key(0, true);
    let (rack, micro_shard) = (Arc::clone(&nodes.racks[0]), nodes.racks[0].micro_shard(key.as_bytes()));
    let mut client = Client::of(&mut nodes.sites[0]);
    let put = client.put(key.as_bytes(), b"value");
    assert_eq!(client.ask_one(&mut nodes.sites[0], put).status, Status::Ok);
    let get = client.get(key.as_bytes());
    for is_fetched in [true, false] {
        rack.routes.set(micro_shard, 0, false);
        rack.routes.raise();
        let answer = answer_later(&mut nodes.sites[0], &client, &get, is_fetched);
        assert_eq!((answer.status, answer.value.as_slice()), (Status::Ok, &b"value"[..]));
        // The value here may be old by then, and is removed.
        rack.routes.set(micro_shard, 1, false);
        rack.routes.raise();
        let answer = answer_later(&mut nodes.sites[0], &client, &get, is_fetched);
        assert_eq!((answer.status, answer.item_flags), (Status::NotOwner, 1), "{is_fetched}");
    }
}

#[test]
fn that_another_node_owns_the_key_is_an_outcome() {
    let mut nodes = Nodes::new(&[0, 0], &config());
    let (theirs, own) = (nodes.key(0, false), nodes.key(0, true));
    let mut client = Client::with_session(&mut nodes.sites[0]);
    let once = |client: &Client, key: &'static str, once| {
        let incr = client.operation(Opcode::Add, key.as_bytes(), b"1");
        Operation { flags: OpFlags::ONCE, detail: Detail { once, ..incr.detail }, ..incr }
    };
    let (theirs, own): (&'static str, &'static str) = (theirs.leak(), own.leak());
    let refused = client.ask_one(&mut nodes.sites[0], once(&client, theirs, 5));
    assert_eq!(refused.status, Status::NotOwner);
    // Had the key come here meanwhile, a copy would not be executed.
    assert_eq!(client.ask_one(&mut nodes.sites[0], once(&client, own, 5)), refused);
    assert_eq!(client.ask_one(&mut nodes.sites[0], once(&client, own, 6)).status, Status::Ok);
    // One that was executed before its key left has its first outcome.
    assert_eq!(client.ask_one(&mut nodes.sites[0], once(&client, theirs, 6)).status, Status::Ok);
    // Without a session, nobody could tell.
    client.header.session = 99;
    assert_eq!(client.ask_one(&mut nodes.sites[0], once(&client, theirs, 7)).status, Status::NoSession);
}

#[test]
fn the_directory_comes_in_pages() {
    let mut nodes = Nodes::new(&[3; 64], &config());
    let mut client = Client::of(&mut nodes.sites[9]);
    let page = |first: u64, client: &Client| {
        let operation = client.operation(Opcode::Directory, b"", b"");
        Operation { detail: Detail { operand: first, ..operation.detail }, ..operation }
    };
    let (mut bytes, mut pages) = (Vec::new(), 0);
    loop {
        let answer = client.ask_one(&mut nodes.sites[9], page(bytes.len() as u64, &client));
        bytes.extend_from_slice(&answer.value);
        assert_eq!((answer.cas >> 32, answer.item_flags as usize), (1, bytes.len()));
        pages += 1;
        if answer.cas & 0xffff_ffff == bytes.len() as u64 {
            break;
        }
    }
    let directory = minos_unit::Directory::decode(&bytes).unwrap();
    // With weights, for a client that reads them.
    nodes.weigh(5, &mut seeded(1));
    let mut client = Client::of(&mut nodes.sites[8]);
    let with_weights = |first: u64, client: &Client| {
        let page = page(first, client);
        Operation { detail: Detail { item_flags: DIRECTORY_WEIGHTS, ..page.detail }, ..page }
    };
    let mut shown = Vec::new();
    loop {
        let answer = client.ask_one(&mut nodes.sites[8], with_weights(shown.len() as u64, &client));
        shown.extend_from_slice(&answer.value);
        if answer.cas & 0xffff_ffff == shown.len() as u64 {
            break;
        }
    }
    let minos_unit::Shown { directory: same, weights, .. } = minos_unit::Shown::decode(&shown).unwrap();
    assert!(same == directory && weights.is_some_and(|weights| weights.version() == 5));
    let plain = client.ask_one(&mut nodes.sites[8], page(0, &client));
    assert_eq!(plain.cas & 0xffff_ffff, bytes.len() as u64);
    assert!(
        pages > 1 && directory.nodes().len() == 64 && directory.nodes()[7].address == address(7).to_string()
    );
    let beyond = client.ask_one(&mut nodes.sites[9], page(bytes.len() as u64 + 1, &client));
    assert_eq!(beyond.status, Status::BadRequest);
    let (mut alone, mut stranger) = Site::with_client(1);
    let operation = page(0, &stranger);
    assert_eq!(stranger.ask_one(&mut alone, operation).status, Status::NotFound);
}

/// A datagram on its way, by the time of its arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at_ns: u64,
    number: u64,
    /// The node's port, or the client.
    node_port: u16,
    is_to_client: bool,
    bytes: Vec<u8>,
}

/// A client, the nodes, and the network between them, in virtual time.
struct World {
    nodes: Nodes,
    router: Router,
    client: SocketAddr,
    random: StdRng,
    now_ns: u64,
    start: Instant,
    flights: BinaryHeap<Reverse<Flight>>,
    sent: u64,
    /// Of a hundred datagrams.
    lost: u32,
    /// A node that gets nothing until a time.
    stopped: Option<(usize, u64)>,
    open: HashMap<OpId, Request>,
    /// What the items must be.
    items: BTreeMap<Vec<u8>, Vec<u8>>,
    done: u64,
}

impl World {
    fn new(units: &[u32], lost: u32, config: Config, seed: u64) -> Self {
        let mut random = seeded(seed);
        // Datagrams are sealed in some runs.
        let is_sealed = seed % 7 == 6;
        let nodes = Nodes::new(units, &if is_sealed { sealed_config() } else { self::config() });
        let config = if is_sealed { config.secret(&SECRET.parse().expect("a secret")) } else { config };
        let start = nodes.sites[0].now;
        let first = address(random.random_range(0..units.len()));
        let router = Router::new(config, first, random.random(), 0).expect("options that can be");
        Self {
            nodes,
            router,
            client: ([127, 0, 0, 1], 40_000).into(),
            random,
            now_ns: 0,
            start,
            flights: BinaryHeap::new(),
            sent: 0,
            lost,
            stopped: None,
            open: HashMap::new(),
            items: BTreeMap::new(),
            done: 0,
        }
    }

    /// Puts a datagram on its way: once, never or twice.
    fn send(&mut self, is_to_client: bool, node_port: u16, bytes: &[u8]) {
        let copies = match self.random.random_range(0..100) {
            draw if draw < self.lost => 0,
            draw if draw < 2 * self.lost => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let at_ns = self.now_ns + self.random.random_range(10_000..TRAVEL_NS);
            self.sent += 1;
            let number = self.sent;
            self.flights.push(Reverse(Flight {
                at_ns,
                number,
                node_port,
                is_to_client,
                bytes: bytes.to_vec(),
            }));
        }
    }

    /// Runs until no operation is open.
    fn run(&mut self) {
        loop {
            self.router.on_timer(self.now_ns);
            self.transmit();
            self.take_completions();
            if self.open.is_empty() {
                return;
            }
            let arrives_ns = self.flights.peek().map(|flight| flight.0.at_ns);
            let next_ns = arrives_ns.into_iter().chain(self.router.next_timer()).min();
            self.now_ns = next_ns.expect("something will happen").max(self.now_ns);
            while self.flights.peek().is_some_and(|flight| flight.0.at_ns <= self.now_ns) {
                if let Some(Reverse(flight)) = self.flights.pop() {
                    self.arrive(flight);
                }
            }
        }
    }

    fn transmit(&mut self) {
        let mut trains = Vec::new();
        while let Some(train) = self.router.poll_transmit(self.now_ns) {
            trains.push((train.to.port(), train.bytes.to_vec(), train.segment_bytes));
        }
        for (port, bytes, segment_bytes) in trains {
            bytes.chunks(segment_bytes).for_each(|datagram| self.send(false, port, datagram));
        }
    }

    fn arrive(&mut self, flight: Flight) {
        let Flight { node_port, is_to_client, bytes, .. } = flight;
        if is_to_client {
            let from = ([127, 0, 0, 1], node_port).into();
            return self.router.receive(from, &bytes, bytes.len(), self.now_ns);
        }
        let node = usize::from((node_port - 7000) / PORTS);
        if let Some((stopped, until_ns)) = self.stopped
            && stopped == node
            && self.now_ns < until_ns
        {
            // It waits in the socket.
            self.flights.push(Reverse(Flight { at_ns: until_ns, bytes, ..flight }));
            return;
        }
        let site = &mut self.nodes.sites[node];
        site.now = self.start + Duration::from_nanos(self.now_ns);
        let queue = usize::from(node_port) - 7000 - node * usize::from(PORTS);
        let segment_bytes = bytes.len();
        let trains = site.deliver(queue, &[(self.client, bytes, segment_bytes)]);
        for train in trains {
            train.datagrams().for_each(|datagram| self.send(true, node_port, datagram));
        }
    }

    fn submit(&mut self, request: Request) {
        let id = self.router.submit(request.clone(), self.now_ns).expect("there is room");
        self.open.insert(id, request);
    }

    /// Compares what has ended with the items, of which no two operations at a time are about the same.
    fn take_completions(&mut self) {
        while let Some(completion) = self.router.poll_completion() {
            let request = self.open.remove(&completion.id).expect("it was open");
            let outcome = completion.result.unwrap_or_else(|error| panic!("{request:?}: {error}"));
            self.done += 1;
            let key = request.key;
            let item = self.items.get(&key).cloned();
            match (request.verb, outcome) {
                (Verb::Get, Outcome::Missing) => assert_eq!(item, None),
                (Verb::Get, Outcome::Value(value)) => assert_eq!(item, Some(value.bytes)),
                (Verb::Put, Outcome::Done { .. }) => drop(self.items.insert(key, request.value)),
                (Verb::Append, Outcome::Done { .. }) => {
                    self.items.insert(key, [item.expect("it is there"), request.value].concat());
                }
                (Verb::Append, Outcome::NotStored) | (Verb::Delete, Outcome::Missing) => {
                    assert_eq!(item, None)
                }
                (Verb::Delete, Outcome::Done { .. }) => assert!(self.items.remove(&key).is_some()),
                (Verb::Flush, Outcome::Done { .. }) => self.items.clear(),
                (verb, outcome) => panic!("{verb:?} of {item:?} ended with {outcome:?}"),
            }
        }
    }

    /// Some operations on different keys at once, many of them reads.
    fn burst(&mut self, keys: u32) {
        for key in 0..keys {
            let key = format!("key{key}");
            let verb = match self.random.random_range(0..10) {
                0..6 => Verb::Get,
                6 | 7 => Verb::Put,
                8 => Verb::Append,
                _ => Verb::Delete,
            };
            let bytes = match self.random.random_range(0..8) {
                _ if !matches!(verb, Verb::Put | Verb::Append) => 0,
                0 => self.random.random_range(1000..20_000),
                _ => self.random.random_range(1..100),
            };
            let byte = self.random.random();
            self.submit(Request::new(verb, key).value(vec![byte; bytes]));
        }
        self.router.flush();
        self.run();
    }
}

fn patient() -> Config {
    Config::new()
        .timeout(Duration::from_secs(100))
        .retry_between(Duration::from_millis(5), Duration::from_millis(100))
        .datagram_bytes_max(1400)
        .once_for(OnceFor::AllWrites)
}

#[test]
fn a_client_sees_one_store_over_a_faulty_network() {
    let (mut reads, mut refused, mut failed_over) = (0, 0, 0);
    for seed in 0..40 {
        let units: &[u32] = [&[0, 0, 0][..], &[0, 1, 0, 1], &[0, 1], &[4]][seed as usize % 4];
        let read_by =
            [ReadBy::TwoChoices, ReadBy::Uniform, ReadBy::Weighted, ReadBy::Weighted][seed as usize % 4];
        let mut world = World::new(units, [0, 5, 20][seed as usize % 3], patient().read_by(read_by), seed);
        if seed % 5 != 4 {
            world.nodes.attach();
        }
        for round in 0..20 {
            if round % 4 == 3 {
                let node = world.random.random_range(0..units.len());
                world.stopped = Some((node, world.now_ns + 300 * MS));
            }
            world.burst(30);
            if round % 5 == 4 {
                world.nodes.weigh(round / 5 + 1, &mut world.random);
            }
            if round == 10 {
                world.submit(Request::new(Verb::Flush, ""));
                world.run();
            }
        }
        assert_eq!(world.done, 601);
        // Whatever was lost, it hears of the last weights in the end.
        let mut rounds = 0;
        while world.router.weights() != 4 {
            world.burst(30);
            rounds += 1;
            assert!(rounds < 100, "seed {seed}: {}", world.router.weights());
        }
        assert_eq!(world.router.rack(), Some((1, units.len())));
        reads += world.nodes.sum("remote_hits");
        refused += world.nodes.sum("native_not_owner");
        failed_over += world.router.counters().failovers;
    }
    assert!(reads > 500 && refused > 100 && failed_over > 100, "{reads} {refused} {failed_over}");
}

#[test]
fn reads_of_a_stopped_owner_wait_for_little() {
    let mut world = World::new(&[0, 0, 0], 0, patient(), 3);
    world.nodes.attach();
    let key = world.nodes.key(1, true);
    while world.router.rack().is_none() {
        world.submit(Request::new(Verb::Put, key.as_str()).value("value"));
        world.run();
    }
    let stopped_ns = world.now_ns;
    world.stopped = Some((1, stopped_ns + 10_000 * MS));
    for _ in 0..1000 {
        world.submit(Request::new(Verb::Get, key.as_str()));
        world.run();
    }
    // Each takes 4 ms at most; two may have waited for the stopped node.
    let took_ms = (world.now_ns - stopped_ns) / MS;
    assert!(took_ms < 1000 * 4 + 2 * 60, "{took_ms}");
    let reads = [world.nodes.counter(0, "remote_hits"), world.nodes.counter(2, "remote_hits")];
    assert!(reads.iter().all(|reads| (400..=600).contains(reads)), "{reads:?}");
    // It gets its share again once it is back.
    world.now_ns = stopped_ns + 10_001 * MS;
    for _ in 0..1200 {
        world.submit(Request::new(Verb::Get, key.as_str()));
        world.run();
    }
    let reads = world.nodes.sum("remote_hits") - 1000;
    assert!((700..=900).contains(&reads), "{reads}");
}

#[test]
fn keys_of_a_vector_share_a_datagram_for_each_unit() {
    let mut world = World::new(&[0, 1, 0, 1], 0, patient(), 5);
    world.nodes.attach();
    world.burst(30);
    for _ in 0..10 {
        let sent = world.router.counters().datagrams_sent;
        for key in 0..30 {
            world.submit(Request::new(Verb::Get, format!("key{key}")));
        }
        world.router.flush();
        world.transmit();
        assert_eq!(world.router.counters().datagrams_sent - sent, 2);
        world.run();
    }
}
