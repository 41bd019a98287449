//! A server that is played by the test: it keeps to the protocol, and does what the test asks beside that.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use minos_base::hash_key;
use minos_proto::native::{
    ACK_HEAD_BYTES, Access, AckHead, AckState, Composer, DATA_HEAD_BYTES, DataHead, Flags, FragmentHead,
    FragmentRange, Fragments, GRANT_BYTES, Grant, Header, Hello, Kind, OpFlags, Opcode, Operation, Ranges,
    Reason, ReplyRecord, SealKey, Status, WELCOME_BYTES, Welcome, WelcomeFlags, operations, push_ranges,
    refusal_of,
};

pub(crate) const BASE_PORT: u16 = 4000;
const FRAGMENT_BYTES: u32 = 1000;
const WINDOW: u16 = 8;

/// A datagram that the server sends, and from where.
pub(crate) type Answer = (SocketAddr, Vec<u8>);

/// A reply that lasts.
#[derive(Clone, Debug)]
struct Reply {
    opcode: Opcode,
    status: Status,
    item_flags: u32,
    cas: u64,
    value: Vec<u8>,
}

/// A value that is being stored.
#[derive(Debug)]
struct Transfer {
    request: u32,
    opcode: Opcode,
    key: Vec<u8>,
    bytes: Vec<u8>,
    have: Vec<bool>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) welcome: Welcome,
    pub(crate) secret: Option<SealKey>,
    pub(crate) items: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Opcodes in the order in which they were executed, by the port that they came to.
    pub(crate) executed: Vec<(u16, Opcode)>,
    /// Requests that came, by the number of operations.
    pub(crate) requests: Vec<u16>,
    /// Answers to be given to GETs, before those that are true.
    pub(crate) statuses: Vec<Status>,
    /// Why every request is refused.
    pub(crate) refuses: Option<Reason>,
    /// Whether the next FETCH finds another value in place.
    pub(crate) replaces_fetched: bool,
    /// Lines of statistics, of which each reply holds two.
    pub(crate) lines: usize,
    sessions: u64,
    outcomes: HashMap<(u64, u32), Reply>,
    transfers: BTreeMap<u64, Transfer>,
    cas: u64,
}

impl Server {
    pub(crate) fn new() -> Self {
        let welcome = Welcome {
            nonce: 0,
            boot: 1,
            cookie: 77,
            hash_seed: 5,
            session: 0,
            cookie_seconds: 60,
            geometry: 1,
            queues: 2,
            partition_bits: 4,
            access: Access::Crew,
            base_port: BASE_PORT,
            flags: WelcomeFlags::NONE,
            datagram_bytes_max: 1448,
            key_bytes_max: 250,
            window: WINDOW,
            once_window: 128,
            value_bytes_max: 1 << 20,
            transfers_per_client: 8,
            in_flight: 64,
        };
        Self {
            welcome,
            secret: None,
            items: HashMap::new(),
            executed: Vec::new(),
            requests: Vec::new(),
            statuses: Vec::new(),
            refuses: None,
            replaces_fetched: false,
            lines: 5,
            sessions: 0,
            outcomes: HashMap::new(),
            transfers: BTreeMap::new(),
            cas: 0,
        }
    }

    /// Ends and begins again, with nothing left.
    pub(crate) fn restart(&mut self) {
        let Welcome { boot, cookie, geometry, hash_seed, .. } = self.welcome;
        self.welcome.boot = boot + 1;
        self.welcome.cookie = cookie + 1;
        self.welcome.geometry = geometry + 1;
        self.welcome.hash_seed = hash_seed + 1;
        self.items.clear();
        self.outcomes.clear();
        self.transfers.clear();
        self.sessions += 100;
    }

    /// Forgets all sessions.
    pub(crate) fn forget_sessions(&mut self) {
        self.outcomes.clear();
        self.sessions += 100;
    }

    pub(crate) fn address(queue: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], BASE_PORT + queue))
    }

    /// What the server answers to a datagram that comes to `to`.
    pub(crate) fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> Vec<Answer> {
        let header = Header::parse(datagram).expect("a client sends what can be read");
        assert_eq!(header.is_sealed(), self.secret.is_some());
        if self.secret.as_ref().is_some_and(|key| !key.verify(datagram)) {
            return refuse(to, datagram, Reason::Seal);
        }
        let bodies = match header.kind {
            Kind::Hello => {
                assert_eq!(to, Self::address(0));
                vec![self.welcome(&header, datagram)]
            }
            _ if header.cookie != self.welcome.cookie => return refuse(to, datagram, Reason::Cookie),
            _ if self.secret.is_some() && !self.knows(header.session) => {
                return refuse(to, datagram, Reason::Session);
            }
            Kind::Request if self.refuses.is_some() => {
                return self.refuses.map_or_else(Vec::new, |reason| refuse(to, datagram, reason));
            }
            Kind::Request => self.request(to, &header, datagram),
            Kind::Fragment => self.fragment(&header, datagram),
            kind => panic!("a client sends no {kind:?}"),
        };
        bodies.into_iter().map(|bytes| (to, bytes)).collect()
    }

    fn knows(&self, session: u64) -> bool {
        session > self.sessions / 100 * 100 && session <= self.sessions
    }

    fn welcome(&mut self, header: &Header, datagram: &[u8]) -> Vec<u8> {
        let hello = Hello::parse(header.body(datagram)).unwrap();
        assert_eq!(datagram.len(), 256);
        let mut session = 0;
        if header.flags.contains(Flags::OPEN) {
            assert_eq!(header.cookie, self.welcome.cookie, "only who has a cookie may open a session");
            self.sessions += 1;
            session = self.sessions;
        }
        let mut body = [0; WELCOME_BYTES];
        Welcome { nonce: hello.nonce, session, ..self.welcome }.write(&mut body);
        self.compose(Kind::Welcome, header, |composer| assert!(composer.push_bytes(&body)))
    }

    fn request(&mut self, to: SocketAddr, header: &Header, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.requests.push(header.count);
        let mut answers = Vec::new();
        let mut replies = Vec::new();
        for operation in operations(datagram, header) {
            let operation = operation.unwrap();
            if operation.opcode.names_item() {
                assert_eq!(operation.hash, hash_key(operation.key, self.welcome.hash_seed));
            }
            if operation.opcode == Opcode::Fetch {
                answers.extend(self.fetch(header, &operation));
                continue;
            }
            let reply = self.once(to, header.session, &operation);
            if reply.status == Status::Large {
                let range = FragmentRange { first: 0, count: u32::from(WINDOW) };
                answers.extend(self.data(header, &operation, range));
            }
            replies.push((operation.request, reply));
        }
        // Each reply for itself, so that a test can lose one and not the others.
        for (request, reply) in replies {
            let Reply { opcode, status, item_flags, cas, value } = &reply;
            let record = ReplyRecord {
                opcode: *opcode,
                status: *status,
                request,
                item_flags: *item_flags,
                cas: *cas,
                value,
            };
            answers.insert(0, self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record))));
        }
        answers
    }

    /// Executes an operation, unless it is known to have been.
    fn once(&mut self, to: SocketAddr, session: u64, operation: &Operation<'_>) -> Reply {
        let key = (session, operation.detail.once);
        if operation.flags.contains(OpFlags::ONCE) {
            if !self.knows(session) {
                return Reply::bare(operation.opcode, Status::NoSession);
            }
            if let Some(outcome) = self.outcomes.get(&key) {
                return outcome.clone();
            }
        }
        self.executed.push((to.port() - BASE_PORT, operation.opcode));
        let reply = self.execute(operation);
        let is_final = !matches!(reply.status, Status::Granted | Status::Busy | Status::InProgress);
        if operation.flags.contains(OpFlags::ONCE) && is_final {
            self.outcomes.insert(key, reply.clone());
        }
        reply
    }

    fn execute(&mut self, operation: &Operation<'_>) -> Reply {
        let Operation { opcode, key, value, detail, .. } = *operation;
        let found = self.items.get(key).cloned();
        if opcode == Opcode::Get
            && let Some(status) = self.statuses.pop()
        {
            return Reply::bare(opcode, status);
        }
        if operation.flags.contains(OpFlags::DEFERRED) {
            return self.grant(operation);
        }
        match (opcode, found) {
            (Opcode::Noop, _) => Reply::bare(opcode, Status::Ok),
            (Opcode::Stats, _) => self.stats(detail.operand),
            (Opcode::Get, Some((bytes, cas))) if bytes.len() > 1000 => {
                let grant = Grant {
                    transfer: 0,
                    value_bytes: bytes.len() as u64,
                    fragment_bytes: FRAGMENT_BYTES,
                    queue: 2,
                    window: WINDOW,
                };
                Reply {
                    status: Status::Large,
                    cas,
                    value: written(&grant),
                    ..Reply::bare(opcode, Status::Ok)
                }
            }
            (Opcode::Get, Some((value, cas))) => Reply { cas, value, ..Reply::bare(opcode, Status::Ok) },
            (Opcode::Put, _) => {
                let cas = self.put(key, value.to_vec());
                Reply { cas, ..Reply::bare(opcode, Status::Ok) }
            }
            (Opcode::Incr, found) => {
                let number = found.map_or(0, |(bytes, _)| u64::from_le_bytes(bytes.try_into().unwrap()));
                let value = (number + detail.operand).to_le_bytes().to_vec();
                let cas = self.put(key, value.clone());
                Reply { cas, value, ..Reply::bare(opcode, Status::Ok) }
            }
            (Opcode::Delete, Some(_)) => {
                self.items.remove(key);
                Reply::bare(opcode, Status::Ok)
            }
            _ => Reply::bare(opcode, Status::NotFound),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Vec<u8>) -> u64 {
        self.cas += 1;
        self.items.insert(key.to_vec(), (value, self.cas));
        self.cas
    }

    fn stats(&self, first: u64) -> Reply {
        let first = usize::try_from(first).unwrap();
        let end = (first + 2).min(self.lines);
        let value: String = (first..end).map(|index| format!("name{index} {index}\n")).collect();
        let (item_flags, cas) = (end as u32, self.lines as u64);
        Reply { opcode: Opcode::Stats, status: Status::Ok, item_flags, cas, value: value.into_bytes() }
    }

    fn fetch(&mut self, header: &Header, operation: &Operation<'_>) -> Vec<Vec<u8>> {
        if std::mem::take(&mut self.replaces_fetched) {
            self.put(operation.key, vec![9; 30_000]);
        }
        let is_there = self.items.get(operation.key).is_some_and(|(_, cas)| *cas == operation.detail.operand);
        if !is_there {
            let record = ReplyRecord::bare(Opcode::Fetch, Status::Gone, operation.request);
            return vec![self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record)))];
        }
        let ranges: Vec<FragmentRange> = Ranges::parse(operation.value).unwrap().collect();
        assert!(ranges.iter().map(|range| range.count).sum::<u32>() <= u32::from(WINDOW));
        ranges.into_iter().flat_map(|range| self.data(header, operation, range)).collect()
    }

    fn data(&self, header: &Header, operation: &Operation<'_>, range: FragmentRange) -> Vec<Vec<u8>> {
        let (bytes, cas) = &self.items[operation.key];
        let fragments = Fragments::of(bytes.len() as u64, FRAGMENT_BYTES).unwrap();
        let indexes = range.indexes().filter_map(|index| Some((index, fragments.range(index)?)));
        let datagrams = indexes.map(|(index, range)| {
            let mut head = [0; DATA_HEAD_BYTES];
            let data_head = DataHead {
                request: operation.request,
                index,
                value_bytes: bytes.len() as u64,
                cas: *cas,
                item_flags: 0,
                fragment_bytes: FRAGMENT_BYTES,
            };
            data_head.write(&mut head);
            self.compose(Kind::Data, header, |composer| {
                assert!(composer.push_bytes(&head) && composer.push_bytes(&bytes[range]));
            })
        });
        datagrams.collect()
    }

    fn grant(&mut self, operation: &Operation<'_>) -> Reply {
        let known = self.transfers.iter().find(|(_, transfer)| transfer.request == operation.request);
        let transfer = known.map_or(self.transfers.len() as u64 + 1000 * self.welcome.boot, |(&id, _)| id);
        let value_bytes = u64::from(operation.detail.value_bytes);
        let count = Fragments::of(value_bytes, FRAGMENT_BYTES).unwrap().count() as usize;
        self.transfers.entry(transfer).or_insert_with(|| Transfer {
            request: operation.request,
            opcode: operation.opcode,
            key: operation.key.to_vec(),
            bytes: vec![0; value_bytes as usize],
            have: vec![false; count],
        });
        let grant = Grant { transfer, value_bytes, fragment_bytes: FRAGMENT_BYTES, queue: 3, window: WINDOW };
        let reply = Reply::bare(operation.opcode, Status::Granted);
        Reply { value: written(&grant), ..reply }
    }

    fn fragment(&mut self, header: &Header, datagram: &[u8]) -> Vec<Vec<u8>> {
        let (head, data) = FragmentHead::parse(header.body(datagram)).unwrap();
        let Some(transfer) = self.transfers.get_mut(&head.transfer) else {
            let record = ReplyRecord::bare(Opcode::Put, Status::Gone, 0);
            return vec![self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record)))];
        };
        if !data.is_empty() {
            let begin = (head.index * FRAGMENT_BYTES) as usize;
            transfer.bytes[begin..begin + data.len()].copy_from_slice(data);
            transfer.have[head.index as usize] = true;
        }
        if !header.flags.contains(Flags::ACK_WANTED) {
            return Vec::new();
        }
        let missing: Vec<FragmentRange> = missing(&transfer.have);
        let is_done = missing.is_empty();
        let mut answers = vec![self.ack(header, head.transfer, &missing)];
        if is_done {
            let Transfer { request, opcode, key, bytes, .. } = &self.transfers[&head.transfer];
            let (request, opcode, key, bytes) = (*request, *opcode, key.clone(), bytes.clone());
            let cas = self.put(&key, bytes);
            let record = ReplyRecord { cas, ..ReplyRecord::bare(opcode, Status::Ok, request) };
            answers.push(self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record))));
        }
        answers
    }

    fn ack(&self, header: &Header, transfer: u64, missing: &[FragmentRange]) -> Vec<u8> {
        let state = if missing.is_empty() { AckState::Done } else { AckState::Open };
        let missing = &missing[..missing.len().min(32)];
        let mut head = [0; ACK_HEAD_BYTES];
        AckHead { transfer, received: 0, ranges: missing.len() as u32, state }.write(&mut head);
        let mut ranges = Vec::new();
        push_ranges(&mut ranges, missing.iter().copied());
        self.compose(Kind::Ack, header, |composer| {
            assert!(composer.push_bytes(&head) && composer.push_bytes(&ranges));
        })
    }

    fn compose(&self, kind: Kind, header: &Header, fill: impl FnOnce(&mut Composer<'_>)) -> Vec<u8> {
        let seal = if self.secret.is_some() { Flags::SEALED } else { Flags::NONE };
        let answer = Header { flags: seal, ..header.answer(kind, self.welcome.geometry) };
        let mut bytes = Vec::new();
        let mut composer = Composer::begin(&mut bytes, answer, 1448);
        fill(&mut composer);
        composer.finish_with(self.secret.as_ref());
        bytes
    }
}

impl Reply {
    fn bare(opcode: Opcode, status: Status) -> Self {
        Self { opcode, status, item_flags: 0, cas: 0, value: Vec::new() }
    }
}

fn written(grant: &Grant) -> Vec<u8> {
    let mut bytes = [0; GRANT_BYTES];
    grant.write(&mut bytes);
    bytes.to_vec()
}

fn missing(have: &[bool]) -> Vec<FragmentRange> {
    let mut ranges: Vec<FragmentRange> = Vec::new();
    for (index, _) in have.iter().zip(0u32..).filter(|(has, _)| !**has).map(|(has, index)| (index, has)) {
        match ranges.last_mut() {
            Some(range) if range.first + range.count == index => range.count += 1,
            _ => ranges.push(FragmentRange { first: index, count: 1 }),
        }
    }
    ranges
}

/// A refusal of `datagram`.
pub(crate) fn refuse(to: SocketAddr, datagram: &[u8], reason: Reason) -> Vec<Answer> {
    let mut bytes = [0; 48];
    refusal_of(datagram, reason, 0).unwrap().write(&mut bytes);
    vec![(to, bytes.to_vec())]
}
