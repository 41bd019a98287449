//! Doubts: records that may be older ones of a key, and must be read before its item can leave memory.

use super::{Keeper, Now};
use crate::{
    fetch::{Busy, Fetch, Fetcher, ReadError, Verdict},
    tier::Tier,
};
use minos_base::KeyHash;
use minos_device::LaneOptions;
use minos_engine::{Candidates, Due, Lookup, Need};
use minos_flash::Place;
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

/// No key is empty.
const NO_KEY: &[u8] = b"";

/// Records that may be older ones of a key.
#[derive(Debug)]
pub(crate) struct Doubt {
    hash: KeyHash,
    key: Vec<u8>,
    seen: Candidates,
    purpose: Purpose,
}

/// What waits for the finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A dead item that hides them.
    Resolution,
    /// An item that has a copy, and no room in its bucket.
    Room,
    /// An item whose copy is written, and no room in its bucket.
    Crowd { token: u64, place: Place },
}

impl Doubt {
    pub(crate) fn of(due: &Due<'_>) -> Self {
        let purpose = if due.need == Need::Resolution { Purpose::Resolution } else { Purpose::Room };
        Self { hash: due.hash, key: due.key.to_vec(), seen: due.doubts.clone(), purpose }
    }
}

/// Reads the records of doubts.
#[derive(Debug)]
pub(crate) struct Examiner {
    fetcher: Fetcher,
    /// Doubts that are to be read.
    new: Vec<Doubt>,
    /// Those that are being read, by number.
    under_way: HashMap<u64, Purpose>,
    hashes: HashSet<KeyHash>,
    crowded: Vec<(u64, Place)>,
    next: u64,
}

impl Examiner {
    pub(crate) fn new(tier: &Arc<Tier>) -> io::Result<Self> {
        let options = LaneOptions { depth: 32, threads: 1, ..tier.options.read_lane };
        Ok(Self {
            fetcher: Fetcher::new(Arc::clone(tier), &options)?,
            new: Vec::new(),
            under_way: HashMap::new(),
            hashes: HashSet::new(),
            crowded: Vec::new(),
            next: 0,
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty() || !self.crowded.is_empty()
    }

    /// Asks for the records of a doubt, unless those of its hash are being read.
    pub(crate) fn ask(&mut self, doubt: Doubt) {
        if self.hashes.insert(doubt.hash) {
            self.new.push(doubt);
        }
    }

    /// An item's copy is written, and finds no room in its bucket.
    pub(crate) fn crowded(&mut self, token: u64, place: Place) {
        self.crowded.push((token, place));
    }

    /// Begins to read; what finds no buffer is asked for again by the next walk.
    fn start(&mut self) -> io::Result<bool> {
        let did = !self.new.is_empty();
        for Doubt { hash, key, seen, purpose } in std::mem::take(&mut self.new) {
            let epoch = self.fetcher.enter();
            self.next += 1;
            match self.fetcher.start((self.next, epoch), (hash, &key), &seen) {
                Ok(()) => drop(self.under_way.insert(self.next, purpose)),
                Err(Busy) => {
                    self.hashes.remove(&hash);
                    if let Purpose::Crowd { token, place } = purpose {
                        self.crowded.push((token, place));
                    }
                }
            }
        }
        self.fetcher.submit(usize::MAX)?;
        Ok(did)
    }
}

impl Keeper {
    /// Reads the records of doubts.
    pub(super) fn examine(&mut self) -> io::Result<bool> {
        for (token, place) in std::mem::take(&mut self.examiner.crowded) {
            let Some((hash, key)) = self.flights.key_of(token) else { continue };
            let purpose = Purpose::Crowd { token, place };
            // The item itself is in memory: another key's look-up gives all records of its hash bits.
            match self.tier.engine.find_cold(hash, NO_KEY, 0) {
                Lookup::Cold(seen) => self.examiner.ask(Doubt { hash, key, seen, purpose }),
                Lookup::Hot | Lookup::Missing => self.written(token, place),
            }
            if !self.examiner.new.iter().any(|doubt| doubt.purpose == purpose) {
                // Those of its hash are being read, or were just settled.
                if self.flights.key_of(token).is_some() {
                    self.examiner.crowded(token, place);
                }
            }
        }
        self.examiner.start()
    }

    /// Drops the records that turned out to be older ones, and lets the items go.
    pub(super) fn take_findings(&mut self, now: Now) -> io::Result<bool> {
        let mut found = Vec::new();
        let (tier, counts) = (&self.tier, &mut self.counts);
        let Examiner { fetcher, under_way, hashes, .. } = &mut self.examiner;
        let ended = fetcher.poll(|fetch, _| {
            hashes.remove(&fetch.hash);
            counts.examined += fetch.seen.len() as u64;
            counts.unreadable += drop_own(tier, fetch);
            match under_way.remove(&fetch.tag) {
                Some(Purpose::Crowd { token, place }) => found.push((token, place)),
                Some(Purpose::Resolution) => {
                    tier.engine.resolve(fetch.hash, &fetch.key, &fetch.seen, now.seconds);
                }
                Some(Purpose::Room) | None => {}
            }
        })?;
        found.into_iter().for_each(|(token, place)| self.written(token, place));
        Ok(ended > 0)
    }
}

/// Drops a key's own records, which something newer in memory hides; returns how many do not verify.
fn drop_own(tier: &Tier, fetch: &Fetch) -> u64 {
    let mut unreadable = 0;
    for (slot, verdict) in fetch.verdicts(tier) {
        match verdict {
            Verdict::Ours(record) => {
                tier.engine.drop_cold(fetch.hash, slot, Some(record.header.sequence));
            }
            // Nobody can read it, whosever it is.
            Verdict::Failed(ReadError::Rot) => {
                tier.engine.drop_cold(fetch.hash, slot, None);
                unreadable += 1;
            }
            Verdict::Other | Verdict::Failed(_) => {}
        }
    }
    unreadable
}
