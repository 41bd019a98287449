//! The transports of a server, with faults.

use std::{
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use minos_net::{Io, PortOptions};

use super::{FaultyPoller, FaultyPort, PollerCounts, PollerFaults, PortCounts, PortFaults, Shared, lock};

/// Opens faulty twins of the pollers and ports of another [`Io`]. Each has random choices of its own.
#[derive(Debug)]
pub struct FaultyIo<I> {
    inner: I,
    seed: AtomicU64,
    poller_faults: PollerFaults,
    port_faults: PortFaults,
    pollers: Mutex<Vec<Shared<PollerCounts>>>,
    ports: Mutex<Vec<Shared<PortCounts>>>,
}

impl<I: Io> FaultyIo<I> {
    /// Twins of what `inner` opens.
    pub fn new(inner: I, poller_faults: PollerFaults, port_faults: PortFaults, seed: u64) -> Self {
        // Each twin takes the next seed; those of two servers differ.
        let seed = AtomicU64::new(seed << 16);
        Self { inner, seed, poller_faults, port_faults, pollers: Mutex::default(), ports: Mutex::default() }
    }

    /// How often each fault of a poller has happened, of all together.
    pub fn poller_counts(&self) -> PollerCounts {
        sum(&self.pollers)
    }

    /// How often each fault of a port has happened, of all together.
    pub fn port_counts(&self) -> PortCounts {
        sum(&self.ports)
    }
}

impl<I: Io> Io for FaultyIo<I> {
    type Poller = FaultyPoller<I::Poller>;
    type Port = FaultyPort<I::Port>;

    fn poller(&self) -> io::Result<Self::Poller> {
        let seed = self.seed.fetch_add(1, Relaxed);
        let poller = FaultyPoller::new(self.inner.poller()?, self.poller_faults, seed)?;
        lock(&self.pollers).push(poller.shared_counts());
        Ok(poller)
    }

    fn ports(&self, wanted: &PortOptions) -> io::Result<Vec<Self::Port>> {
        let twin = |inner| {
            let seed = self.seed.fetch_add(1, Relaxed);
            let port = FaultyPort::new(inner, self.port_faults.clone(), seed)?;
            lock(&self.ports).push(port.shared_counts());
            Ok(port)
        };
        self.inner.ports(wanted)?.into_iter().map(twin).collect()
    }
}

fn sum<T: Copy + Default + std::ops::AddAssign>(counts: &Mutex<Vec<Shared<T>>>) -> T {
    let mut sum = T::default();
    lock(counts).iter().for_each(|counts| sum += *lock(counts));
    sum
}
