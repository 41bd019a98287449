//! Doubts: records that may be older ones of a key. Those of a dead item must be read before it can leave memory;
//! those of an item that was copied hold room on the device until they are.

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
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

/// Items are not copied while the records of so many copied ones are yet to be read.
const COPIED_MAX: usize = 1024;

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
    /// An item that was just copied: nothing else would ever find its older records, and a store of cold items that are
    /// overwritten would fill the device with them.
    Copied,
    /// An item whose copy is written, and no room in its bucket.
    Crowd { token: u64, place: Place },
}

impl Doubt {
    pub(crate) fn of(due: &Due<'_>) -> Self {
        let purpose = match due.need {
            Need::Resolution => Purpose::Resolution,
            Need::Room => Purpose::Room,
            Need::Copy => Purpose::Copied,
        };
        Self { hash: due.hash, key: due.key.to_vec(), seen: due.doubts.clone(), purpose }
    }
}

/// Reads the records of doubts.
#[derive(Debug)]
pub(crate) struct Examiner {
    fetcher: Fetcher,
    /// Doubts that are to be read.
    new: Vec<Doubt>,
    /// Those for whom nobody asks again.
    copied: VecDeque<Doubt>,
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
            copied: VecDeque::new(),
            under_way: HashMap::new(),
            hashes: HashSet::new(),
            crowded: Vec::new(),
            next: 0,
        })
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way.is_empty() || !self.crowded.is_empty() || !self.copied.is_empty()
    }

    /// True if no more items are to be copied that have doubts.
    pub(crate) fn is_full(&self) -> bool {
        self.copied.len() >= COPIED_MAX
    }

    /// Asks for the records of a doubt. Unless it is of a copied item, it is forgotten if those of its hash are being
    /// read: the next walk asks again.
    pub(crate) fn ask(&mut self, doubt: Doubt) {
        if doubt.purpose == Purpose::Copied {
            self.copied.push_back(doubt);
        } else if self.hashes.insert(doubt.hash) {
            self.new.push(doubt);
        }
    }

    /// Sleeps until a read has ended, or the time is over.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.fetcher.wait(1, timeout)
    }

    /// True if reads are under way.
    pub(crate) fn is_reading(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// An item's copy is written, and finds no room in its bucket.
    pub(crate) fn crowded(&mut self, token: u64, place: Place) {
        self.crowded.push((token, place));
    }

    /// Begins to read; what finds no buffer waits for the next turn, or is asked for again by the next walk.
    fn start(&mut self) -> io::Result<bool> {
        let mut did = !self.new.is_empty();
        for doubt in std::mem::take(&mut self.new) {
            if self.start_one(&doubt).is_err() {
                self.hashes.remove(&doubt.hash);
                if let Purpose::Crowd { token, place } = doubt.purpose {
                    self.crowded.push((token, place));
                }
            }
        }
        while let Some(doubt) = self.copied.pop_front() {
            let is_free = self.hashes.insert(doubt.hash);
            if !is_free || self.start_one(&doubt).is_err() {
                if is_free {
                    self.hashes.remove(&doubt.hash);
                }
                self.copied.push_front(doubt);
                break;
            }
            did = true;
        }
        self.fetcher.submit(usize::MAX)?;
        Ok(did)
    }

    /// Begins to read a doubt's records, if a buffer is free.
    fn start_one(&mut self, doubt: &Doubt) -> Result<(), Busy> {
        let epoch = self.fetcher.enter();
        self.next += 1;
        self.fetcher.start((self.next, epoch), (doubt.hash, &doubt.key), &doubt.seen, u64::MAX)?;
        self.under_way.insert(self.next, doubt.purpose);
        Ok(())
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
        let Examiner { fetcher, under_way, hashes, copied, .. } = &mut self.examiner;
        fetcher.reap()?;
        let ended = fetcher.poll(usize::MAX, |fetch, _| {
            hashes.remove(&fetch.hash);
            counts.examined += fetch.seen.len() as u64;
            let Findings { known, beyond_room, unreadable } = drop_own(tier, fetch);
            counts.unreadable += unreadable;
            let purpose = under_way.remove(&fetch.tag);
            match purpose {
                Some(Purpose::Crowd { token, place }) => found.push((token, place)),
                Some(Purpose::Resolution) => {
                    // What is not known may be an older one of the key; the next walk asks again.
                    tier.engine.resolve(fetch.hash, &fetch.key, &known, now.seconds);
                }
                Some(Purpose::Copied | Purpose::Room) | None => {}
            }
            let waits = matches!(purpose, Some(Purpose::Resolution | Purpose::Copied));
            if waits && !beyond_room.is_empty() && beyond_room.len() < fetch.seen.len() {
                let (hash, key) = (fetch.hash, fetch.key.clone());
                copied.push_back(Doubt { hash, key, seen: beyond_room, purpose: Purpose::Copied });
            }
        });
        found.into_iter().for_each(|(token, place)| self.written(token, place));
        Ok(ended > 0)
    }
}

/// What the records of a doubt are.
#[derive(Default)]
struct Findings {
    /// Those of which it is known, whether they were dropped or are other keys'.
    known: Candidates,
    /// Those that had no room in the buffers beside the others, to be read by themselves.
    beyond_room: Candidates,
    /// The number of those that do not verify.
    unreadable: u64,
}

/// Drops a key's own records, which something newer in memory hides.
fn drop_own(tier: &Tier, fetch: &Fetch) -> Findings {
    let mut findings = Findings::default();
    for (slot, verdict) in fetch.verdicts(tier) {
        match verdict {
            Verdict::Ours(record) => {
                tier.engine.drop_cold(fetch.hash, slot, Some(record.header.sequence));
            }
            // Nobody can read it, whosever it is.
            Verdict::Failed(ReadError::Rot) => {
                tier.engine.drop_cold(fetch.hash, slot, None);
                findings.unreadable += 1;
            }
            Verdict::Other => {}
            Verdict::Failed(ReadError::TooLarge) => {
                findings.beyond_room.push(slot);
                continue;
            }
            Verdict::Failed(ReadError::Device | ReadError::Gone) => continue,
        }
        findings.known.push(slot);
    }
    findings
}
