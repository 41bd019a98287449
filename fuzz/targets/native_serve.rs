//! The server's part of the native protocol: random datagrams, from clients that know their cookie and from
//! one that does not, do no harm. A client without a cookie never gets more bytes than it sent, its client
//! can parse every answer, and every transfer ends.

#![no_main]

#[path = "native_serve/script.rs"]
mod script;
#[path = "native_serve/wire.rs"]
mod wire;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use libfuzzer_sys::fuzz_target;
use minos_base::{Clock, SizeClass, hash_key, limits::SLICE_BYTES};
use minos_engine::{Engine, StoreConfig, StoreMode};
use minos_node::{
    config::NativeConfig,
    native::{Job, NativeSetting, NativeShared, NativeWorker, SizeLimit, Turn},
};
use minos_proto::native::{SealKeys, Welcome};
use minos_sched::WorkerId;

use script::{Script, Step, client};
use wire::Wire;

const WORKERS: u16 = 2;
const VALUE_BYTES_MAX: u64 = 64 << 10;
const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

fn keys() -> SealKeys {
    SealKeys::of(&SECRET.parse().expect("a secret"))
}

fuzz_target!(|input: &[u8]| {
    let [options, input @ ..] = input else { return };
    let mut site = Site::new(*options, hash_key(input, u64::from(*options)).0);
    let mut script = Script::new(input, options & 1 == 1);
    while let Some(step) = script.next(&site.known) {
        site.take(&step);
    }
    site.end();
});

/// The clients' knowledge, with which scripts reach deeper than by chance.
#[derive(Debug, Default)]
struct Known {
    welcome: Option<Welcome>,
    cas: u64,
    transfer: u64,
}

struct Site {
    shared: Arc<NativeShared<StoreMode>>,
    store: Arc<Engine<StoreMode>>,
    workers: Vec<NativeWorker<'static, StoreMode>>,
    placement: SizeLimit,
    now: Instant,
    seal: Option<SealKeys>,
    known: Known,
}

impl Site {
    /// `unguessable` differs between inputs, so that cookies of earlier inputs are useless.
    fn new(options: u8, unguessable: u64) -> Self {
        let store_config =
            StoreConfig { value_bytes_max: VALUE_BYTES_MAX, hash_seed: 77, ..StoreConfig::new(4 << 20) };
        let store = Arc::new(Engine::create(&store_config).expect("that much memory can be had"));
        let now = Instant::now();
        let is_sealed = options & 1 == 1;
        let config = NativeConfig {
            secrets: is_sealed.then(|| SECRET.parse().expect("a secret")).into_iter().collect(),
            window: 1 + u16::from(options >> 4),
            transfers_per_source: 2,
            ..NativeConfig::new(([127, 0, 0, 1], 7000).into())
        };
        let entropy = std::array::from_fn(|at| hash_key(&[at as u8], unguessable).0 as u8);
        let setting = NativeSetting {
            queues: WORKERS,
            base_port: 7000,
            value_bytes_max: VALUE_BYTES_MAX,
            entropy,
            start: now,
            evicts_from_flash: false,
            holds_replies: false,
            direction_seed: None,
        };
        let shared = Arc::new(NativeShared::new(Arc::clone(&store), Clock::new(), &config, &setting));
        let worker = |id| NativeWorker::standalone(Arc::clone(&shared), WorkerId(id));
        let large_worker = (options & 2 == 2).then_some(WorkerId(1));
        Self {
            workers: (0..WORKERS).map(worker).collect(),
            placement: SizeLimit { class_max: SizeClass::of(100), large_worker },
            now,
            seal: is_sealed.then(keys),
            known: Known::default(),
            shared,
            store,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(milliseconds) => {
                self.now += Duration::from_millis(*milliseconds);
                self.workers.iter_mut().for_each(|worker| worker.on_tick(self.now));
            }
            Step::Datagram { peer, queue, bytes } => {
                let sent = self.deliver(*peer, *queue, bytes);
                let is_client = *peer == client();
                let welcome = self.known.welcome.as_ref().filter(|_| is_client);
                sent.check(*peer, bytes, welcome, self.seal.as_ref());
                if is_client {
                    sent.learn(&mut self.known);
                }
            }
        }
    }

    /// The datagrams that leave when one arrives at the socket of `queue`, including those of workers that
    /// got a hand-over.
    fn deliver(&mut self, peer: SocketAddr, queue: usize, bytes: &[u8]) -> Wire {
        let mut wire = Wire::default();
        let mut ring = VecDeque::new();
        let mut hand_off = |to: WorkerId, job: Job| {
            ring.push_back((to, job));
            Ok(())
        };
        let (now, placement) = (self.now, &mut self.placement);
        let turn = Turn { now, placement, egress: &mut wire, hand_off: &mut hand_off };
        let message = (peer, bytes, bytes.len());
        self.workers[queue % usize::from(WORKERS)].on_messages(queue, [message], turn);
        while let Some((worker, job)) = ring.pop_front() {
            let mut hand_off = |to: WorkerId, job: Job| {
                ring.push_back((to, job));
                Ok(())
            };
            let turn =
                Turn { now, placement: &mut self.placement, egress: &mut wire, hand_off: &mut hand_off };
            self.workers[worker.index()].on_job(job, turn);
        }
        for worker in &mut self.workers {
            while worker.is_copying() {
                let mut hand_off = |_: WorkerId, job: Job| Err(job);
                let turn =
                    Turn { now, placement: &mut self.placement, egress: &mut wire, hand_off: &mut hand_off };
                worker.advance(SLICE_BYTES, turn);
            }
        }
        wire
    }

    /// After enough time no transfer is left, and the store is consistent.
    fn end(&mut self) {
        for _ in 0..3 {
            self.take(&Step::Wait(10_000));
        }
        assert!(self.workers.iter().all(|worker| worker.transfers_open() == 0));
        assert_eq!(self.shared.transfer_bytes(), 0);
        assert_eq!(self.store.check(), Ok(()));
    }
}
