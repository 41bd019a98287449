//! A fake server. It keeps to the protocol, except for the faults that a test sets.

mod transfers;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
};

use minos_proto::native::{
    Access, Composer, Flags, FragmentRange, Header, Hello, Kind, OpFlags, Opcode, Operation, Reason,
    ReplyRecord, SealKey, SealKeys, Status, TAG_BYTES, WELCOME_BYTES, Welcome, WelcomeFlags, operations,
    refusal_of,
};

pub(super) use self::transfers::FETCH_WINDOW;
use self::transfers::{Transfer, WINDOW, large};

pub(crate) const BASE_PORT: u16 = 4000;

/// A datagram of the server, with its source address.
pub(crate) type Answer = (SocketAddr, Vec<u8>);

/// A reply that is kept, to answer duplicates.
#[derive(Clone, Debug)]
struct Reply {
    opcode: Opcode,
    status: Status,
    item_flags: u32,
    cas: u64,
    value: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) welcome: Welcome,
    pub(crate) secret: Option<SealKeys>,
    pub(crate) items: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Executed opcodes in order, with the port that each arrived at.
    pub(crate) executed: Vec<(u16, Opcode)>,
    /// The number of operations in each request.
    pub(crate) requests: Vec<u16>,
    /// Statuses for the next answers to GETs and large stores, last first; then true answers follow.
    pub(crate) statuses: Vec<Status>,
    /// Large stores before the next one in line: so many are told that they wait, each with a better place.
    pub(crate) line: u64,
    /// The outcome of the next large store whose value has arrived, if it is not stored.
    pub(crate) ends_store: Option<Status>,
    /// The reason to refuse every request with; `None` to refuse none.
    pub(crate) refuses: Option<Reason>,
    /// True if the next FETCH finds the value replaced.
    pub(crate) replaces_fetched: bool,
    /// FETCHes to be answered by BUSY.
    pub(crate) busy_fetches: u32,
    /// True if large values are only announced, and the client must ask for the first window.
    pub(crate) defers_windows: bool,
    /// Lines of statistics; each reply holds two.
    pub(crate) lines: usize,
    /// True if the server says that it is stopping, and begins no large store.
    pub(crate) is_draining: bool,
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
            direction_seed: 5,
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
            line: 0,
            ends_store: None,
            refuses: None,
            replaces_fetched: false,
            busy_fetches: 0,
            defers_windows: false,
            lines: 5,
            is_draining: false,
            sessions: 0,
            outcomes: HashMap::new(),
            transfers: BTreeMap::new(),
            cas: 0,
        }
    }

    /// Restarts without any state.
    pub(crate) fn restart(&mut self) {
        let Welcome { boot, cookie, geometry, direction_seed, .. } = self.welcome;
        self.welcome.boot = boot + 1;
        self.welcome.cookie = cookie + 1;
        self.welcome.geometry = geometry + 1;
        self.welcome.direction_seed = direction_seed + 1;
        self.items.clear();
        self.outcomes.clear();
        self.transfers.clear();
        self.sessions += 100;
    }

    /// Knows no unfinished and no finished transfer any more.
    pub(crate) fn forget_transfers(&mut self) {
        self.transfers.clear();
    }

    pub(crate) fn forget_sessions(&mut self) {
        self.outcomes.clear();
        self.sessions += 100;
    }

    pub(crate) fn address(queue: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], BASE_PORT + queue))
    }

    /// The server's answers to a datagram that arrives at `to`.
    pub(crate) fn answer(&mut self, to: SocketAddr, datagram: &[u8]) -> Vec<Answer> {
        let header = Header::parse(datagram).expect("a client sends what can be read");
        assert_eq!(header.is_sealed(), self.secret.is_some());
        if self.secret.as_ref().is_some_and(|keys| !keys.to_server.verify(datagram)) {
            return refuse(to, datagram, Reason::Seal);
        }
        let bodies = match header.kind {
            Kind::Hello => {
                assert_eq!(to, Self::address(0));
                vec![self.welcome(&header, datagram)]
            }
            _ if header.cookie != self.welcome.cookie => return self.refuse(to, datagram, Reason::Cookie),
            _ if self.secret.is_some() && !self.knows(header.session) => {
                return self.refuse(to, datagram, Reason::Session);
            }
            Kind::Request if self.refuses.is_some() => {
                return self.refuses.map_or_else(Vec::new, |reason| self.refuse(to, datagram, reason));
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
        // Only who has a cookie may open a session. One of before a restart is none.
        if header.flags.contains(Flags::OPEN) && header.cookie == self.welcome.cookie {
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
                assert_eq!(operation.hash, self.welcome.direction(operation.key));
            }
            if operation.opcode == Opcode::Fetch {
                answers.extend(self.fetch(header, &operation));
                continue;
            }
            let reply = self.once(to, header.session, &operation);
            if reply.status == Status::Large && !self.defers_windows {
                let range = FragmentRange { first: 0, count: u32::from(FETCH_WINDOW) };
                answers.extend(self.data(header, &operation, range));
            }
            replies.push((operation.request, reply));
        }
        // One datagram for each reply, so that a test can lose one and not the others.
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

    /// Executes an operation, unless its once number was executed before.
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
        let is_deferred = operation.flags.contains(OpFlags::DEFERRED);
        if (opcode == Opcode::Get || is_deferred)
            && let Some(status) = self.statuses.pop()
        {
            return Reply::bare(opcode, status);
        }
        if is_deferred && self.is_draining {
            return Reply::bare(opcode, Status::Busy);
        }
        if is_deferred && self.line > 0 {
            self.line -= 1;
            return Reply { cas: self.line + 1, ..Reply::bare(opcode, Status::Busy) };
        }
        if is_deferred {
            return self.grant(operation);
        }
        match (opcode, found) {
            (Opcode::Noop, _) => Reply::bare(opcode, Status::Ok),
            (Opcode::Stats, _) => self.stats(detail.operand),
            (Opcode::Get, Some((bytes, cas))) if bytes.len() > 1000 => {
                large(&bytes, cas, !self.defers_windows)
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

    fn compose(&self, kind: Kind, header: &Header, fill: impl FnOnce(&mut Composer<'_>)) -> Vec<u8> {
        let seal = if self.secret.is_some() { Flags::SEALED } else { Flags::NONE };
        let draining = if self.is_draining { Flags::DRAINING } else { Flags::NONE };
        let answer = Header { flags: seal | draining, ..header.answer(kind, self.welcome.geometry) };
        let mut bytes = Vec::new();
        let mut composer = Composer::begin(&mut bytes, answer, 1448);
        fill(&mut composer);
        composer.finish_with(self.secret.as_ref().map(|keys| &keys.to_client));
        bytes
    }

    /// A refusal of `datagram`, sealed if the server has a secret.
    fn refuse(&self, to: SocketAddr, datagram: &[u8], reason: Reason) -> Vec<Answer> {
        let mut refused = refuse(to, datagram, reason);
        for (_, bytes) in &mut refused {
            self.secret.iter().for_each(|keys| seal(bytes, &keys.to_client));
        }
        refused
    }
}

fn seal(datagram: &mut Vec<u8>, key: &SealKey) {
    let header = Header::parse(datagram).unwrap();
    let length = header.length + TAG_BYTES as u16;
    let header = Header { flags: Flags::SEALED, secret: key.id(), length, ..header };
    header.write(datagram.first_chunk_mut().unwrap());
    let tag = key.tag([datagram.as_slice()]);
    datagram.extend_from_slice(&tag);
}

impl Reply {
    fn bare(opcode: Opcode, status: Status) -> Self {
        Self { opcode, status, item_flags: 0, cas: 0, value: Vec::new() }
    }
}

/// An unsealed refusal of `datagram`.
pub(crate) fn refuse(to: SocketAddr, datagram: &[u8], reason: Reason) -> Vec<Answer> {
    let mut bytes = [0; 48];
    refusal_of(datagram, reason, 0).unwrap().write(&mut bytes);
    vec![(to, bytes.to_vec())]
}
