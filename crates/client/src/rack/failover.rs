//! Operations leave a node that does not answer: reads at once, others once the rack has replaced it.

use super::{Router, route::PROBE};
use crate::{Request, Verb, core::OpId};

/// An operation that its node has a while to answer.
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
    /// Looks at the operations that have waited for long, and asks silent nodes whether they are back.
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

    /// Takes all reads from the node of this operation, unless the node has said anything since. One that is stopping
    /// begins none. What no other node can execute stays until there is a directory that names one.
    fn judge(&mut self, watch: Watch, now_ns: u64) {
        let Some(slot) = self.slots.get_mut(watch.id) else { return };
        let (is_movable, seat) = (slot.is_movable, &mut self.seats[watch.at.0]);
        let is_heard = seat.core.heard_ns() >= watch.since_ns;
        let was_away = seat.is_away();
        seat.is_silent |= !is_heard;
        let is_away = seat.is_away();
        if is_away && (is_movable || !was_away) {
            for id in self.slots.movable_at(watch.at.0) {
                self.take_away(id, now_ns);
            }
        }
        if is_away {
            self.ask_for_news(now_ns);
        }
        if is_away && self.has_successor(watch.at, is_heard) {
            self.take_away(watch.id, now_ns);
        } else if !is_away || !is_movable {
            self.watches.push_back(Watch::new(watch.id, watch.at, now_ns, self.failover_ns));
        }
    }

    /// True if by now the directory names another node for an operation, which may leave this one.
    fn has_successor(&self, (seat, inner): (usize, OpId), is_heard: bool) -> bool {
        let request = self.seats[seat].core.leavable(inner, !is_heard);
        request.zip(self.map.as_ref()).is_some_and(|(request, map)| !map.serves(seat, request))
    }

    fn take_away(&mut self, id: OpId, now_ns: u64) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let Some((seat, inner)) = slot.at else { return };
        slot.was_sent |= self.seats[seat].core.was_sent(inner);
        match self.seats[seat].core.withdraw(inner, now_ns) {
            Some(request) => {
                self.failed_over += 1;
                self.route(id, request, now_ns);
            }
            // Its large value is on its way.
            None => slot.is_movable = false,
        }
    }

    /// Asks a node that answers. Its answer tells whether there is another directory, in which somebody else may own what
    /// a silent node has.
    fn ask_for_news(&mut self, now_ns: u64) {
        if self.asks_from_ns <= now_ns
            && let Some(seat) = self.awake()
        {
            self.asks_from_ns = now_ns.saturating_add(self.failover_ns);
            self.probe(seat, now_ns);
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
