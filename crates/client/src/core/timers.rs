//! Timers: lost requests, retries, repairs and deadlines.

use super::{Core, OpId, ending::RESTARTS_MAX, operation::Operation, operation::Phase};
use crate::Error;

/// The action that is due for an operation.
#[derive(Clone, Copy)]
enum Due {
    End,
    Send,
    Repair,
}

impl Core {
    /// The time to call [`Core::on_timer`], unless something else happens before. The call may find nothing
    /// due.
    pub fn next_timer(&self) -> Option<u64> {
        (!self.operations.is_empty()).then_some(self.wake_ns.min(self.ready_ns))
    }

    /// Does what is due by now: repeats lost requests and ends operations at their deadline.
    pub fn on_timer(&mut self, now_ns: u64) {
        self.ready_ns = u64::MAX;
        if now_ns < self.wake_ns {
            return;
        }
        while let Some(sequence) = self.flight.lost(now_ns) {
            self.on_lost(sequence, now_ns);
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        ids.extend(self.operations.iter().filter(|(_, it)| due(it, now_ns).is_some()).map(|(id, _)| id));
        for &id in &ids {
            // An earlier operation of the list may have changed this one.
            match self.operations.get(id).and_then(|operation| due(operation, now_ns)) {
                Some(Due::End) => self.end_late(id, now_ns),
                Some(Due::Send) => self.assign(id, now_ns, 0),
                Some(Due::Repair) => self.repair(id, now_ns),
                None => {}
            }
        }
        self.ids = ids;
        self.leave_if_done(now_ns);
        self.wake_ns = self.next_ns(now_ns);
    }

    /// Assigns the operations of a lost request again.
    fn on_lost(&mut self, sequence: u64, now_ns: u64) {
        let Some(ids) = self.flight.remove(sequence) else { return };
        self.counters.lost += 1;
        if self.servers.has_others() && self.link.is_quiet(now_ns) {
            self.link.doubt();
        }
        for id in ids {
            let phase = self.operations.get(id).map(|operation| &operation.phase);
            if matches!(phase, Some(Phase::Sent { sequence: last, .. }) if *last == sequence) {
                self.assign(id, now_ns, 0);
            }
        }
    }

    fn end_late(&mut self, id: OpId, now_ns: u64) {
        let Some(operation) = self.operations.get(id) else { return };
        let was_sent = operation.was_sent;
        let is_busy = operation.busy_sequence > 0 && operation.unanswered == 0;
        let error = if is_busy { Error::Busy } else { Error::TimedOut { was_sent } };
        self.finish(id, Err(error), now_ns);
    }

    /// Repairs a stalled transfer: asks again for missing fragments, or which fragments have arrived.
    fn repair(&mut self, id: OpId, now_ns: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.attempts += 1;
        self.counters.repairs += 1;
        match &mut operation.phase {
            // Fragments came without the grant, which names the queue to ask.
            Phase::Fetching(fetch) if fetch.queue.is_none() => {
                operation.restarts += 1;
                if operation.restarts > RESTARTS_MAX {
                    return self.end_late(id, now_ns);
                }
                let attempts = operation.attempts;
                self.leave(id, now_ns);
                if let Some(operation) = self.operations.get_mut(id) {
                    operation.attempts = attempts;
                }
                return self.assign(id, now_ns, 0);
            }
            Phase::Fetching(fetch) => fetch.repair(),
            Phase::Storing(store) => store.repair(),
            _ => return,
        }
        self.wait_for_transfer(id, now_ns);
        self.queue_transfer(id);
    }

    /// The time of the next timer.
    fn next_ns(&self, now_ns: u64) -> u64 {
        let operations = self.operations.iter().map(|(_, operation)| next_of(operation));
        let link_ns = Some(self.link.next_ns(now_ns));
        let others = [self.flight.next_ns(), self.lanes.next_ns(now_ns), link_ns, self.servers.next_ns()];
        operations.chain(others.into_iter().flatten()).min().unwrap_or(u64::MAX)
    }
}

/// The action that is due for `operation`, if any.
fn due(operation: &Operation, now_ns: u64) -> Option<Due> {
    if operation.deadline_ns <= now_ns {
        return Some(Due::End);
    }
    match &operation.phase {
        Phase::Resting { until_ns } if *until_ns <= now_ns => Some(Due::Send),
        Phase::Fetching(fetch) if fetch.is_active && fetch.again_at_ns <= now_ns => Some(Due::Repair),
        Phase::Storing(store) if store.again_at_ns <= now_ns => Some(Due::Repair),
        _ => None,
    }
}

/// The time of the next action for `operation`.
fn next_of(operation: &Operation) -> u64 {
    let next_ns = match &operation.phase {
        Phase::Resting { until_ns } => *until_ns,
        Phase::Fetching(fetch) if fetch.is_active => fetch.again_at_ns,
        Phase::Storing(store) => store.again_at_ns,
        _ => u64::MAX,
    };
    next_ns.min(operation.deadline_ns)
}
