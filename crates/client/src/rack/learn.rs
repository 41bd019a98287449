//! Getting the directory of the rack.

use std::{net::SocketAddr, time::Duration};

use minos_proto::native::{DIRECTORY_COPIES, DIRECTORY_WEIGHTS};
use minos_unit::{Shown, Weights};

use super::{FIRST, Learning, Router, map::Map, route::DIRECTORY};
use crate::{Error, Outcome, ReadBy, Request, Verb, core::below};

/// Time after a failure in which the directory is not asked for.
const REST_NS: u64 = 20_000_000;
/// Shares of the patience with a silent node that another directory may take; then another node is asked.
const PATIENCE: u64 = 4;
/// Most servers that a client has known, those that have left the directory included.
const SEATS_MAX: usize = 1024;

impl Router {
    /// Looks whether the server is a node of a rack, and asks for a directory that is wanted.
    pub(super) fn learn(&mut self, now_ns: u64) {
        match (self.learning, self.is_in_rack()) {
            (Learning::Nothing | Learning::Alone, Some(true)) => {
                self.learning = Learning::Wanted { from_ns: now_ns };
            }
            (Learning::Nothing, Some(false)) => {
                self.learning = Learning::Alone;
                self.parked.iter_mut().for_each(|parked| parked.due_ns = now_ns);
                self.unpark(now_ns);
            }
            _ => {}
        }
        if let Learning::Wanted { from_ns } = self.learning
            && from_ns <= now_ns
        {
            self.ask_directory(now_ns);
        }
    }

    /// Asks for a newer directory.
    pub(super) fn want_directory(&mut self, now_ns: u64) {
        if self.learning == Learning::Known {
            self.learning = Learning::Wanted { from_ns: now_ns };
        }
    }

    /// Looks whether the last answer from a seat tells of a newer directory, or of newer weights.
    pub(super) fn hear(&mut self, seat: usize, now_ns: u64) {
        let Some(map) = &self.map else { return };
        let (epoch, version) = self.seats[seat].core.news();
        let is_news = epoch > map.epoch() || version > self.weights();
        if is_news && self.learning == Learning::Known {
            self.learning = Learning::Wanted { from_ns: now_ns.max(self.rests_until_ns) };
            self.teller = Some(seat);
        }
    }

    fn ask_directory(&mut self, now_ns: u64) {
        let request = Request::new(Verb::Directory, Vec::new()).tag(DIRECTORY);
        let copies = if self.config.read_by == ReadBy::Copies { DIRECTORY_COPIES } else { 0 };
        let request = Request { flags: DIRECTORY_WEIGHTS | copies, ..request };
        let teller = self.teller.take().filter(|&seat| !self.seats[seat].is_away());
        let (seat, request) = match &self.map {
            None => (FIRST, request),
            Some(_) => {
                let patience = Duration::from_nanos(self.failover_ns.saturating_mul(PATIENCE));
                (teller.or_else(|| self.awake()).unwrap_or(FIRST), request.timeout(patience))
            }
        };
        self.learning = match self.seats[seat].core.submit(request, now_ns) {
            Ok(_) => Learning::Asked,
            Err(_) => Learning::Wanted { from_ns: now_ns.saturating_add(REST_NS) },
        };
    }

    /// Draws a node that answers.
    pub(super) fn awake(&mut self) -> Option<usize> {
        let seats = self.map.as_ref()?.seats();
        let awake: Vec<usize> = seats.filter(|&seat| !self.seats[seat].is_away()).collect();
        awake.get(below(awake.len() as u64, &mut self.dice) as usize).copied()
    }

    /// Takes over the directory that has come, or asks again.
    pub(super) fn on_directory(&mut self, result: Result<Outcome, Error>, now_ns: u64) {
        let shown = match result {
            Ok(Outcome::Text(bytes)) => Shown::decode(&bytes).ok(),
            _ => None,
        };
        self.rests_until_ns = now_ns.saturating_add(REST_NS);
        match shown {
            Some(shown) => {
                self.learning = Learning::Known;
                self.adopt(&shown, now_ns);
                self.weigh(shown.weights);
            }
            None => self.learning = Learning::Wanted { from_ns: self.rests_until_ns },
        }
    }

    /// Goes by another directory from now on, unless the one at hand is newer.
    fn adopt(&mut self, shown: &Shown, now_ns: u64) {
        let Some(welcome) = self.seats[FIRST].core.directory() else { return };
        let direction_seed = welcome.direction_seed;
        if self.map.as_ref().is_some_and(|map| map.epoch() >= shown.directory.epoch()) {
            return;
        }
        self.seats[FIRST].core.stay();
        let mut map = Map::new(&shown.directory, direction_seed, |address| self.seat_for(address, now_ns));
        if self.config.read_by == ReadBy::Copies {
            map.note_copies(shown);
        }
        self.map = Some(map);
        self.parked.iter_mut().for_each(|parked| parked.due_ns = now_ns);
        self.unpark(now_ns);
    }

    /// Draws by weights from now on, by the newest that have come.
    fn weigh(&mut self, weights: Option<Weights>) {
        if let Some(weights) = weights.filter(|weights| weights.version() > self.weights()) {
            self.weights = Some(weights);
        }
        if let (Some(map), Some(weights)) = (&mut self.map, &self.weights) {
            map.weigh(weights);
        }
    }

    /// The seat of the node at an address, a new one if need be; `None` if the client's socket cannot reach it.
    fn seat_for(&mut self, address: SocketAddr, now_ns: u64) -> Option<usize> {
        if address.is_ipv4() != self.server().is_ipv4() {
            return None;
        }
        let known = self.seats.iter().position(|seat| seat.core.server() == address);
        known.or_else(|| {
            let seat = self.seat_at(address, now_ns).ok().filter(|_| self.seats.len() < SEATS_MAX)?;
            self.seats.push(seat);
            Some(self.seats.len() - 1)
        })
    }
}
