//! Copies the items of micro-shards from nodes of other machines, which show them when they are asked.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use minos_base::{Clock, KeyHash};
use minos_engine::Mode;
use minos_rack::{MicroShard, ServerId};
use minos_unit::CopyJob;

use super::{
    READS_MAX,
    copy::{Copier, CopyError},
    transport::Calls,
    wire::{Group, Item, REPLY_BYTES_MAX, Reply, Request},
};
use crate::rack::{frames, owners::shifted, stream::ControlStream};

/// Time that an owner has for a reply.
const REPLY_MAX: Duration = Duration::from_secs(1);
/// Time in which an owner that did not reply is not asked: copies from others, for which writers may wait, go on.
const REST: Duration = Duration::from_millis(500);
/// Hashes in one request.
const HASHES_MAX: usize = 512;

/// The streams on which a node asks others for items.
pub(crate) struct Afar {
    calls: Arc<Calls>,
    /// The first line of a stream.
    hello: String,
    clock: Clock,
    owners: HashMap<ServerId, Owner>,
}

/// A node that is asked.
#[derive(Default)]
struct Owner {
    stream: Option<ControlStream>,
    /// When it did not reply last.
    failed: Option<Instant>,
    /// Seconds that its clock shows more than this node's.
    ahead_s: i64,
}

impl Afar {
    pub(super) fn new(calls: Arc<Calls>, hello: String, clock: Clock) -> Self {
        Self { calls, hello, clock, owners: HashMap::new() }
    }

    /// Asks a node; expiries in the reply are on this node's clock.
    fn ask(&mut self, from: ServerId, request: &Request) -> io::Result<Reply> {
        let owner = self.owners.entry(from).or_default();
        if owner.failed.is_some_and(|failed| failed.elapsed() < REST) {
            return Err(io::Error::other("it did not reply a moment ago"));
        }
        let mut reply = owner.exchange(request);
        // A walk goes on only where it has begun; otherwise the node may have restarted since it was asked last.
        let is_late = reply.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if reply.is_err() && !is_late && *request != Request::More {
            reply = owner
                .call(from, &self.calls, &self.hello, &self.clock)
                .and_then(|()| owner.exchange(request));
        }
        owner.failed = reply.is_err().then(Instant::now);
        reply
    }
}

impl Owner {
    fn call(&mut self, from: ServerId, calls: &Calls, hello: &str, clock: &Clock) -> io::Result<()> {
        let mut stream = calls.call(from, hello)?;
        stream.set_receive_max(Some(REPLY_MAX))?;
        let zero = frames::receive_bytes(&mut stream, 8)?;
        let zero =
            zero.first_chunk().map(|zero| u64::from_le_bytes(*zero)).ok_or(io::ErrorKind::InvalidData)?;
        self.ahead_s = clock.zero_unix_s().cast_signed().saturating_sub(zero.cast_signed());
        self.stream = Some(stream);
        Ok(())
    }

    fn exchange(&mut self, request: &Request) -> io::Result<Reply> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        frames::send_bytes(&mut stream, &request.encode())?;
        let mut reply = Reply::decode(&frames::receive_bytes(&mut stream, REPLY_BYTES_MAX)?)?;
        for meta in reply.items.iter_mut().map(|item| &mut item.meta).filter(|meta| meta.expiry != 0) {
            meta.expiry = shifted(meta.expiry, self.ahead_s.saturating_neg());
        }
        self.stream = Some(stream);
        Ok(reply)
    }
}

impl<M: Mode> Copier<M> {
    /// True if the node's items cannot be read from here, or not all of them.
    pub(super) fn is_far(&self, node: ServerId) -> bool {
        M::HAS_FLASH || self.rack.config.nodes.get(node.0 as usize).is_some_and(|node| node.path().is_none())
    }

    /// Copies all items of some micro-shards; those that are not whole are in `failed`.
    pub(super) fn walk_afar(
        &mut self,
        from: ServerId,
        jobs: &BTreeMap<MicroShard, CopyJob>,
        failed: &mut BTreeSet<MicroShard>,
    ) -> Result<(), CopyError> {
        let wanted = jobs.values().map(|job| (job.id.micro_shard.0, job.epoch)).collect();
        let mut request = Request::Walk(wanted);
        while !self.stop.is_requested() {
            let flushes = self.store.flushes();
            let reply = self.afar.ask(from, &request)?;
            failed.extend(reply.lost.into_iter().map(MicroShard));
            for item in reply.items {
                let micro_shard = MicroShard(item.tag);
                let Some(job) = jobs.get(&micro_shard).filter(|_| !failed.contains(&micro_shard)) else {
                    continue;
                };
                if let Err(error) = self.keep(job, item, flushes) {
                    tracing::warn!(micro_shard = micro_shard.0, %error, "a micro-shard is not copied");
                    failed.insert(micro_shard);
                }
            }
            if reply.is_last {
                return Ok(());
            }
            self.take_in(jobs, failed);
            request = Request::More;
        }
        Err(CopyError::Unreadable)
    }

    /// Copies the items of some keys of several micro-shards, or removes those that are gone.
    pub(super) fn batch_afar(&mut self, from: ServerId, jobs: &[CopyJob]) -> Result<(), CopyError> {
        let of_job = |job| hashes_of(job).iter().map(move |hash| (job, *hash));
        let hashes: Vec<(&CopyJob, KeyHash)> = jobs.iter().flat_map(of_job).collect();
        let mut left = hashes.as_slice();
        while !left.is_empty() {
            let asked = &left[..left.len().min(HASHES_MAX)];
            let flushes = self.store.flushes();
            let reply = self.afar.ask(from, &question(asked))?;
            let answered = asked.get(..reply.answered as usize).filter(|answered| !answered.is_empty());
            let answered = answered.filter(|_| reply.lost.is_empty()).ok_or(CopyError::Unreadable)?;
            self.take_items(answered, reply.items, flushes)?;
            left = &left[answered.len()..];
        }
        Ok(())
    }

    /// Takes in the items with these hashes; there are no others at their owner.
    fn take_items(
        &mut self,
        asked: &[(&CopyJob, KeyHash)],
        items: Vec<Item>,
        flushes: u64,
    ) -> Result<(), CopyError> {
        let mut there = vec![Vec::new(); asked.len()];
        for item in &items {
            let position = item.tag as usize;
            let hash = asked.get(position).map(|(_, hash)| *hash);
            if hash != Some(self.store.hash(&item.key)) {
                return Err(CopyError::Unreadable);
            }
            there[position].push(item.key.as_slice());
        }
        for ((job, hash), there) in asked.iter().zip(&there) {
            self.forget(job.id.micro_shard, *hash, there)?;
        }
        items.into_iter().try_for_each(|item| self.keep(asked[item.tag as usize].0, item, flushes))
    }

    /// Stores an item, after the rest of its value has come, or all of it again if there was a flush since `flushes`.
    fn keep(&mut self, job: &CopyJob, item: Item, flushes: u64) -> Result<(), CopyError> {
        let Item { meta, value_bytes, key, part, .. } = item;
        if self.rack.micro_shard(&key) != job.id.micro_shard.0 {
            return Err(CopyError::Unreadable);
        }
        let hash = self.store.hash(&key);
        if part.len() as u64 == value_bytes
            && self.insert(hash, &key, (&part, meta), self.clock.seconds(), flushes)?
        {
            return Ok(());
        }
        for _ in 0..READS_MAX {
            if self.fetch(job, hash, &key)? {
                return Ok(());
            }
        }
        Err(CopyError::Unreadable)
    }

    /// Fetches a value piece by piece into its place; false if it was replaced or flushed meanwhile.
    fn fetch(&mut self, job: &CopyJob, hash: KeyHash, key: &[u8]) -> Result<bool, CopyError> {
        let flushes = self.store.flushes();
        let Some(first) = self.piece(job, key, 0)? else {
            self.remove(hash, key)?;
            return Ok(true);
        };
        let (value_bytes, cas) = (first.value_bytes, first.meta.cas);
        let mut reservation = self.with_room(|| self.store.reserve(hash, key, value_bytes))?;
        let (mut at, mut last) = (0, first);
        loop {
            let place =
                reservation.value_mut().get_mut(at..).and_then(|rest| rest.get_mut(..last.part.len()));
            place.ok_or(CopyError::Unreadable)?.copy_from_slice(&last.part);
            at += last.part.len();
            if at as u64 == value_bytes {
                break;
            }
            match self.piece(job, key, at as u64)? {
                Some(next)
                    if (next.value_bytes, next.meta.cas) == (value_bytes, cas) && !next.part.is_empty() =>
                {
                    last = next;
                }
                _ => return Ok(false),
            }
        }
        reservation.settle();
        let mut entry = self.store.entry(hash, key, self.clock.seconds());
        if self.store.flushes() != flushes {
            return Ok(false);
        }
        entry.commit(reservation, last.meta).map_err(|_| CopyError::NoMemory)?;
        Ok(true)
    }

    /// A piece of a value; `None` if its key is gone.
    fn piece(&mut self, job: &CopyJob, key: &[u8], from: u64) -> Result<Option<Item>, CopyError> {
        let request = Request::Piece((job.id.micro_shard.0, job.epoch), from, key.to_vec());
        let reply = self.afar.ask(job.from, &request)?;
        if reply.lost.is_empty() { Ok(reply.items.into_iter().next()) } else { Err(CopyError::Unreadable) }
    }
}

/// The keys to copy; none of a job for a whole micro-shard.
pub(super) fn hashes_of(job: &CopyJob) -> &[KeyHash] {
    job.hashes.as_deref().unwrap_or_default()
}

/// Asks for the items with these hashes, those of a job in one group.
fn question(asked: &[(&CopyJob, KeyHash)]) -> Request {
    let group = |same: &[(&CopyJob, KeyHash)]| -> Group {
        let job = same[0].0;
        ((job.id.micro_shard.0, job.epoch), same.iter().map(|(_, hash)| hash.0).collect())
    };
    Request::Keys(asked.chunk_by(|(one, _), (next, _)| one.id == next.id).map(group).collect())
}

#[cfg(test)]
mod tests {
    use minos_unit::MoveId;

    use super::*;

    #[test]
    fn keys_of_many_micro_shards_are_asked_for_at_once() {
        let job = |micro_shard, hashes: &[u64]| CopyJob {
            id: MoveId { micro_shard: MicroShard(micro_shard), number: 3 },
            from: ServerId(0),
            epoch: 4 + micro_shard,
            hashes: Some(hashes.iter().copied().map(KeyHash).collect()),
        };
        let (one, other) = (job(1, &[7, 8]), job(2, &[9]));
        let asked = [(&one, KeyHash(7)), (&one, KeyHash(8)), (&other, KeyHash(9))];
        assert_eq!(question(&asked), Request::Keys(vec![((1, 5), vec![7, 8]), ((2, 6), vec![9])]));
    }
}
