//! The node that executes an operation.

use minos_proto::native::padded;
use rand::rngs::SmallRng;

use super::{FIRST, Router, Seat, map::Unit};
use crate::{ReadBy, Request, core::below};

/// The destination of an operation.
pub(super) struct Choice {
    pub(super) seat: usize,
    /// True if another node of the unit could execute it.
    pub(super) is_movable: bool,
}

impl Router {
    /// The seat for an operation; `None` if its owner cannot be reached.
    pub(super) fn choose(&mut self, request: &Request) -> Option<Choice> {
        let fixed = |seat| Choice { seat, is_movable: false };
        let Some(map) = &mut self.map else { return Some(fixed(FIRST)) };
        if !request.verb.names_item() {
            let others = map.seats().find(|&seat| !self.seats[seat].is_away());
            let first = (!self.seats[FIRST].is_away()).then_some(FIRST);
            return Some(fixed(first.or(others).unwrap_or(FIRST)));
        }
        let (owner, unit) = map.owner(&request.key);
        if request.verb.writes() {
            return owner.map(fixed);
        }
        let unit = &mut map.units[unit];
        let bytes = padded(request.verb.opcode().head_bytes() + request.key.len());
        let seat = match &mut unit.batch {
            Some((seat, left_bytes)) if *left_bytes >= bytes && !self.seats[*seat].is_away() => {
                *left_bytes -= bytes;
                *seat
            }
            _ => {
                let seat = draw(unit, &self.seats, self.config.read_by, &mut self.dice)?;
                unit.batch = Some((seat, self.config.datagram_bytes_max.saturating_sub(bytes)));
                seat
            }
        };
        let is_movable = unit.seats.len() > 1 && !self.config.open_loop;
        Some(Choice { seat, is_movable })
    }

    /// Lets the next reads choose their nodes anew.
    pub(super) fn end_batches(&mut self) {
        if let Some(map) = &mut self.map {
            map.units.iter_mut().for_each(|unit| unit.batch = None);
        }
    }
}

/// Draws a node of a unit, one that answers if there is any.
fn draw(unit: &Unit, seats: &[Seat], by: ReadBy, dice: &mut SmallRng) -> Option<usize> {
    let awake = || unit.seats.iter().copied().filter(|&seat| !seats[seat].is_away());
    let count = awake().count() as u64;
    if count == 0 {
        return unit.seats.get(below(unit.seats.len() as u64, dice) as usize).copied();
    }
    let mut one = || awake().nth(below(count, dice) as usize);
    let first = one()?;
    Some(match by {
        ReadBy::Uniform => first,
        ReadBy::TwoChoices => {
            let second = one()?;
            let load = |seat: usize| seats[seat].core.unfinished();
            if load(second) < load(first) { second } else { first }
        }
    })
}
