//! The streams on which a node talks to the coordinator and to other nodes. What is lost is said again.

use std::{
    ffi::OsString,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use minos_base::KeyHash;
use minos_net::{Address, Listener};
use minos_rack::ServerId;
use minos_sealed::Keys;
use minos_unit::{Directory, Message, Packet, Report};
use parking_lot::Mutex;

use super::Event;
use crate::{
    rack::{
        config::{Managed, NODES_MAX, RackConfig},
        frames,
        stream::{COORDINATOR, ControlStream, listen_here},
    },
    server::Stop,
    tcp::connection::Proven,
};

/// Time after which a stream that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);
/// Most bytes of the first line of a stream.
pub(crate) const HELLO_BYTES_MAX: usize = 256;
/// Time for the first line of a stream.
pub(crate) const HELLO_MAX: Duration = Duration::from_secs(3);
/// Packets that wait for a node. Others are dropped.
const PACKETS_MAX: usize = 256;
/// Streams of other nodes that are heard at a time.
const STREAMS_MAX: usize = 4 * NODES_MAX;
/// Reports that wait for the coordinator. Others are dropped.
const REPORTS_MAX: usize = 16;

/// Where the node at this address for commands hears other nodes.
fn control_address(address: &Address) -> Address {
    match address {
        Address::Unix(path) => {
            let mut name = OsString::from(path);
            name.push(".control");
            Address::Unix(name.into())
        }
        Address::Tcp(address) => Address::Tcp(*address),
    }
}

/// The first line to the coordinator.
pub(crate) fn node_hello(rack: &str, micro_shards: u32, lease: Duration) -> String {
    format!("minos-node 1 {rack} {micro_shards} {}\n", lease.as_micros())
}

fn peer_hello(rack: &str) -> String {
    format!("minos-control 1 {rack}\n")
}

/// The first line to an owner that is asked for its items. It must place keys as this node does.
pub(super) fn items_hello(config: &RackConfig, hash: KeyHash) -> String {
    format!("minos-items 1 {} {} {}\n", config.name, config.micro_shards, hash.0)
}

/// Answers requests for items on a stream, until it ends.
pub(super) type Serve = Box<dyn Fn(&mut ControlStream) -> io::Result<()> + Send + Sync>;

/// How a node calls others.
pub(super) struct Calls {
    rack: String,
    micro_shards: u32,
    own: u16,
    keys: Option<Keys>,
    addresses: Vec<Address>,
}

impl Calls {
    pub(super) fn new(config: &RackConfig) -> Self {
        let addresses = config.nodes.iter().map(|node| control_address(&node.address)).collect();
        let (rack, micro_shards) = (config.name.clone(), config.micro_shards);
        Self { rack, micro_shards, own: config.node as u16, keys: config.keys(), addresses }
    }

    /// A stream to a node, with its first line.
    ///
    /// # Errors
    /// The node cannot be reached.
    pub(super) fn call(&self, to: ServerId, hello: &str) -> io::Result<ControlStream> {
        let address = self.addresses.get(to.0 as usize).ok_or(io::ErrorKind::NotFound)?;
        self.call_at(address, to.0 as u16, hello)
    }

    fn call_at(&self, address: &Address, to: u16, hello: &str) -> io::Result<ControlStream> {
        let mut stream = ControlStream::connect(address, self.keys.as_ref(), (self.own, to))?;
        stream.write_all(hello.as_bytes())?;
        Ok(stream)
    }
}

/// A node's streams. Its calls never wait: a thread for each other node and for the coordinator sends.
pub(super) struct Transport {
    calls: Arc<Calls>,
    hello: String,
    /// To the threads of the nodes that something was sent to.
    nodes: Vec<Option<SyncSender<Packet>>>,
    reports: SyncSender<Report>,
    /// Of the nodes of this machine.
    _listener: Option<Listener>,
}

impl Transport {
    /// The streams of a node; `events` gets what arrives, also from the visitors that a gate lets in. Those who ask for
    /// items are served by the last argument, behind its first line.
    ///
    /// # Errors
    /// The node's socket cannot be made.
    pub(super) fn new(
        managed: &Managed,
        stop: Arc<Stop>,
        events: Sender<Event>,
        (calls, (items_hello, show)): (Arc<Calls>, (String, Option<Serve>)),
    ) -> io::Result<(Self, Visitors)> {
        let hello = peer_hello(&calls.rack);
        let (events_heard, streams) = (events.clone(), AtomicUsize::new(0));
        let hearing = Hearing { hello: hello.clone(), events: events_heard, items_hello, show, streams };
        let visitors = Visitors { hearing: Arc::new(hearing) };
        let listener = match &calls.addresses[usize::from(calls.own)] {
            Address::Unix(path) => {
                let visitors = visitors.clone();
                Some(listen_here(path, move |stream| visitors.hear(stream))?)
            }
            Address::Tcp(_) => None,
        };
        let coordinator = Arc::<Mutex<ToCoordinator>>::default();
        let (reports, reports_left) = sync_channel(REPORTS_MAX);
        let sending = Arc::clone(&coordinator);
        spawn("minos-reports", move || send_reports(&sending, &reports_left))?;
        let calling = Calling {
            addresses: managed.coordinators.clone(),
            // If there is one alone, nobody else can be called.
            silence_max: (managed.coordinators.len() > 1).then_some(managed.lease / 2),
            hello: node_hello(&calls.rack, calls.micro_shards, managed.lease),
            calls: Arc::clone(&calls),
            coordinator,
            events,
            stop,
        };
        spawn("minos-orders", move || calling.run())?;
        let nodes = calls.addresses.iter().map(|_| None).collect();
        Ok((Self { calls, hello, nodes, reports, _listener: listener }, visitors))
    }

    /// Sends a message to a node, unless it cannot be reached.
    pub(super) fn send(&mut self, to: ServerId, message: Message) {
        let packet = Packet::Message(ServerId(self.calls.own.into()), message);
        let Some(node) = self.nodes.get_mut(to.0 as usize) else { return };
        if node.is_none() {
            let (sender, packets) = sync_channel(PACKETS_MAX);
            let (calls, hello) = (Arc::clone(&self.calls), self.hello.clone());
            *node = spawn("minos-to-node", move || speak(&calls, to, &hello, &packets)).ok().map(|()| sender);
        }
        // A node that is slow gets fewer.
        node.iter().for_each(|sender| drop(sender.try_send(packet.clone())));
    }

    /// Sends a report to the coordinator, unless it cannot be reached.
    pub(super) fn report(&self, report: Report) {
        drop(self.reports.try_send(report));
    }
}

/// Starts a thread that ends with the process: it holds nothing that must be given back.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Sends packets to a node, until nobody has any more.
fn speak(calls: &Calls, to: ServerId, hello: &str, packets: &Receiver<Packet>) {
    let mut known: Option<ControlStream> = None;
    for packet in packets {
        // A stream may have ended since it was used last.
        for _ in 0..2 {
            let stream = known.take().map_or_else(|| calls.call(to, hello), Ok);
            let Ok(mut stream) = stream else {
                thread::sleep(RETRY);
                break;
            };
            if frames::send(&mut stream, &packet).is_ok() {
                known = Some(stream);
                break;
            }
        }
    }
}

/// The way to the coordinator.
#[derive(Default)]
struct ToCoordinator {
    stream: Option<ControlStream>,
    /// The last report, for one that is called later: it need not wait for the next.
    last: Option<Report>,
}

/// Sends reports as long as there is a stream to the coordinator.
fn send_reports(coordinator: &Mutex<ToCoordinator>, reports: &Receiver<Report>) {
    for report in reports {
        let mut coordinator = coordinator.lock();
        coordinator.last = Some(report.clone());
        if let Some(stream) = &mut coordinator.stream
            && frames::send(stream, &Packet::Report(report)).is_err()
        {
            coordinator.stream = None;
        }
    }
}

/// Takes in the streams of other nodes, each with a thread that hears it.
#[derive(Clone)]
pub(crate) struct Visitors {
    hearing: Arc<Hearing>,
}

impl Visitors {
    /// Hears a stream of a node that has proven to know the secret.
    pub(crate) fn admit(&self, sealed: Proven, from: u16) {
        self.hear(ControlStream::sealed(sealed, from));
    }

    fn hear(&self, stream: io::Result<ControlStream>) {
        let hearing = Arc::clone(&self.hearing);
        let heard = stream.and_then(|stream| {
            spawn("minos-peer", move || {
                if let Err(error) = hearing.hear(stream) {
                    tracing::debug!(%error, "a stream of another node ends");
                }
            })
        });
        if let Err(error) = heard {
            tracing::warn!(%error, "another node is not heard");
        }
    }
}

/// What the streams of other nodes are for.
struct Hearing {
    hello: String,
    events: Sender<Event>,
    items_hello: String,
    show: Option<Serve>,
    /// Those that are open.
    streams: AtomicUsize,
}

impl Hearing {
    /// Hears a stream until it ends.
    fn hear(&self, stream: ControlStream) -> io::Result<()> {
        let heard = if self.streams.fetch_add(1, Relaxed) < STREAMS_MAX {
            self.hear_counted(stream)
        } else {
            Err(io::Error::other("too many streams"))
        };
        self.streams.fetch_sub(1, Relaxed);
        heard
    }

    fn hear_counted(&self, mut stream: ControlStream) -> io::Result<()> {
        stream.set_receive_max(Some(HELLO_MAX))?;
        let line = frames::receive_line(&mut stream, HELLO_BYTES_MAX)?;
        stream.set_receive_max(None)?;
        if line == self.hello {
            return self.pass_on(&mut stream);
        }
        match &self.show {
            Some(show) if line == self.items_hello => show(&mut stream),
            _ => Err(io::Error::other("another rack, or one that places keys otherwise")),
        }
    }

    /// Passes on what comes, until nobody listens.
    fn pass_on(&self, stream: &mut ControlStream) -> io::Result<()> {
        loop {
            let packet = frames::receive(stream)?;
            let is_honest = matches!(&packet, Packet::Message(from, _) if stream.may_be(from.0));
            if !is_honest || self.events.send(Event::Packet(packet)).is_err() {
                return Err(io::Error::other("not a message of its node"));
            }
        }
    }
}

/// The thread that calls coordinators in turn, and hears the one that leads. Others hang up.
struct Calling {
    addresses: Vec<Address>,
    /// Time without orders after which another one is called.
    silence_max: Option<Duration>,
    hello: String,
    calls: Arc<Calls>,
    coordinator: Arc<Mutex<ToCoordinator>>,
    events: Sender<Event>,
    stop: Arc<Stop>,
}

impl Calling {
    fn run(self) {
        let mut refused = 0;
        for address in self.addresses.iter().cycle() {
            if self.stop.is_requested() {
                return;
            }
            let heard = self.call(address).and_then(|mut stream| self.hear(&mut stream, address));
            self.coordinator.lock().stream = None;
            match heard {
                Ok(()) => refused = 0,
                Err(error) => {
                    refused += 1;
                    if refused == self.addresses.len() {
                        tracing::warn!(%error, %address, "no coordinator of the rack can be reached");
                    }
                }
            }
            thread::sleep(RETRY);
        }
    }

    /// Passes on the orders that come, with the directories that patches make, until the stream ends. It is an error if
    /// none have come.
    fn hear(&self, stream: &mut ControlStream, address: &Address) -> io::Result<()> {
        let (mut directory, mut has_led): (Option<Arc<Directory>>, _) = (None, false);
        loop {
            let packet = match frames::receive(stream) {
                Ok(packet) => packet,
                Err(_) if has_led => return Ok(()),
                Err(error) => return Err(error),
            };
            if !has_led {
                tracing::info!(%address, "the coordinator of the rack is there");
                has_led = true;
            }
            let packet = match packet {
                Packet::Patch(patch) => {
                    let Some(Ok(next)) = directory.as_ref().map(|known| known.patched(&patch)) else {
                        return Ok(());
                    };
                    directory = Some(Arc::new(next));
                    continue;
                }
                Packet::Orders(mut orders) => {
                    match &orders.directory {
                        Some(whole) => directory = Some(Arc::clone(whole)),
                        None => orders.directory = directory.clone().filter(|it| it.epoch() == orders.epoch),
                    }
                    Packet::Orders(orders)
                }
                other => other,
            };
            if self.events.send(Event::Packet(packet)).is_err() {
                return Ok(());
            }
        }
    }

    fn call(&self, address: &Address) -> io::Result<ControlStream> {
        let mut stream = self.calls.call_at(address, COORDINATOR, &self.hello)?;
        let mut heard = stream.try_clone()?;
        heard.set_receive_max(self.silence_max)?;
        let mut coordinator = self.coordinator.lock();
        let last = coordinator.last.as_ref().map(|last| Packet::Report(last.clone()));
        // One that refuses this node has said why, and has closed.
        let is_sent = last.is_none_or(|last| frames::send(&mut stream, &last).is_ok());
        coordinator.stream = is_sent.then_some(stream);
        Ok(heard)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{SocketAddr, TcpListener},
        os::unix::net::UnixListener,
        sync::mpsc::channel,
        time::Instant,
    };

    use minos_rack::MicroShard;
    use minos_unit::{Asked, MoveId, Orders};

    use super::*;
    use crate::rack::{
        config::{Acknowledge, RackFabric, RackNode},
        stream::sealed_pair,
    };

    const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
    const MESSAGE: Message = Message::Refused(Asked {
        id: MoveId { micro_shard: MicroShard(1), number: 2 },
        incarnation: 3,
        epoch: 4,
        batch: 5,
        freeze: true,
    });

    /// A node whose peers and coordinator are at this address.
    fn config(at: SocketAddr) -> (RackConfig, Managed) {
        let address = Address::Tcp(at);
        let node = |_| RackNode { unit: 0, address: address.clone(), native: None };
        let managed = Managed {
            coordinators: vec![address.clone()],
            lease: Duration::from_secs(1),
            acknowledge: Acknowledge::Owner,
            read_copies: None,
        };
        let config = RackConfig {
            name: "r".to_owned(),
            node: 0,
            nodes: (0..3).map(node).collect(),
            micro_shards: 4,
            timeout: Duration::from_secs(1),
            waiting_max: 1,
            managed: Some(managed.clone()),
            secrets: vec![SECRET.parse().unwrap()],
            fabric: RackFabric::Mapped,
        };
        (config, managed)
    }

    #[test]
    fn a_node_speaks_for_itself_alone() {
        let keys = config(([127, 0, 0, 1], 9).into()).0.keys().unwrap();
        let hear = |lines: &str, from: &[u32]| {
            let (events, heard) = channel();
            let (hello, items_hello) = (peer_hello("r"), "items\n".to_owned());
            let streams = AtomicUsize::new(0);
            let hearing = Hearing { hello, events, items_hello, show: None, streams };
            let (mut node, stream) = sealed_pair(&keys, (1, 0));
            node.write_all(lines.as_bytes()).unwrap();
            for from in from {
                frames::send(&mut node, &Packet::Message(ServerId(*from), MESSAGE)).unwrap();
            }
            drop(node);
            assert!(hearing.hear(stream).is_err() && hearing.streams.into_inner() == 0);
            drop(hearing.events);
            heard.iter().count()
        };
        assert_eq!(hear(&peer_hello("r"), &[1, 1]), 2);
        assert_eq!(hear(&peer_hello("r"), &[1, 2, 1]), 1);
        assert_eq!(hear(&peer_hello("s"), &[1]), 0);
        // It shows no items, for its memory can be read.
        assert_eq!(hear("items\n", &[1]), 0);
    }

    fn orders() -> Packet {
        Packet::Orders(Orders {
            incarnation: 1,
            lease: Some(2),
            epoch: 3,
            directory: None,
            pulls: Vec::new(),
            cancelled: Vec::new(),
            weights: None,
        })
    }

    fn report() -> Report {
        Report {
            node: ServerId(0),
            incarnation: 1,
            sent_us: 2,
            epoch: 3,
            kept: 0,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: Vec::new(),
            load: None,
            weights: 0,
            heat: Vec::new(),
            sampled: 0,
        }
    }

    #[test]
    fn of_several_coordinators_the_one_that_leads_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let listen = |name: &str| {
            let path = folder.path().join(name);
            (UnixListener::bind(&path).unwrap(), Address::Unix(path))
        };
        let (standing_by, first) = listen("1");
        // The kernel connects, and nobody answers.
        let (_stopped, second) = listen("2");
        let (leading, third) = listen("3");
        let report = report();
        let (events, heard) = channel();
        let stop = Arc::new(Stop::new().unwrap());
        let last = ToCoordinator { stream: None, last: Some(report.clone()) };
        let calling = Calling {
            addresses: vec![first, second, third],
            silence_max: Some(Duration::from_millis(50)),
            hello: "hello\n".to_owned(),
            calls: Arc::new(Calls::new(&config(([127, 0, 0, 1], 9).into()).0)),
            coordinator: Arc::new(Mutex::new(last)),
            events,
            stop: Arc::clone(&stop),
        };
        spawn("minos-orders", move || calling.run()).unwrap();
        spawn("hangs-up", move || standing_by.incoming().for_each(drop)).unwrap();
        let orders = orders();
        let (said, hears) = channel();
        let orders_sent = orders.clone();
        let lead = move || {
            // One that is late on a busy machine is left, and called again.
            for called in leading.incoming() {
                let mut stream = ControlStream::plain(called.unwrap()).unwrap();
                let Ok(hello) = frames::receive_line(&mut stream, HELLO_BYTES_MAX) else { continue };
                let Ok(report) = frames::receive(&mut stream) else { continue };
                if said.send((hello, report)).is_err() {
                    return;
                }
                let _ = frames::send(&mut stream, &orders_sent);
            }
        };
        spawn("leads", lead).unwrap();
        let long = Duration::from_secs(20);
        assert_eq!(hears.recv_timeout(long).unwrap(), ("hello\n".to_owned(), Packet::Report(report)));
        let Event::Packet(packet) = heard.recv_timeout(long).unwrap() else { panic!("not a packet") };
        assert_eq!(packet, orders);
        stop.request();
    }

    /// Before, all that it knew was that a buffer was not filled.
    #[test]
    fn a_node_hears_why_a_coordinator_refuses_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("coordinator");
        let (listener, address) = (UnixListener::bind(&path).unwrap(), Address::Unix(path));
        let refuse = move || {
            let mut stream = ControlStream::plain(listener.accept().unwrap().0).unwrap();
            frames::refuse(&mut stream, "another lease").unwrap();
        };
        let (events, _heard) = channel();
        let calling = Calling {
            addresses: vec![address.clone()],
            silence_max: None,
            hello: "hello\n".to_owned(),
            calls: Arc::new(Calls::new(&config(([127, 0, 0, 1], 9).into()).0)),
            coordinator: Arc::new(Mutex::new(ToCoordinator { stream: None, last: Some(report()) })),
            events,
            stop: Arc::new(Stop::new().unwrap()),
        };
        let refusing = thread::spawn(refuse);
        let refused = calling.call(&address).and_then(|mut stream| calling.hear(&mut stream, &address));
        assert_eq!(refused.unwrap_err().to_string(), "refused: another lease");
        refusing.join().unwrap();
    }

    #[test]
    fn machines_that_never_answer_hold_nobody_up() {
        // One of these may be slow for another reason.
        assert!((0..10).any(|_| time_to_send_to_silent_machines() < Duration::from_millis(200)));
    }

    fn time_to_send_to_silent_machines() -> Duration {
        // The kernel connects, and nobody answers.
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (config, managed) = config(silent.local_addr().unwrap());
        let ((events, _heard), stop) = (channel(), Arc::new(Stop::new().unwrap()));
        let calls = Arc::new(Calls::new(&config));
        let serving = ("items\n".to_owned(), None);
        let (mut transport, _) =
            Transport::new(&managed, Arc::clone(&stop), events, (calls, serving)).unwrap();
        let began = Instant::now();
        for node in (0..2 * PACKETS_MAX as u32).map(|number| 1 + number % 2) {
            transport.send(ServerId(node), MESSAGE);
        }
        transport.send(ServerId(7), MESSAGE);
        let took = began.elapsed();
        stop.request();
        took
    }
}
