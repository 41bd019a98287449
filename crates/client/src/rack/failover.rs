//! Reads leave a node that does not answer.

use super::{Router, route::PROBE};
use crate::{Request, Verb, core::OpId};

/// A read that another node could execute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    id: OpId,
    /// Its seat, and its name there.
    at: (usize, OpId),
    since_ns: u64,
    /// When the node has had its time.
    pub(super) due_ns: u64,
}

impl Watch {
    pub(super) fn new(id: OpId, at: (usize, OpId), since_ns: u64, patience_ns: u64) -> Self {
        Self { id, at, since_ns, due_ns: since_ns.saturating_add(patience_ns) }
    }
}

impl Router {
    /// Looks at the reads that have waited for long, and asks silent nodes whether they are back.
    pub(super) fn fail_over(&mut self, now_ns: u64) {
        while let Some(&watch) = self.watches.front() {
            let is_current = self.slots.get_mut(watch.id).is_some_and(|slot| slot.at == Some(watch.at));
            if is_current && watch.due_ns > now_ns {
                break;
            }
            self.watches.pop_front();
            if is_current {
                self.judge(watch, now_ns);
            }
        }
        let Some(map) = &self.map else { return };
        let away: Vec<usize> = map.seats().filter(|&seat| self.seats[seat].is_away()).collect();
        away.into_iter().for_each(|seat| self.probe(seat, now_ns));
    }

    /// Takes all reads from the node of this one, unless the node has said anything since. One that is stopping begins
    /// none.
    fn judge(&mut self, watch: Watch, now_ns: u64) {
        let (seat, _) = watch.at;
        let is_heard = self.seats[seat].core.heard_ns() >= watch.since_ns;
        if is_heard && !self.seats[seat].is_away() {
            self.watches.push_back(Watch::new(watch.id, watch.at, now_ns, self.failover_ns));
            return;
        }
        self.seats[seat].is_silent |= !is_heard;
        for id in self.slots.movable_at(seat) {
            self.take_away(id, now_ns);
        }
    }

    fn take_away(&mut self, id: OpId, now_ns: u64) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let Some((seat, inner)) = slot.at else { return };
        match self.seats[seat].core.withdraw(inner, now_ns) {
            Some(request) => {
                self.failed_over += 1;
                self.route(id, request, now_ns);
            }
            // Its large value is on its way.
            None => slot.is_movable = false,
        }
    }

    /// Asks a server for a sign of life.
    pub(super) fn probe(&mut self, seat: usize, now_ns: u64) {
        let seat = &mut self.seats[seat];
        if !seat.is_probed {
            let request = Request::new(Verb::Ping, Vec::new()).tag(PROBE);
            seat.is_probed = seat.core.submit(request, now_ns).is_ok();
        }
    }
}
