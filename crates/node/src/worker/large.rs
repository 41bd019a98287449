//! Large requests: served slice by slice, and back to their RX queue.

use std::time::Instant;

use minos_engine::Mode;
use minos_net::Io;

use super::{
    Worker,
    fetches::Fetches,
    large_set::Ended,
    rings::{Awaiting, Holder, Waiter},
};
use crate::{
    datagram::Datagrams,
    ops::{Finished, LINE_END, Next, Work},
    tcp::{
        connection::Connection,
        queue::Arrival,
        transfer::{Slice, Transfer},
    },
    watch::Stage,
};

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Serves a slice of whatever large work this worker has: parts that arrive, bytes to copy, a transfer.
    pub(super) fn serve_slices(&mut self) -> bool {
        let received = self.poll_transfers(false);
        let copied = self.copy_slice();
        let moved = self.serve_large();
        let fetched = M::HAS_FLASH && self.serve_fetches();
        received || copied || moved || fetched
    }

    /// Serves one slice of a large transfer: as much as fits between two polls of the RX queues.
    pub(super) fn serve_large(&mut self) -> bool {
        if self.large.len() == 0 {
            return false;
        }
        self.large.poll(self.now);
        if !self.large.is_runnable() {
            return false;
        }
        self.mine.metrics.slices.add(1);
        let begun = Instant::now();
        match self.large.serve_slice(self.slice_bytes(), self.now) {
            Some(Ended::Complete(transfer)) => {
                if let Some(transfer) = self.complete(*transfer) {
                    self.large.insert(transfer, self.now);
                }
            }
            Some(Ended::Broken(transfer)) => self.give_up(*transfer),
            None => {}
        }
        self.count_large(begun);
        true
    }

    /// True if the next slice of a large request could be served at once.
    pub(super) fn has_slices(&self) -> bool {
        self.large.is_runnable()
            || self.datagrams.as_ref().is_some_and(Datagrams::is_copying)
            || (M::HAS_FLASH && self.fetches.as_ref().is_some_and(Fetches::is_runnable))
    }

    /// Bytes of a large request that this worker serves between two looks at its RX queues.
    pub(crate) fn slice_bytes(&self) -> usize {
        self.placement.duty().slice_bytes(self.placement.tuning().slice_bytes) as usize
    }

    /// Serves a transfer to its end here and now, as far as its socket allows.
    pub(crate) fn serve_inline(&mut self, mut transfer: Box<Transfer<M>>) {
        self.mine.metrics.large_inline.add(1);
        // Helpers serve this worker's queue meanwhile.
        let queue = self.id.index();
        let helpers = self.placement.assignment().helped_by[queue].without(self.id);
        self.shared.wake_sleepers(helpers, queue, 1);
        let begun = Instant::now();
        transfer.timed.iter_mut().for_each(|timed| timed.taken());
        self.serve_to_the_end(transfer);
        self.count_large(begun);
    }

    fn serve_to_the_end(&mut self, mut transfer: Box<Transfer<M>>) {
        loop {
            match transfer.advance(usize::MAX) {
                Slice::Moved(_) => {}
                Slice::Complete => match self.complete(*transfer) {
                    Some(unfinished) => transfer = unfinished,
                    None => return,
                },
                Slice::Broken => return self.give_up(*transfer),
                Slice::Blocked => return self.large.insert(transfer, self.now),
            }
        }
    }

    /// Counts the time since a large request was taken up.
    pub(crate) fn count_large(&mut self, begun: Instant) {
        self.mine.metrics.large_ns.add(begun.elapsed().as_nanos() as u64);
    }

    /// Ends a transfer: executes a store whose bytes are all there and returns the connection to its queue. A
    /// store that still has to copy bytes comes back as a transfer.
    fn complete(&mut self, transfer: Transfer<M>) -> Option<Box<Transfer<M>>> {
        self.count_moved(&transfer);
        let Transfer { mut connection, work, patience, timed, .. } = transfer;
        let bytes = work.value_bytes();
        let last = if matches!(work, Work::Send { .. }) { Stage::Tx } else { Stage::Service };
        let next = match work {
            Work::Send { .. } => Next::Continue,
            Work::Collect { forward, .. } => {
                self.mine.metrics.large_completed.add(1);
                self.forward_collected(connection, *forward);
                return None;
            }
            Work::Receive { store, .. } | Work::Finish { store } => {
                self.transmit_buffer.clear();
                let fetched = connection.fetched.take();
                let (mut cx, tx) = self.context();
                cx.fetched = fetched.as_deref();
                let finished = connection.session.as_its_own(|| store.finish(&cx, tx));
                match (self.may_tell(&finished, &mut connection), finished) {
                    (Some(false), _) => Next::Close,
                    (None, finished) => {
                        self.hold_store(connection, finished);
                        return None;
                    }
                    (_, Finished::Answered) => self.send_behind(&mut connection),
                    (_, Finished::Refused) => {
                        self.send_behind(&mut connection);
                        Next::Close
                    }
                    (_, Finished::Send(item)) => {
                        connection.output.append(&self.transmit_buffer);
                        let work = Work::send(item, LINE_END);
                        return Some(Box::new(Transfer::new(connection, work, patience)));
                    }
                    (_, Finished::Copy(store)) => {
                        let work = Work::Finish { store };
                        let transfer = Transfer::new(connection, work, patience);
                        return Some(Box::new(Transfer { timed, ..transfer }));
                    }
                    (_, Finished::Fetch(fetch)) => {
                        let waiter = Waiter::Connection(connection);
                        self.pass_or_fetch(Box::new(Awaiting { waiter, fetch }));
                        return None;
                    }
                }
            }
        };
        if let Some(timed) = timed {
            self.probe.ended(&timed, (last, bytes), self.now_s, || connection.registration.peer_address());
        }
        self.return_home(connection, matches!(next, Next::Close));
        None
    }

    /// Whether the reply to a store may leave, see [`Worker::may_acknowledge`]. Only one that has changed something waits.
    fn may_tell(&self, finished: &Finished<M>, connection: &mut Connection) -> Option<bool> {
        if !matches!(finished, Finished::Answered | Finished::Send(_)) {
            return Some(true);
        }
        self.note_owed(connection);
        Some(self.may_acknowledge(connection)? && self.may_answer())
    }

    /// Keeps the reply to a store until its change may be told.
    fn hold_store(&mut self, mut connection: Box<Connection>, finished: Finished<M>) {
        connection.output.append(&self.transmit_buffer);
        self.mine.metrics.large_completed.add(1);
        let next = match finished {
            Finished::Send(item) => Next::Away(Work::send(item, LINE_END)),
            _ => {
                self.mine.counters.bytes_written.add(self.transmit_buffer.len() as u64);
                Next::Yield
            }
        };
        self.hold(Holder::Connection(connection, next));
    }

    /// Returns the connection of a request that has ended to its queue.
    fn return_home(&mut self, connection: Box<Connection>, is_broken: bool) {
        self.mine.metrics.large_completed.add(1);
        connection.registration.active(self.now_s);
        let home = connection.home;
        let arrival =
            if is_broken { Arrival::Ended(connection) } else { Arrival::Back { connection, has_more: true } };
        self.send_home(home, arrival);
    }

    fn count_moved(&self, transfer: &Transfer<M>) {
        let counters = &self.mine.counters;
        match transfer.work {
            Work::Send { .. } => counters.bytes_written.add(transfer.moved_bytes),
            Work::Receive { .. } | Work::Finish { .. } | Work::Collect { .. } => {
                counters.bytes_read.add(transfer.moved_bytes)
            }
        }
    }

    pub(crate) fn give_up(&mut self, transfer: Transfer<M>) {
        self.count_moved(&transfer);
        self.mine.metrics.large_broken.add(1);
        let connection = transfer.connection;
        self.send_home(connection.home, Arrival::Ended(connection));
    }
}
