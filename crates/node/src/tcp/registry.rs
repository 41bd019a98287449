//! The open connections of a server: their limit, and what `stats conns` reports of them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use minos_base::Seconds;
use minos_net::Token;
use parking_lot::Mutex;

use crate::{
    access::Badge,
    ops::counters::Counter,
    tracking::{Inbox, Seat},
};

/// Every open connection. Locked when one opens or closes, never by a request.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    open: Mutex<BTreeMap<u64, Arc<Entry>>>,
    /// Connections accepted so far. Changed, as the next one, under the lock.
    pub(crate) accepted: Counter,
    /// Connections refused so far because too many were open.
    pub(crate) rejected: Counter,
    /// Attempts to accept a connection that failed so far, for lack of descriptors or because of the network.
    pub(crate) failed: Counter,
}

/// The data of a connection that `stats conns` reports.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Descriptor number, by which memcached names it.
    pub(crate) descriptor: i32,
    /// RX queue it was dealt to.
    pub(crate) queue: usize,
    /// Address that the client connected to.
    pub(crate) listen_address: String,
    /// Address of the client, if it has one.
    pub(crate) peer_address: String,
    /// Time at which it was opened.
    pub(crate) opened: Seconds,
    /// The name that its client has given to it.
    pub(crate) name: Mutex<String>,
    last_active: AtomicU32,
    /// Its token in its RX queue, if it speaks Redis' protocol.
    token: OnceLock<Token>,
    /// Notices to it, once somebody has some.
    inbox: OnceLock<Arc<Inbox>>,
    /// The user of its client, if the server has users.
    badge: OnceLock<Arc<Badge>>,
}

impl Entry {
    /// The user of its client, if the server has users.
    pub(crate) fn badge(&self) -> Option<&Badge> {
        self.badge.get().map(|badge| &**badge)
    }

    /// Time at which the client was last active.
    pub(crate) fn last_active(&self) -> Seconds {
        self.last_active.load(Ordering::Relaxed)
    }
}

/// A slot among the connections allowed; released when it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    number: u64,
    entry: Arc<Entry>,
}

impl Registry {
    /// Registers a connection, unless `max` are open.
    pub(crate) fn register(
        self: &Arc<Self>,
        max: usize,
        entry: impl FnOnce() -> Entry,
    ) -> Option<Registration> {
        let mut open = self.open.lock();
        if open.len() >= max {
            self.rejected.count();
            return None;
        }
        let number = self.accepted.value();
        self.accepted.count();
        let entry = Arc::new(entry());
        open.insert(number, Arc::clone(&entry));
        Some(Registration { registry: Arc::clone(self), number, entry })
    }

    /// Connections open now.
    pub(crate) fn current(&self) -> usize {
        self.open.lock().len()
    }

    /// At most `max` of the connections that are open, oldest first, from number `from` on.
    pub(crate) fn entries_from(&self, from: u64, max: usize) -> Vec<(u64, Arc<Entry>)> {
        let open = self.open.lock();
        open.range(from..).take(max).map(|(&number, entry)| (number, Arc::clone(entry))).collect()
    }

    /// The inbox of the open connection of this number, if it speaks Redis' protocol.
    pub(crate) fn inbox(&self, number: u64) -> Option<Arc<Inbox>> {
        let entry = self.entry(number)?;
        let seat = Seat { queue: entry.queue, token: *entry.token.get()? };
        Some(Arc::clone(entry.inbox.get_or_init(|| Arc::new(Inbox::new(number, seat)))))
    }

    /// The open connection of this number.
    pub(crate) fn entry(&self, number: u64) -> Option<Arc<Entry>> {
        self.open.lock().get(&number).cloned()
    }
}

impl Entry {
    /// A connection accepted at `now`.
    pub(crate) fn new(
        descriptor: i32,
        queue: usize,
        listen_address: String,
        peer_address: String,
        now: Seconds,
    ) -> Self {
        Self {
            descriptor,
            queue,
            listen_address,
            peer_address,
            opened: now,
            name: Mutex::default(),
            last_active: AtomicU32::new(now),
            token: OnceLock::new(),
            inbox: OnceLock::new(),
            badge: OnceLock::new(),
        }
    }
}

impl Registration {
    /// The number of the connection.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that the client was active at `now`.
    #[inline]
    pub(crate) fn active(&self, now: Seconds) {
        self.entry.last_active.store(now, Ordering::Relaxed);
    }

    /// Makes the connection one that can get notices.
    pub(crate) fn seat(&self, token: Token) {
        // It gets one token.
        let _ = self.entry.token.set(token);
    }

    /// Shows others who the client is.
    pub(crate) fn wear(&self, badge: &Arc<Badge>) {
        // It gets one badge.
        let _ = self.entry.badge.set(Arc::clone(badge));
    }

    /// Notices to the connection, if anybody ever had some.
    #[inline]
    pub(crate) fn inbox(&self) -> Option<&Inbox> {
        self.entry.inbox.get().map(|inbox| &**inbox)
    }

    /// Address of the client; empty if it has none.
    pub(crate) fn peer_address(&self) -> String {
        self.entry.peer_address.clone()
    }

    /// Time at which the client was last active.
    pub(crate) fn last_active(&self) -> Seconds {
        self.entry.last_active()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.open.lock().remove(&self.number);
        self.entry.inbox.get().into_iter().for_each(|inbox| inbox.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_given_back() {
        let registry = Arc::new(Registry::default());
        let entry = || Entry::new(3, 0, String::new(), String::new(), 2);
        let first = registry.register(1, entry).unwrap();
        assert!(registry.register(1, entry).is_none());
        drop(first);
        assert!(registry.register(1, entry).is_some());
        assert_eq!((registry.current(), registry.accepted.value(), registry.rejected.value()), (0, 2, 1));
    }
}
