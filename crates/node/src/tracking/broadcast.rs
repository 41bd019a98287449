//! Prefixes of keys whose changes connections are told of; and nodes of the rack, which are told of all.

use std::{collections::HashMap, sync::Arc};

use super::{Inbox, Tracker};

/// Prefixes, and the connections that are told of keys with them; and the nodes.
#[derive(Default)]
pub(super) struct Broadcast {
    prefixes: HashMap<Box<[u8]>, Vec<Arc<Tracker>>>,
    /// The lengths that prefixes have, and how many have each: a key is looked up once for each length.
    lengths: Vec<(usize, usize)>,
    nodes: Vec<Arc<Inbox>>,
}

impl Broadcast {
    pub(super) fn add(&mut self, prefix: &[u8], tracker: &Arc<Tracker>) {
        let trackers = self.prefixes.entry(prefix.into()).or_default();
        if trackers.is_empty() {
            match self.lengths.iter_mut().find(|(length, _)| *length == prefix.len()) {
                Some((_, count)) => *count += 1,
                None => self.lengths.push((prefix.len(), 1)),
            }
        }
        trackers.push(Arc::clone(tracker));
    }

    pub(super) fn remove(&mut self, prefix: &[u8], tracker: &Arc<Tracker>) {
        let Some(trackers) = self.prefixes.get_mut(prefix) else { return };
        trackers.retain(|other| !Arc::ptr_eq(other, tracker));
        if !trackers.is_empty() {
            return;
        }
        self.prefixes.remove(prefix);
        if let Some((_, count)) = self.lengths.iter_mut().find(|(length, _)| *length == prefix.len()) {
            *count -= 1;
        }
        self.lengths.retain(|(_, count)| *count > 0);
    }

    /// Calls `tell` for each prefix of `key`, with each connection.
    pub(super) fn each(&self, key: &[u8], mut tell: impl FnMut(&Tracker)) {
        for (length, _) in &self.lengths {
            let trackers = key.get(..*length).and_then(|prefix| self.prefixes.get(prefix));
            trackers.into_iter().flatten().for_each(|tracker| tell(tracker));
        }
    }

    pub(super) fn add_node(&mut self, node: &Arc<Inbox>) {
        self.nodes.push(Arc::clone(node));
    }

    pub(super) fn remove_node(&mut self, node: &Arc<Inbox>) {
        self.nodes.retain(|other| !Arc::ptr_eq(other, node));
    }

    /// The nodes that are told of all changes here.
    pub(super) fn nodes(&self) -> &[Arc<Inbox>] {
        &self.nodes
    }

    /// All connections that have prefixes, each for each of its own.
    pub(super) fn trackers(&self) -> impl Iterator<Item = &Arc<Tracker>> {
        self.prefixes.values().flatten()
    }

    /// The number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }
}
