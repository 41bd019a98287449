//! Requests in flight.

use super::OpId;

/// A place for a request that was sent.
#[derive(Debug, Default)]
struct Sent {
    /// Its number; 0 if the place is free.
    sequence: u64,
    /// Its operations. Keeps its memory, so that another request needs no allocation.
    ids: Vec<OpId>,
    lost_at_ns: u64,
    /// Operations in it without an answer.
    left: usize,
}

/// Requests that are not completely answered.
#[derive(Debug, Default)]
pub(super) struct Flight {
    places: Vec<Sent>,
    free: Vec<u32>,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// A free place, for [`Flight::depart`] or [`Flight::give_back`].
    pub(super) fn take_place(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.places.push(Sent::default());
            self.places.len() as u32 - 1
        })
    }

    /// Takes back a place without operations.
    pub(super) fn give_back(&mut self, at: u32) {
        self.free.push(at);
    }

    /// Adds an operation to the request at this place, which has not departed.
    #[inline]
    pub(super) fn add(&mut self, at: u32, id: OpId) {
        self.places[at as usize].ids.push(id);
    }

    /// Records that the request at this place was sent with this number, which is not 0.
    pub(super) fn depart(&mut self, at: u32, sequence: u64, lost_at_ns: u64) {
        let sent = &mut self.places[at as usize];
        (sent.sequence, sent.lost_at_ns, sent.left) = (sequence, lost_at_ns, sent.ids.len());
    }

    /// Marks one operation of the request with this number, at this place, as answered.
    #[inline]
    pub(super) fn answered(&mut self, at: u32, sequence: u64) {
        let Some(sent) = self.places.get_mut(at as usize) else { return };
        if sent.sequence != sequence {
            return;
        }
        sent.left = sent.left.saturating_sub(1);
        if sent.left == 0 {
            sent.sequence = 0;
            sent.ids.clear();
            self.free.push(at);
        }
    }

    /// Removes the request with this number; returns its operations.
    pub(super) fn remove(&mut self, sequence: u64) -> Option<Vec<OpId>> {
        let at = self.places.iter().position(|sent| sent.sequence == sequence && sequence != 0)?;
        self.free.push(at as u32);
        let sent = &mut self.places[at];
        sent.sequence = 0;
        Some(std::mem::take(&mut sent.ids))
    }

    /// The number of the first request that counts as lost by now.
    pub(super) fn lost(&self, now_ns: u64) -> Option<u64> {
        self.sent().filter(|sent| sent.lost_at_ns <= now_ns).map(|sent| sent.sequence).min()
    }

    /// The earliest time at which a request counts as lost.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.sent().map(|sent| sent.lost_at_ns).min()
    }

    fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.places.iter().filter(|sent| sent.sequence != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flight of requests with two operations each, by their numbers and times.
    fn flight(requests: &[(u64, u64)]) -> Flight {
        let mut flight = Flight::default();
        for &(sequence, lost_at_ns) in requests {
            let at = flight.take_place();
            [OpId(sequence as u32), OpId(0)].into_iter().for_each(|id| flight.add(at, id));
            flight.depart(at, sequence, lost_at_ns);
        }
        flight
    }

    #[test]
    fn a_request_is_in_flight_until_all_its_operations_are_answered() {
        let mut flight = flight(&[(5, 100), (6, 90)]);
        flight.answered(0, 5);
        assert_eq!(flight.len(), 2);
        flight.answered(0, 5);
        assert_eq!((flight.len(), flight.next_ns()), (1, Some(90)));
        // The place belongs to another request now, and late answers to the first do not count.
        assert_eq!(flight.take_place(), 0);
        flight.add(0, OpId(1));
        flight.depart(0, 7, 80);
        flight.answered(0, 5);
        assert_eq!(flight.len(), 2);
        assert_eq!(flight.remove(7), Some(vec![OpId(1)]));
        let at = flight.take_place();
        flight.give_back(at);
        assert_eq!(flight.len(), 1);
    }

    #[test]
    fn lost_requests_come_in_the_order_of_their_numbers() {
        let mut flight = flight(&[(9, 10), (3, 20), (7, 30)]);
        assert_eq!((flight.lost(9), flight.lost(10), flight.lost(25)), (None, Some(9), Some(3)));
        assert_eq!(flight.remove(3), Some(vec![OpId(3), OpId(0)]));
        assert_eq!((flight.remove(3), flight.remove(0)), (None, None));
        assert_eq!((flight.lost(30), flight.len()), (Some(7), 2));
    }
}
