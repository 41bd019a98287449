//! The large transfers of one worker, and the order in which they are served.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_engine::Mode;
use minos_net::{Poller, Ready, Token, Wait};
use minos_sched::LargeOrder;

use crate::{
    tcp::{
        patience::{Late, Terms},
        transfer::{Slice, Transfer},
    },
    tracking::Inbox,
};

/// Transfers in progress on one worker: at most one a connection.
pub(crate) struct LargeSet<M: Mode, P> {
    order: LargeOrder,
    wait_max: Duration,
    terms: Terms,
    entries: Vec<Option<Entry<M>>>,
    free: Vec<usize>,
    /// Entries whose socket was ready when last tried, in the order in which they became so.
    runnable: Vec<usize>,
    /// Sockets of entries that were blocked once.
    poller: P,
    ready: Vec<Ready>,
}

struct Entry<M: Mode> {
    transfer: Box<Transfer<M>>,
    remaining_bytes: usize,
    waits_since: Instant,
    watched: bool,
}

/// How a transfer ended.
pub(crate) enum Ended<M: Mode> {
    Complete(Box<Transfer<M>>),
    Broken(Box<Transfer<M>>),
}

impl<M: Mode, P: Poller> LargeSet<M, P> {
    /// An empty set, whose blocked sockets `poller` watches. With [`LargeOrder::Shortest`] no transfer with a ready socket waits longer than
    /// `wait_max` for a slice. `terms` bound how long a transfer waits for its client.
    pub(crate) fn new(poller: P, order: LargeOrder, wait_max: Duration, terms: Terms) -> Self {
        Self {
            order,
            wait_max,
            terms,
            entries: Vec::new(),
            free: Vec::new(),
            runnable: Vec::new(),
            poller,
            ready: Vec::new(),
        }
    }

    /// Changes how long transfers wait for their clients.
    pub(crate) fn set_terms(&mut self, terms: Terms) {
        self.terms = terms;
    }

    /// Transfers held, ready or blocked.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// True if a slice could be served now.
    pub(crate) fn is_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// The descriptor that is readable when a blocked transfer can go on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.poller.descriptor()
    }

    pub(crate) fn insert(&mut self, mut transfer: Box<Transfer<M>>, now: Instant) {
        transfer.timed.iter_mut().for_each(|timed| timed.taken());
        let remaining_bytes = transfer.remaining_bytes();
        let entry = Entry { transfer, remaining_bytes, waits_since: now, watched: false };
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[index] = Some(entry);
        self.runnable.push(index);
    }

    /// Marks blocked transfers whose sockets have become ready as runnable.
    pub(crate) fn poll(&mut self, now: Instant) {
        if self.runnable.len() == self.len() {
            return;
        }
        self.ready.clear();
        if self.poller.poll(&mut self.ready, usize::MAX, Wait::No).is_err() {
            return;
        }
        for ready in &self.ready {
            let index = ready.token.0 as usize;
            if let Some(Some(entry)) = self.entries.get_mut(index)
                && !self.runnable.contains(&index)
            {
                entry.waits_since = now;
                entry.transfer.patience.ready(now);
                self.runnable.push(index);
            }
        }
    }

    /// Serves one slice of at most `slice_bytes` to the transfer whose turn it is; returns a transfer that
    /// this slice ended.
    pub(crate) fn serve_slice(&mut self, slice_bytes: usize, now: Instant) -> Option<Ended<M>> {
        let position = self.turn(now)?;
        let index = self.runnable[position];
        let entry = self.entries[index].as_mut()?;
        match entry.transfer.advance(slice_bytes) {
            Slice::Moved(moved) => {
                entry.remaining_bytes -= moved.min(entry.remaining_bytes);
                entry.waits_since = now;
                entry.transfer.patience.moved(moved, &self.terms, now);
                None
            }
            Slice::Blocked => {
                self.runnable.remove(position);
                self.watch(index, now)
            }
            Slice::Complete => self.take(position, index).map(Ended::Complete),
            Slice::Broken => self.take(position, index).map(Ended::Broken),
        }
    }

    /// The transfer that [`take_runnable`](Self::take_runnable) takes out.
    pub(crate) fn last_runnable(&self) -> Option<&Transfer<M>> {
        let entry = self.entries[*self.runnable.last()?].as_ref()?;
        Some(&entry.transfer)
    }

    /// Takes out a transfer that could be served now, if there is one.
    pub(crate) fn take_runnable(&mut self) -> Option<Box<Transfer<M>>> {
        let index = self.runnable.pop()?;
        self.release(index)
    }

    /// Removes a transfer whose client is late under the terms, or whose connection is to be closed, if there is one.
    pub(crate) fn take_late(&mut self, now: Instant) -> Option<(Box<Transfer<M>>, Late)> {
        let terms = self.terms;
        let late = |entry: &Option<Entry<M>>| {
            let transfer = &entry.as_ref()?.transfer;
            let is_killed = transfer.connection.registration.inbox().is_some_and(Inbox::is_killed);
            if is_killed { Some(Late::Killed) } else { transfer.patience.late(&terms, now) }
        };
        let mut late =
            self.entries.iter().enumerate().filter_map(|(index, entry)| Some((index, late(entry)?)));
        let (index, how) = late.next()?;
        self.runnable.retain(|&other| other != index);
        Some((self.release(index)?, how))
    }

    /// Position in `runnable` of the transfer to serve next.
    fn turn(&self, now: Instant) -> Option<usize> {
        let entry = |&index: &usize| self.entries[index].as_ref();
        if self.order == LargeOrder::Fifo {
            return if self.runnable.is_empty() { None } else { Some(0) };
        }
        let mut shortest = None;
        let mut oldest: Option<(usize, Instant)> = None;
        for (position, entry) in self.runnable.iter().filter_map(entry).enumerate() {
            if shortest.is_none_or(|(_, bytes)| entry.remaining_bytes < bytes) {
                shortest = Some((position, entry.remaining_bytes));
            }
            if oldest.is_none_or(|(_, since)| entry.waits_since < since) {
                oldest = Some((position, entry.waits_since));
            }
        }
        match oldest {
            Some((position, since)) if now.saturating_duration_since(since) > self.wait_max => Some(position),
            _ => shortest.map(|(position, _)| position),
        }
    }

    /// Watches the socket of `index` for readiness; a transfer whose socket cannot be watched ends.
    fn watch(&mut self, index: usize, now: Instant) -> Option<Ended<M>> {
        let entry = self.entries[index].as_mut()?;
        entry.transfer.patience.blocked(now);
        if entry.watched {
            return None;
        }
        let interest = entry.transfer.interest();
        // Adding the socket also reports an edge that came after the blocked call.
        match self.poller.add(Token(index as u64), entry.transfer.connection.stream.as_fd(), interest) {
            Ok(()) => {
                entry.watched = true;
                entry.waits_since = now;
                None
            }
            Err(_) => self.release(index).map(Ended::Broken),
        }
    }

    fn take(&mut self, position: usize, index: usize) -> Option<Box<Transfer<M>>> {
        self.runnable.remove(position);
        self.release(index)
    }

    fn release(&mut self, index: usize) -> Option<Box<Transfer<M>>> {
        let entry = self.entries[index].take()?;
        self.free.push(index);
        if entry.watched {
            self.poller.remove(Token(index as u64), entry.transfer.connection.stream.as_fd());
        }
        Some(entry.transfer)
    }
}
