//! A server of the native protocol in the test's process: one thread, one socket, a map, and losses on
//! demand.

use std::{
    collections::HashMap,
    net::{SocketAddr, UdpSocket},
    os::fd::AsFd,
    sync::{Arc, Mutex},
    thread,
};

use minos_base::hash_key;
use minos_net::udp::{UdpOptions, UdpPort};
use minos_proto::native::{
    Access, AckHead, AckState, Composer, DataHead, Flags, FragmentHead, FragmentRange, GRANT_BYTES, Grant,
    Header, Hello, Kind, OpFlags, Opcode, Operation, Ranges, ReplyRecord, Status, Welcome, WelcomeFlags,
    operations, push_ranges,
};

const SEED: u64 = 77;
const COOKIE: u64 = 0xc00c1e;
const GEOMETRY: u32 = 9;
const QUEUES: u16 = 2;
const DATAGRAM_BYTES_MAX: usize = 1200;
const FRAGMENT_BYTES: u32 = 1000;
const WINDOW: u16 = 16;

/// A running server. Its thread ends with the test's process.
pub(crate) struct FakeNative {
    pub(crate) address: SocketAddr,
    items: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
}

/// A large value that is being received.
struct Transfer {
    /// The sender that announced it, the request and the operation in it.
    origin: (SocketAddr, u64, u32),
    key: Vec<u8>,
    value: Vec<u8>,
    has: Vec<bool>,
}

struct Worker {
    socket: UdpSocket,
    items: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
    transfers: HashMap<u64, Transfer>,
    /// Every `loss_one_in`-th datagram sent is lost; 0 for none.
    loss_one_in: u64,
    sent: u64,
}

impl FakeNative {
    pub(crate) fn start(loss_one_in: u64) -> Self {
        let socket = blocking_socket();
        let address = socket.local_addr().unwrap();
        let items: Arc<Mutex<HashMap<_, _>>> = Arc::default();
        let mut worker =
            Worker { socket, items: items.clone(), transfers: HashMap::new(), loss_one_in, sent: 0 };
        thread::spawn(move || {
            let mut datagram = vec![0; 1 << 16];
            while let Ok((bytes, peer)) = worker.socket.recv_from(&mut datagram) {
                worker.serve(&datagram[..bytes], peer);
            }
        });
        Self { address, items }
    }

    pub(crate) fn item_count(&self) -> usize {
        self.items.lock().unwrap().len()
    }
}

impl Worker {
    fn serve(&mut self, datagram: &[u8], peer: SocketAddr) {
        let header = Header::parse(datagram).unwrap();
        if header.kind == Kind::Hello {
            let hello = Hello::parse(header.body(datagram)).unwrap();
            return self.welcome(&header, hello.nonce, peer);
        }
        assert_eq!((header.cookie, header.geometry), (COOKIE, GEOMETRY));
        match header.kind {
            Kind::Request => {
                for operation in operations(datagram, &header) {
                    let operation = operation.unwrap();
                    assert_eq!(operation.hash, hash_key(operation.key, SEED));
                    self.execute(&header, &operation, peer);
                }
            }
            Kind::Fragment => self.fragment(&header, header.body(datagram), peer),
            kind => panic!("unexpected {kind:?}"),
        }
    }

    fn send(&mut self, bytes: &[u8], peer: SocketAddr) {
        self.sent += 1;
        if self.loss_one_in == 0 || !self.sent.is_multiple_of(self.loss_one_in) {
            self.socket.send_to(bytes, peer).unwrap();
        }
    }

    /// Sends what `compose` puts into a datagram that answers `header`.
    fn answer(
        &mut self,
        header: &Header,
        kind: Kind,
        peer: SocketAddr,
        compose: impl FnOnce(&mut Composer<'_>),
    ) {
        let mut out = Vec::new();
        let mut composer = Composer::begin(&mut out, header.answer(kind, GEOMETRY), DATAGRAM_BYTES_MAX);
        compose(&mut composer);
        composer.finish();
        self.send(&out, peer);
    }

    fn reply(&mut self, header: &Header, record: &ReplyRecord<'_>, peer: SocketAddr) {
        self.answer(header, Kind::Reply, peer, |composer| assert!(composer.push_reply(record)));
    }

    fn welcome(&mut self, header: &Header, nonce: u64, peer: SocketAddr) {
        let welcome = Welcome {
            nonce,
            boot: 1,
            cookie: COOKIE,
            direction_seed: SEED,
            session: 0,
            cookie_seconds: 60,
            geometry: GEOMETRY,
            queues: QUEUES,
            partition_bits: 2,
            access: Access::Erew,
            base_port: self.socket.local_addr().unwrap().port(),
            flags: WelcomeFlags::SINGLE_PORT,
            datagram_bytes_max: DATAGRAM_BYTES_MAX as u16,
            key_bytes_max: 250,
            window: WINDOW,
            once_window: 128,
            value_bytes_max: 1 << 26,
            transfers_per_client: 8,
            in_flight: 64,
        };
        let mut body = [0; 96];
        welcome.write(&mut body);
        self.answer(header, Kind::Welcome, peer, |composer| assert!(composer.push_bytes(&body)));
    }

    fn execute(&mut self, header: &Header, operation: &Operation<'_>, peer: SocketAddr) {
        let Operation { opcode, request, key, .. } = *operation;
        let value = self.items.lock().unwrap().get(key).cloned();
        let is_deferred = operation.flags.contains(OpFlags::DEFERRED);
        match (opcode, value) {
            (Opcode::Noop, _) => self.reply(header, &ReplyRecord::bare(opcode, Status::Ok, request), peer),
            (Opcode::Put, _) if is_deferred => self.grant(header, operation, peer),
            (Opcode::Put, _) => {
                self.items.lock().unwrap().insert(key.to_vec(), operation.value.to_vec());
                self.reply(header, &ReplyRecord::bare(opcode, Status::Ok, request), peer);
            }
            (Opcode::Get, None) => {
                self.reply(header, &ReplyRecord::bare(opcode, Status::NotFound, request), peer);
            }
            (Opcode::Get, Some(value)) if value.len() > 900 => self.large(header, operation, &value, peer),
            (Opcode::Get, Some(value)) => {
                let bare = ReplyRecord::bare(opcode, Status::Ok, request);
                self.reply(header, &ReplyRecord { cas: 1, value: &value, ..bare }, peer);
            }
            (Opcode::Fetch, Some(value)) => {
                assert!(header.queue >= QUEUES && operation.detail.operand == 1);
                for range in Ranges::parse(operation.value).unwrap() {
                    self.data(header, request, &value, range, peer);
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    fn large(&mut self, header: &Header, operation: &Operation<'_>, value: &[u8], peer: SocketAddr) {
        let grant = grant_of(0, value.len());
        let mut bytes = [0; GRANT_BYTES];
        grant.write(&mut bytes);
        let bare = ReplyRecord::bare(operation.opcode, Status::Large, operation.request);
        self.reply(header, &ReplyRecord { cas: 1, value: &bytes, ..bare }, peer);
        let count = grant.fragments().unwrap().count().min(u32::from(WINDOW));
        self.data(header, operation.request, value, FragmentRange { first: 0, count }, peer);
    }

    fn data(&mut self, header: &Header, request: u32, value: &[u8], range: FragmentRange, peer: SocketAddr) {
        assert!(range.count <= u32::from(WINDOW));
        let fragments = grant_of(0, value.len()).fragments().unwrap();
        for index in range.indexes() {
            let part = &value[fragments.range(index).unwrap()];
            let value_bytes = value.len() as u64;
            let head = DataHead {
                request,
                index,
                value_bytes,
                cas: 1,
                item_flags: 0,
                fragment_bytes: FRAGMENT_BYTES,
            };
            let mut bytes = [0; 32];
            head.write(&mut bytes);
            self.answer(header, Kind::Data, peer, |composer| {
                assert!(composer.push_bytes(&bytes) && composer.push_bytes(part));
            });
        }
    }

    fn grant(&mut self, header: &Header, operation: &Operation<'_>, peer: SocketAddr) {
        let request = operation.request;
        let origin = (peer, header.stamp, request);
        let known = self.transfers.iter().find(|(_, transfer)| transfer.origin == origin);
        let id = known.map_or(self.transfers.len() as u64 + 1, |(id, _)| *id);
        let grant = grant_of(id, operation.detail.value_bytes as usize);
        let has = vec![false; grant.fragments().unwrap().count() as usize];
        let value = vec![0; grant.value_bytes as usize];
        let key = operation.key.to_vec();
        self.transfers.entry(id).or_insert(Transfer { origin, key, value, has });
        let mut bytes = [0; GRANT_BYTES];
        grant.write(&mut bytes);
        let bare = ReplyRecord::bare(operation.opcode, Status::Granted, request);
        self.reply(header, &ReplyRecord { value: &bytes, ..bare }, peer);
    }

    fn fragment(&mut self, header: &Header, body: &[u8], peer: SocketAddr) {
        let (head, bytes) = FragmentHead::parse(body).unwrap();
        let transfer = self.transfers.get_mut(&head.transfer).unwrap();
        let fragments = grant_of(0, transfer.value.len()).fragments().unwrap();
        if !bytes.is_empty() {
            transfer.value[fragments.range(head.index).unwrap()].copy_from_slice(bytes);
            transfer.has[head.index as usize] = true;
        }
        let lost = transfer.has.iter().enumerate().filter(|(_, has)| !**has);
        let missing: Vec<FragmentRange> =
            lost.map(|(index, _)| FragmentRange { first: index as u32, count: 1 }).take(32).collect();
        let (is_done, request) = (missing.is_empty(), transfer.origin.2);
        if header.flags.contains(Flags::ACK_WANTED) {
            let state = if is_done { AckState::Done } else { AckState::Open };
            let ranges = missing.len() as u32;
            let mut out = [0; 24].to_vec();
            AckHead { transfer: head.transfer, received: 0, ranges, state }
                .write(out.as_mut_slice().try_into().unwrap());
            push_ranges(&mut out, missing);
            self.answer(header, Kind::Ack, peer, |composer| assert!(composer.push_bytes(&out)));
        }
        if is_done {
            let Transfer { key, value, .. } = &self.transfers[&head.transfer];
            self.items.lock().unwrap().insert(key.clone(), value.clone());
            self.reply(header, &ReplyRecord::bare(Opcode::Put, Status::Ok, request), peer);
        }
    }
}

/// A socket with buffers for all that a test sends at once, as far as the machine allows.
pub(crate) fn blocking_socket() -> UdpSocket {
    let port =
        UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions { gro: false, ..UdpOptions::default() });
    let socket = UdpSocket::from(port.unwrap().as_fd().try_clone_to_owned().unwrap());
    socket.set_nonblocking(false).unwrap();
    socket
}

fn grant_of(transfer: u64, value_bytes: usize) -> Grant {
    let value_bytes = value_bytes as u64;
    Grant {
        transfer,
        value_bytes,
        fragment_bytes: FRAGMENT_BYTES,
        queue: QUEUES,
        window: WINDOW,
        first_follows: true,
    }
}
