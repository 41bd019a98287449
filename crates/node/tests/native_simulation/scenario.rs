//! The scenario of a seed: its clients, their operations, and the faults.

use std::ops::RangeInclusive;

use minos_base::SizeClass;
use minos_client::{OnceFor, QueueBy};
use minos_proto::native::Access;
use minos_testkit::network::Faults;
use rand::{RngExt as _, rngs::StdRng};

/// Nanoseconds of a microsecond.
pub(crate) const US: u64 = 1000;
/// Nanoseconds of a millisecond.
pub(crate) const MS: u64 = 1000 * US;

/// Memory that suffices for all values of a run at once, in bytes.
const MEMORY_BYTES_AMPLE: u64 = 64 << 20;

/// Clients of a run, but for a crowd.
const CLIENTS_MAX: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// True if the server may evict items to store others, false if it refuses those.
    pub(crate) is_cache: bool,
    /// Memory of the store, and of values that are still arriving, in bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) transfer_memory_bytes: Option<u64>,
    /// True if the plan changes while clients are served.
    pub(crate) changes_plans: bool,
    /// RX queues and workers.
    pub(crate) workers: u16,
    pub(crate) clients: usize,
    pub(crate) operations: u32,
    /// Operations that a client has open at once.
    pub(crate) open_max: usize,
    pub(crate) token_keys: u32,
    /// Bytes of each token, if all have the same length: then fragments of one could be mistaken for those of
    /// another.
    pub(crate) token_bytes: Option<u32>,
    pub(crate) number_keys: u32,
    /// Values above this are large under the plan, in bytes.
    pub(crate) threshold_bytes: u64,
    /// In EREW and CREW no value is large under the plan.
    pub(crate) access: Access,
    pub(crate) queue_by: QueueBy,
    pub(crate) once_for: OnceFor,
    pub(crate) is_sealed: bool,
    /// Largest datagram of the server and of the clients, in bytes.
    pub(crate) datagram_bytes: [usize; 2],
    /// Fragments in flight at once.
    pub(crate) window: u16,
    /// Large stores of one address in progress at once.
    pub(crate) transfers_per_source: usize,
    /// Silence after which such a store is given up, and time for which its outcome is kept, in milliseconds.
    pub(crate) transfer_timeout_ms: u64,
    pub(crate) sessions_max: usize,
    /// Longest delay of an operation in a batch, in microseconds.
    pub(crate) batch_delay_us: u64,
    /// Longest time of an operation, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// Most unanswered datagrams of a client.
    pub(crate) in_flight_max: usize,
    pub(crate) faults: Faults,
    /// Start and length of an outage, in nanoseconds.
    pub(crate) outage_ns: Option<(u64, u64)>,
    /// Time at which a new client without state replaces the first one at its address, in nanoseconds.
    pub(crate) reborn_ns: Option<u64>,
    /// Longest time between two operations of a client, in nanoseconds.
    pub(crate) pause_ns_max: u64,
    /// Time at which the server restarts empty, in nanoseconds, and its number of workers.
    pub(crate) restart: Option<(u64, u16)>,
    /// True if it announces this a little before.
    pub(crate) drains: bool,
    /// Capacity of a worker's ring.
    pub(crate) ring_capacity: usize,
    /// True if the server forgets outcomes: the control, which must fail.
    pub(crate) forgets_outcomes: bool,
}

impl Scenario {
    pub(crate) fn draw(seed: u64, rng: &mut StdRng) -> Self {
        let (is_sealed, is_cache) = (rng.random_bool(0.3), rng.random_bool(0.4));
        let clients = rng.random_range(1..=CLIENTS_MAX);
        let is_calm = rng.random_bool(0.1);
        let faults = if is_calm { Faults::none() } else { faults(rng) };
        let danger = |share| if is_calm { 0.0 } else { share };
        let among = |rng: &mut StdRng, choices: &[usize]| choices[rng.random_range(0..choices.len())];
        Self {
            seed,
            is_cache,
            memory_bytes: if rng.random_bool(0.15) { 1 << 20 } else { MEMORY_BYTES_AMPLE },
            transfer_memory_bytes: chance(rng, 0.2, 1..=500_000),
            changes_plans: rng.random_bool(0.3),
            workers: rng.random_range(2..=4),
            clients,
            operations: rng.random_range(5..=25),
            // More open operations have more orders than can be searched.
            open_max: rng.random_range(1..=6).min(9 / clients),
            token_keys: rng.random_range(1..=4),
            token_bytes: chance(rng, 0.2, 1..=40_000).map(|bytes| bytes as u32),
            number_keys: rng.random_range(1..=3),
            threshold_bytes: among(rng, &[100, 2000, 20_000, 1 << 20]) as u64,
            access: access(rng, is_cache),
            queue_by: [QueueBy::Access, QueueBy::Access, QueueBy::Random, QueueBy::Key, QueueBy::Wrong]
                [rng.random_range(0..5)],
            once_for: [OnceFor::NotIdempotent, OnceFor::AllWrites][rng.random_range(0..2)],
            is_sealed,
            datagram_bytes: [among(rng, &[512, 1448, 1448, 8000]), among(rng, &[512, 1448, 1448, 8000])],
            window: among(rng, &[1, 2, 8, 32]) as u16,
            transfers_per_source: among(rng, &[1, 2, 8]),
            transfer_timeout_ms: among(rng, &[10, 50, 500]) as u64,
            sessions_max: among(rng, &[1, 2, 64, 64]),
            batch_delay_us: among(rng, &[0, 0, 50]) as u64,
            timeout_ms: if is_calm { 10_000 } else { among(rng, &[60, 2000, 2000, 10_000]) as u64 },
            in_flight_max: among(rng, &[1, 4, 64]),
            faults,
            outage_ns: chance(rng, danger(0.2), 0..=20 * MS)
                .map(|at_ns| (at_ns, rng.random_range(MS..=300 * MS))),
            restart: chance(rng, danger(0.25), 0..=20 * MS).map(|at_ns| (at_ns, rng.random_range(2..=4))),
            drains: rng.random_bool(0.5),
            reborn_ns: chance(rng, danger(0.1), 0..=20 * MS),
            // Sometimes so long that cookies expire meanwhile.
            pause_ns_max: if rng.random_bool(0.05) { 30_000 * MS } else { 500 * US },
            ring_capacity: among(rng, &[1, 4, 64]),
            forgets_outcomes: false,
        }
    }

    /// The same without anything that costs time or a datagram, over a network with long ones.
    pub(crate) fn calm(self) -> Self {
        Self {
            memory_bytes: MEMORY_BYTES_AMPLE,
            transfer_memory_bytes: None,
            changes_plans: false,
            datagram_bytes: [8000; 2],
            window: 32,
            transfers_per_source: 8,
            transfer_timeout_ms: 500,
            sessions_max: 64,
            timeout_ms: 10_000,
            faults: Faults::none(),
            outage_ns: None,
            restart: None,
            reborn_ns: None,
            ring_capacity: 64,
            ..self
        }
    }

    /// The same for many clients of one host, which may store one large value at a time.
    pub(crate) fn crowded(self) -> Self {
        Self {
            clients: 8,
            operations: 12,
            open_max: 1,
            token_keys: 4,
            token_bytes: Some(300_000),
            transfers_per_source: 1,
            pause_ns_max: 500 * US,
            ..self.calm()
        }
    }

    /// The host of a client: two are of one host, and a crowd is of one.
    pub(crate) fn host(&self, client: usize) -> u8 {
        if self.clients > CLIENTS_MAX { 1 } else { 1 + client as u8 / 2 }
    }

    /// True if partitions belong to workers.
    pub(crate) fn is_owned(&self) -> bool {
        self.access != Access::Crcw
    }

    /// The largest class that is small under the plan.
    pub(crate) fn threshold(&self) -> SizeClass {
        SizeClass::of(if self.is_owned() { u64::MAX } else { self.threshold_bytes })
    }

    /// True if the memory may not suffice for a value.
    pub(crate) fn is_small(&self) -> bool {
        self.memory_bytes < MEMORY_BYTES_AMPLE
    }

    /// True if bytes may change unnoticed. Then operations must end somehow and nothing may be held
    /// afterwards, but no more is promised.
    pub(crate) fn is_noisy(&self) -> bool {
        self.faults.unnoticed > 0.0 && !self.is_sealed
    }

    /// True if no fault keeps an operation from ending.
    pub(crate) fn is_peaceful(&self) -> bool {
        let faults = &self.faults;
        let shares =
            [faults.loss, faults.duplication, faults.reordering, faults.corruption, faults.truncation];
        let is_calm =
            !self.is_small() && shares.iter().all(|&share| share == 0.0) && self.outage_ns.is_none();
        is_calm
            && self.restart.is_none()
            && self.reborn_ns.is_none()
            && self.sessions_max > self.clients
            && self.timeout_ms >= 10_000
    }

    /// Longest time from the sending of a datagram to the end of its effects, in nanoseconds.
    pub(crate) fn late_ns(&self) -> u64 {
        // A turn of a worker, and one of the worker it hands the work to.
        const TURNS_NS: u64 = 5 * MS;
        self.faults.delay_ns.end() + self.faults.held_back_ns_max + TURNS_NS
    }
}

fn chance(rng: &mut StdRng, share: f64, range: RangeInclusive<u64>) -> Option<u64> {
    rng.random_bool(share).then(|| rng.random_range(range))
}

/// The faults of all links: of each kind none, few or many.
fn faults(rng: &mut StdRng) -> Faults {
    let share = |rng: &mut StdRng, most: f64| match rng.random_range(0..3) {
        0 => 0.0,
        1 => rng.random_range(0.0..most / 10.0),
        _ => rng.random_range(0.0..most),
    };
    let (loss, duplication, reordering) = (share(rng, 0.3), share(rng, 0.3), share(rng, 0.3));
    let (corruption, truncation) = (share(rng, 0.1), share(rng, 0.1));
    let delay_ns = rng.random_range(5 * US..100 * US);
    Faults {
        loss,
        duplication,
        reordering,
        held_back_ns_max: rng.random_range(0..20 * MS),
        delay_ns: delay_ns..=delay_ns + rng.random_range(0..200 * US),
        corruption,
        truncation,
        unnoticed: chance(rng, 0.1, 1..=30).map_or(0.0, |hundredths| hundredths as f64 / 100.0),
        datagram_bytes_max: 9000,
    }
}

/// An access mode: EREW for a cache and CREW for a store, so that fewer servers are compiled, or CRCW.
fn access(rng: &mut StdRng, is_cache: bool) -> Access {
    match (rng.random_bool(0.5), is_cache) {
        (false, _) => Access::Crcw,
        (true, true) => Access::Erew,
        (true, false) => Access::Crew,
    }
}
