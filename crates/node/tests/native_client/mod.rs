//! A client of the native protocol that misbehaves on demand: it sends to wrong queues, forgets fragments and
//! loses answers.

use std::{
    collections::HashMap,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use minos_base::KeyHash;
use minos_proto::native::{
    AckHead, AckState, Composer, DataHead, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, FragmentRange,
    Grant, Header, Hello, Kind, OpFlags, Opcode, Operation, RANGES_MAX, Ranges, Reason, ReplyRecord,
    SealKeys, Status, Welcome, WelcomeFlags, push_ranges, replies,
};

/// Longest wait for an answer. Long, because tests run on busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Silence after which the client asks again for data lost on purpose.
const SILENCE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) request: u32,
    pub(crate) item_flags: u32,
    pub(crate) cas: u64,
    pub(crate) value: Vec<u8>,
    /// The queue that executed it.
    pub(crate) queue: u16,
}

/// A datagram that was received.
pub(crate) type Datagram = (Header, Vec<u8>);

pub(crate) struct RawClient {
    socket: UdpSocket,
    server: SocketAddr,
    pub(crate) welcome: Welcome,
    keys: Option<SealKeys>,
    sequence: u64,
    /// One in so many datagrams of large values is lost in each direction; 0 for none.
    pub(crate) loses_one_in: u32,
    passed: u32,
    request: u32,
}

impl RawClient {
    /// Says hello to `server`, and opens a session once it has a cookie.
    pub(crate) fn connect(server: SocketAddr, keys: Option<SealKeys>) -> Self {
        let socket = UdpSocket::bind((server.ip(), 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let first = hello(&socket, server, keys.as_ref(), Header::of(Kind::Hello));
        let with_cookie = Header { flags: Flags::OPEN, cookie: first.cookie, ..Header::of(Kind::Hello) };
        let welcome = hello(&socket, server, keys.as_ref(), with_cookie);
        assert_ne!(welcome.session, 0);
        Self { socket, server, welcome, keys, sequence: 0, loses_one_in: 0, passed: 0, request: 0 }
    }

    pub(crate) fn queues(&self) -> u16 {
        self.welcome.queues
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        self.welcome.direction(key)
    }

    /// An operation on `key` with the next number.
    pub(crate) fn operation<'a>(&mut self, opcode: Opcode, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        self.request += 1;
        let detail = Detail { value_bytes: value.len() as u32, ..Detail::default() };
        Operation { opcode, value, detail, ..Operation::get(self.request, self.hash(key), key) }
    }

    /// Sends operations for `queue` to the port of `port_queue`, and returns the replies in the order of the
    /// operations.
    pub(crate) fn call_at(
        &mut self,
        port_queue: u16,
        queue: u16,
        operations: &[Operation<'_>],
    ) -> Vec<Reply> {
        self.send_operations(port_queue, queue, operations);
        let mut found: HashMap<u32, Reply> = HashMap::new();
        while found.len() < operations.len() {
            let datagram = self.receive().expect("an answer");
            if matches!(datagram.0.kind, Kind::Ack | Kind::Data) {
                // A datagram of a transfer that has already ended.
                continue;
            }
            let asked = records(&datagram)
                .into_iter()
                .filter(|reply| operations.iter().any(|operation| operation.request == reply.request));
            found.extend(asked.map(|reply| (reply.request, reply)));
        }
        operations.iter().map(|operation| found.remove(&operation.request).unwrap()).collect()
    }

    /// Sends one operation to its own queue.
    pub(crate) fn call(&mut self, operation: &Operation<'_>) -> Reply {
        self.call_at(0, 0, std::slice::from_ref(operation)).remove(0)
    }

    pub(crate) fn send_operations(&mut self, port_queue: u16, queue: u16, operations: &[Operation<'_>]) {
        let header = self.header(Kind::Request, queue);
        let bytes = self.compose(header, 1448, |composer| {
            assert!(operations.iter().all(|operation| composer.push_operation(operation)));
        });
        self.send(port_queue, &bytes);
    }

    /// The value of `key` and its CAS unique, for any size; `None` if there is no such item.
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<(Vec<u8>, u64)> {
        self.get_with(key, || {})
    }

    /// Like `get`; calls `each_window` whenever it requests more fragments.
    pub(crate) fn get_with(&mut self, key: &[u8], mut each_window: impl FnMut()) -> Option<(Vec<u8>, u64)> {
        let operation = self.operation(Opcode::Get, key, &[]);
        self.send_operations(0, 0, &[operation]);
        let mut fragments: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut large: Option<(Grant, u64)> = None;
        // Fragments of this window that have not arrived.
        let mut awaited = usize::MAX;
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server is silent");
            while awaited > 0
                && let Some(datagram) = self.receive_within(if large.is_some() { SILENCE } else { PATIENCE })
            {
                match datagram.0.kind {
                    Kind::Ack => {}
                    Kind::Reply if records(&datagram)[0].request != operation.request => {}
                    Kind::Reply => match records(&datagram).remove(0) {
                        Reply { status: Status::Ok, value, cas, .. } => return Some((value, cas)),
                        Reply { status: Status::NotFound, .. } => return None,
                        Reply { status: Status::Large, value, cas, .. } => {
                            let grant = Grant::parse(&value).unwrap();
                            let count = grant.fragments().unwrap().count() as usize;
                            awaited = count.min(usize::from(grant.window)).saturating_sub(fragments.len());
                            large = Some((grant, cas));
                        }
                        other => panic!("{other:?}"),
                    },
                    Kind::Data if self.is_lost() => awaited = awaited.saturating_sub(1),
                    Kind::Data => {
                        let (head, bytes) = DataHead::parse(datagram.0.body(&datagram.1)).unwrap();
                        if head.request == operation.request {
                            awaited = awaited.saturating_sub(1);
                            fragments.insert(head.index, bytes.to_vec());
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
            let (grant, cas) = large.expect("the announcement of a large value");
            let count = grant.fragments().unwrap().count();
            let missing = (0..count).filter(|index| !fragments.contains_key(index));
            let missing: Vec<u32> = missing.take(usize::from(grant.window)).collect();
            let ranges = ranges_of(missing.iter().copied());
            awaited = ranges_len(&ranges);
            if ranges.is_empty() {
                let value: Vec<u8> = (0..count).flat_map(|index| fragments.remove(&index).unwrap()).collect();
                return Some((value, cas));
            }
            let fetch = Operation {
                opcode: Opcode::Fetch,
                value: &ranges,
                detail: Detail { operand: cas, ..Detail::default() },
                ..operation
            };
            each_window();
            self.send_operations(grant.queue, grant.queue, &[fetch]);
        }
    }

    /// Requests a store of `value` in fragments.
    pub(crate) fn begin(&mut self, opcode: Opcode, key: &[u8], value: &[u8]) -> Reply {
        let operation = Operation { flags: OpFlags::DEFERRED, ..self.operation(opcode, key, value) };
        self.call(&operation)
    }

    /// Stores `value` in fragments and returns the outcome.
    pub(crate) fn store(&mut self, opcode: Opcode, key: &[u8], value: &[u8]) -> Reply {
        let begun = self.begin(opcode, key, value);
        if begun.status != Status::Granted {
            return begun;
        }
        self.send_value(&begun, value)
    }

    /// Sends the missing fragments of `value` until the server reports the outcome of the store.
    pub(crate) fn send_value(&mut self, begun: &Reply, value: &[u8]) -> Reply {
        let grant = &Grant::parse(&begun.value).unwrap();
        let mut missing: Vec<u32> = (0..grant.fragments().unwrap().count()).collect();
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the server is silent");
            let window = &missing[..missing.len().min(usize::from(grant.window))];
            for &index in window {
                if !self.is_lost() {
                    self.send_fragment(grant, index, value, Flags::NONE);
                }
            }
            // A question that is never lost, so that the answer comes soon.
            self.send_fragment(grant, 0, &[], Flags::ACK_WANTED);
            let mut is_done = false;
            while let Some(datagram) = self.receive_within(if is_done { PATIENCE } else { SILENCE }) {
                if datagram.0.kind == Kind::Data {
                    continue;
                }
                if datagram.0.kind == Kind::Reply {
                    match records(&datagram).remove(0) {
                        reply if reply.request == begun.request => return reply,
                        // Of an earlier transfer.
                        _ => continue,
                    }
                }
                let (head, ranges) = AckHead::parse(datagram.0.body(&datagram.1)).unwrap();
                if head.transfer != grant.transfer {
                    continue;
                }
                is_done = head.state == AckState::Done;
                if !is_done {
                    missing = ranges.flat_map(|range| range.indexes()).collect();
                    break;
                }
            }
        }
    }

    /// Sends one fragment, or only a question.
    pub(crate) fn send_fragment(&mut self, grant: &Grant, index: u32, value: &[u8], flags: Flags) {
        let range = grant.fragments().unwrap().range(index).filter(|_| !value.is_empty()).unwrap_or_default();
        let mut head = [0; FRAGMENT_HEAD_BYTES];
        FragmentHead { transfer: grant.transfer, index }.write(&mut head);
        let header = self.header(Kind::Fragment, grant.queue);
        let bytes = self.compose(Header { flags: header.flags | flags, ..header }, 1448, |composer| {
            assert!(composer.push_bytes(&head) && composer.push_bytes(&value[range]));
        });
        self.send(grant.queue, &bytes);
    }

    /// The next datagram of the server.
    pub(crate) fn receive(&mut self) -> Option<Datagram> {
        let mut bytes = vec![0; 65536];
        let (length, from) = match self.socket.recv_from(&mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(from.ip(), self.server.ip());
        bytes.truncate(length);
        if let Some(keys) = &self.keys {
            assert!(keys.to_client.verify(&bytes), "an answer without the right tag");
        }
        Some((Header::parse(&bytes).unwrap(), bytes))
    }

    pub(crate) fn receive_within(&mut self, time: Duration) -> Option<Datagram> {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let datagram = self.receive();
        self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
        datagram
    }

    /// A line of statistics, as a number.
    pub(crate) fn statistic(&mut self, group: &str, name: &str) -> u64 {
        let mut first = 0;
        loop {
            let mut operation = self.operation(Opcode::Stats, group.as_bytes(), &[]);
            operation.detail.operand = first;
            let page = self.call(&operation);
            let text = String::from_utf8(page.value).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            if let Some(number) = line {
                return number.parse().unwrap();
            }
            first = u64::from(page.item_flags);
            assert!(first < page.cas, "no statistic {name} in {group:?}");
        }
    }

    fn header(&mut self, kind: Kind, queue: u16) -> Header {
        self.sequence += 1;
        let flags = if self.keys.is_some() { Flags::SEALED } else { Flags::NONE };
        Header {
            queue,
            flags,
            geometry: self.welcome.geometry,
            session: self.welcome.session,
            cookie: self.welcome.cookie,
            sequence: self.sequence,
            stamp: self.sequence * 3,
            ..Header::of(kind)
        }
    }

    fn compose(&self, header: Header, limit: usize, compose: impl FnOnce(&mut Composer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(limit);
        let mut composer = Composer::begin(&mut bytes, header, limit);
        compose(&mut composer);
        composer.finish_with(self.keys.as_ref().map(|keys| &keys.to_server));
        bytes
    }

    fn send(&self, port_queue: u16, bytes: &[u8]) {
        let is_single = self.welcome.flags.contains(WelcomeFlags::SINGLE_PORT);
        let offset = if is_single { 0 } else { port_queue };
        let to = SocketAddr::new(self.server.ip(), self.welcome.base_port + offset);
        self.socket.send_to(bytes, to).unwrap();
    }

    fn is_lost(&mut self) -> bool {
        self.passed += 1;
        self.loses_one_in > 0 && self.passed.is_multiple_of(self.loses_one_in)
    }
}

/// Fetches the directory.
fn hello(socket: &UdpSocket, server: SocketAddr, keys: Option<&SealKeys>, header: Header) -> Welcome {
    let flags = header.flags | if keys.is_some() { Flags::SEALED } else { Flags::NONE };
    let mut datagram = Vec::with_capacity(256);
    let hello = Hello { nonce: 77, datagram_bytes_max: 1448, window: 32, version_max: 2 };
    hello.compose(&mut datagram, Header { flags, ..header }, keys.map(|keys| &keys.to_server));
    socket.send_to(&datagram, server).unwrap();
    let mut answer = [0; 2048];
    let length = (0..100).find_map(|_| socket.recv(&mut answer).ok()).unwrap();
    assert!(length <= datagram.len());
    let header = Header::parse(&answer[..length]).unwrap();
    assert_eq!(header.kind, Kind::Welcome, "{header:?}");
    Welcome::parse(header.body(&answer[..length])).unwrap()
}

/// The records of a reply, of which a refusal has none.
pub(crate) fn records((header, datagram): &Datagram) -> Vec<Reply> {
    assert_eq!(header.kind, Kind::Reply, "{:?}", Reason::from_count(header.count));
    let reply = |record: ReplyRecord<'_>| Reply {
        status: record.status,
        request: record.request,
        item_flags: record.item_flags,
        cas: record.cas,
        value: record.value.to_vec(),
        queue: header.queue,
    };
    replies(datagram, header).map(|record| reply(record.unwrap())).collect()
}

/// The number of fragments in these ranges.
fn ranges_len(ranges: &[u8]) -> usize {
    Ranges::parse(ranges).unwrap().map(|range| range.count as usize).sum()
}

/// Ranges of these fragments, at most as many as a FETCH may have.
fn ranges_of(indexes: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut ranges: Vec<FragmentRange> = Vec::new();
    for index in indexes {
        match ranges.last_mut() {
            Some(last) if last.first + last.count == index => last.count += 1,
            _ => ranges.push(FragmentRange { first: index, count: 1 }),
        }
    }
    let mut bytes = Vec::new();
    push_ranges(&mut bytes, ranges.into_iter().take(RANGES_MAX));
    bytes
}
