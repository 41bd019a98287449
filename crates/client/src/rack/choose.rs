//! The node that executes an operation.

use minos_proto::native::padded;
use rand::{RngExt, rngs::SmallRng};

use super::{
    FIRST, Router, Seat,
    map::{Holder, Map, Unit},
};
use crate::{ReadBy, Request, core::below};

/// The destination of an operation.
pub(super) struct Choice {
    pub(super) seat: usize,
    /// True if another node could execute it.
    pub(super) is_movable: bool,
    /// True if it reads a copy in another unit.
    pub(super) is_copy: bool,
}

impl Choice {
    /// A node that is the only one to execute it.
    pub(super) fn fixed(seat: usize) -> Self {
        Self { seat, is_movable: false, is_copy: false }
    }
}

impl Router {
    /// The seat for an operation; `None` if its owner cannot be reached.
    pub(super) fn choose(&mut self, request: &Request, now_ns: u64) -> Option<Choice> {
        let Some(map) = &mut self.map else { return Some(Choice::fixed(FIRST)) };
        if !request.verb.names_item() {
            let awake = || map.seats().filter(|&seat| !self.seats[seat].is_away());
            let first = awake().find(|&seat| seat == FIRST);
            let seat = first.or_else(|| awake().next()).or_else(|| map.seats().next());
            return Some(Choice::fixed(seat.unwrap_or(FIRST)));
        }
        let owner = map.owner(&request.key);
        if request.verb.writes() {
            return owner.seat.map(Choice::fixed);
        }
        let is_closed = !self.config.open_loop;
        if self.config.read_by == ReadBy::Copies
            && let Some(seat) = draw_copy(map, &owner, &self.seats, now_ns)
        {
            return Some(Choice { seat, is_movable: is_closed, is_copy: true });
        }
        let unit = &mut map.units[owner.unit];
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
        let is_movable = is_closed && unit.seats.len() > 1;
        Some(Choice { seat, is_movable, is_copy: false })
    }

    /// Lets the next reads choose their nodes anew.
    pub(super) fn end_batches(&mut self) {
        if let Some(map) = &mut self.map {
            map.units.iter_mut().for_each(|unit| unit.batch = None);
            if self.config.read_by == ReadBy::Copies {
                map.luck = self.dice.random();
            }
        }
    }
}

/// A copy of what this owner has, as often as each node that can answer is as likely as the others.
fn draw_copy(map: &Map, owner: &Holder, seats: &[Seat], now_ns: u64) -> Option<usize> {
    let copies = map.copies(owner.micro_shard).filter(|&seat| seats[seat].reads_copies(now_ns));
    let awake = map.units[owner.unit].seats.iter().filter(|&&seat| !seats[seat].is_away());
    let count = copies.clone().count() + awake.count();
    let drawn = (map.luck as usize).checked_rem(count)?;
    copies.into_iter().nth(drawn)
}

/// Draws a node of a unit, one that answers if there is any.
pub(super) fn draw(unit: &Unit, seats: &[Seat], by: ReadBy, dice: &mut SmallRng) -> Option<usize> {
    if by == ReadBy::Weighted
        && let Some(seat) = draw_by_weight(unit, seats, dice)
    {
        return Some(seat);
    }
    let awake = || unit.seats.iter().copied().filter(|&seat| !seats[seat].is_away());
    let count = awake().count() as u64;
    if count == 0 {
        return unit.seats.get(below(unit.seats.len() as u64, dice) as usize).copied();
    }
    let mut one = || awake().nth(below(count, dice) as usize);
    let first = one()?;
    Some(match by {
        ReadBy::Weighted | ReadBy::Uniform | ReadBy::Copies => first,
        ReadBy::TwoChoices => {
            let second = one()?;
            let load = |seat: usize| seats[seat].core.unfinished();
            if load(second) < load(first) { second } else { first }
        }
    })
}

/// Draws a node that answers, by its weight; none if there are no weights, or none such has one.
fn draw_by_weight(unit: &Unit, seats: &[Seat], dice: &mut SmallRng) -> Option<usize> {
    let drawn = unit.seats[unit.alias.as_ref()?.pick(dice.random())];
    if !seats[drawn].is_away() {
        return Some(drawn);
    }
    // Its reads go to the others in proportion.
    let weighed = unit.seats.iter().copied().zip(&unit.weights).filter(|(seat, _)| !seats[*seat].is_away());
    let sum: u64 = weighed.clone().map(|(_, weight)| u64::from(*weight)).sum();
    let mut left = below(sum, dice);
    let mut found = weighed.filter(|(_, weight)| **weight > 0).skip_while(|(_, weight)| {
        let is_beyond = left >= u64::from(**weight);
        left = left.saturating_sub(u64::from(**weight));
        is_beyond
    });
    found.next().map(|(seat, _)| seat)
}
