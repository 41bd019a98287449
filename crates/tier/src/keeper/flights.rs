//! Appends that are not durable yet.

use crate::tier::Tier;
use minos_base::{KeyHash, Seconds};
use minos_engine::{Ticket, Written};
use minos_flash::{Log, Place, Put, Refusal, Tombstone, format::Stream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Keeper;

/// An item as it was appended, to be appended again if its write fails.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) stream: Stream,
    pub(crate) hash: KeyHash,
    pub(crate) key: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
    pub(crate) sequence: u64,
    pub(crate) expiry: Seconds,
    pub(crate) flags: u32,
    pub(crate) marks: u8,
    /// The record that it supersedes, which needs no tombstone then.
    pub(crate) replaces: Option<Place>,
}

impl Kept {
    pub(crate) fn append(&self, log: &mut Log, token: u64) -> Result<Place, Refusal> {
        let Self { stream, hash, ref key, ref payload, sequence, expiry, flags, marks, replaces } = *self;
        let put = Put { hash, key, value: payload, sequence, expiry, flags, marks, replaces, token };
        log.append(stream, &put)
    }
}

/// An append.
#[derive(Debug)]
enum Freight {
    /// Of an item, with its first place. A store keeps it until it is written.
    Copy(Ticket, Place, Option<Box<Kept>>),
    Grave(Tombstone),
}

#[derive(Debug)]
struct Flight {
    freight: Freight,
    /// Bytes that it keeps.
    bytes: usize,
    is_durable: bool,
}

/// All appends that are not durable yet, by token.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: BTreeMap<u64, Flight>,
    unwritten: BTreeSet<u64>,
    /// Those whose write failed.
    failed: VecDeque<u64>,
    last_token: u64,
    /// The last one when everything was removed.
    emptied_token: u64,
    /// Copies given up so far after a failed write; the next walk copies their items.
    given_up: u64,
    /// Bytes of items that are not written.
    bytes: usize,
}

impl Flights {
    pub(crate) fn len(&self) -> usize {
        self.flights.len()
    }

    /// True if nothing has yet to be written.
    pub(crate) fn are_written(&self) -> bool {
        self.unwritten.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies given up so far: nobody waits for their tokens, and they are not durable.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    pub(crate) fn last_token(&self) -> u64 {
        self.last_token
    }

    pub(crate) fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// True if nothing up to this token has yet to be written.
    pub(crate) fn is_written(&self, token: u64) -> bool {
        self.unwritten.first().is_none_or(|first| *first > token)
    }

    /// True if everything up to this token is durable.
    pub(crate) fn is_durable(&self, token: u64) -> bool {
        self.flights.first_key_value().is_none_or(|(first, _)| *first > token)
    }

    pub(crate) fn copy(
        &mut self,
        token: u64,
        (ticket, place): (Ticket, Place),
        bytes: usize,
        kept: Option<Box<Kept>>,
    ) {
        self.bytes += bytes;
        self.unwritten.insert(token);
        let freight = Freight::Copy(ticket, place, kept);
        self.flights.insert(token, Flight { freight, bytes, is_durable: false });
    }

    pub(crate) fn bury(&mut self, token: u64, tombstone: Tombstone) {
        self.unwritten.insert(token);
        let freight = Freight::Grave(tombstone);
        self.flights.insert(token, Flight { freight, bytes: 0, is_durable: false });
    }

    pub(crate) fn durable(&mut self, token: u64) {
        if self.unwritten.contains(&token) {
            if let Some(flight) = self.flights.get_mut(&token) {
                flight.is_durable = true;
            }
            return;
        }
        self.flights.remove(&token);
    }

    pub(crate) fn failed(&mut self, token: u64) {
        self.failed.push_back(token);
    }

    /// The flight is written, and the index has been told.
    fn settle(&mut self, token: u64) {
        self.unwritten.remove(&token);
        let Some(flight) = self.flights.get_mut(&token) else { return };
        self.bytes -= std::mem::take(&mut flight.bytes);
        if let Freight::Copy(_, _, kept) = &mut flight.freight {
            *kept = None;
        }
        if flight.is_durable {
            self.flights.remove(&token);
        }
    }

    /// Forgets the flight.
    fn end(&mut self, token: u64) {
        self.settle(token);
        self.flights.remove(&token);
    }

    /// Everything was removed: what is under way is not appended again if its write fails.
    pub(crate) fn empty(&mut self) {
        self.emptied_token = self.last_token;
    }

    /// Hash and key of an item that is on its way.
    pub(crate) fn key_of(&self, token: u64) -> Option<(KeyHash, Vec<u8>)> {
        match &self.flights.get(&token)?.freight {
            Freight::Copy(_, _, Some(kept)) => Some((kept.hash, kept.key.to_vec())),
            _ => None,
        }
    }
}

impl Keeper {
    /// The write of an append is complete.
    pub(super) fn written(&mut self, token: u64, place: Place) {
        let Some(flight) = self.flights.flights.get(&token) else { return };
        let result = match flight.freight {
            Freight::Copy(ticket, ..) => self.tier.engine.written(&ticket, place),
            Freight::Grave(_) => Written::Linked,
        };
        match result {
            Written::Linked | Written::Superseded => self.flights.settle(token),
            Written::Crowded => self.examiner.crowded(token, place),
        }
    }

    /// Appends what failed once more. A cache gives the items up instead.
    pub(super) fn append_again(&mut self) -> bool {
        let (mut did, mut waiting) = (false, VecDeque::new());
        while let Some(token) = self.flights.failed.pop_front() {
            let Some(flight) = self.flights.flights.get(&token) else {
                self.log.answered();
                continue;
            };
            let is_copy = matches!(flight.freight, Freight::Copy(..));
            let appended = match &flight.freight {
                // A power loss would bring the item back.
                freight if token <= self.flights.emptied_token => {
                    if let Freight::Copy(ticket, place, _) = freight {
                        self.tier.engine.failed(ticket, *place);
                    }
                    Ok(false)
                }
                freight => again(freight, &self.tier, &mut self.log, token),
            };
            let is_over = match appended {
                Ok(is_on_its_way) => !is_on_its_way,
                Err(Refusal::TooLarge { .. }) => true,
                Err(_) => {
                    waiting.push_back(token);
                    // The copies of a cache need no room, and are given up before their segment is used again.
                    if self.tier.options.is_lossless { break } else { continue }
                }
            };
            if is_over {
                self.flights.end(token);
                self.flights.given_up += u64::from(is_copy);
            }
            self.log.answered();
            self.counts.appends_again += u64::from(!is_over);
            did = true;
        }
        waiting.append(&mut self.flights.failed);
        self.flights.failed = waiting;
        if did {
            // Someone may wait for them.
            self.flush();
        }
        did
    }
}

/// Appends once more; false if there is nothing to append any more.
fn again(freight: &Freight, tier: &Tier, log: &mut Log, token: u64) -> Result<bool, Refusal> {
    match freight {
        Freight::Copy(_, _, Some(kept)) => {
            kept.append(log, token)?;
            // Its bytes were counted out before.
            kept.replaces.into_iter().for_each(|place| log.credit(place));
            Ok(true)
        }
        Freight::Copy(ticket, place, None) => {
            tier.engine.failed(ticket, *place);
            Ok(false)
        }
        Freight::Grave(tombstone) => {
            let is_needed = log.bury(tombstone, token)?;
            if tombstone.is_forgotten {
                log.credit(tombstone.place);
            }
            Ok(is_needed)
        }
    }
}
