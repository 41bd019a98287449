//! The owner's part of a copy to another machine: it reads its own memory as a node of its machine would, without a lock,
//! on a thread for each stream, so that no worker waits for it.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use minos_base::{Clock, KeyHash, limits::KEY_BYTES_MAX};
use minos_engine::{Answer, ItemMeta, ItemView, Mode, Named, ReadOnly};
use minos_tier::{Found, Place};

use super::{
    PAUSE, READS_MAX,
    below::{Below, BelowError},
    wire::{Group, Item, Owned, REQUEST_BYTES_MAX, Reply, Request},
};
use crate::rack::frames;

/// Bytes from which on a reply gets no further items. The rest of a chain, without values, fits behind them.
const REPLY_BYTES: usize = 64 << 10;
/// Most bytes of a value that is shown before it is asked for by its key.
const INLINE_BYTES: usize = 16 << 10;
/// Most bytes of a piece of a value.
const PIECE_BYTES: usize = 128 << 10;
/// Chains visited for one reply.
const CHAINS_MAX: usize = 8192;
/// Chains visited at a time where records on flash are read for their keys, few because these may be large, and the time
/// after which a reply gets no more.
const COLD_CHAINS: usize = 4;
const REPLY_TIME: Duration = Duration::from_millis(100);

/// What a node shows of its items.
pub(super) struct Showing<M: Mode, F> {
    /// This node's own memory.
    pub(super) table: Arc<ReadOnly<M>>,
    pub(super) clock: Clock,
    /// The micro-shard of a key.
    pub(super) shard_of: F,
    /// Its items, if some are on flash.
    pub(super) below: Option<Below<M>>,
}

/// A walk through all items of some micro-shards.
struct Walk {
    /// Those that were owned up to now.
    wanted: BTreeMap<u32, u32>,
    partition: usize,
    cursor: u64,
    /// Keys of the last chain that are still to be shown.
    keys: Vec<(u32, Box<[u8]>)>,
}

/// The owner has lost the micro-shard, or a writer does not finish.
struct Lost;

impl<M: Mode, F: Fn(&[u8]) -> u32> Showing<M, F> {
    /// Answers requests until the stream ends. The first message says when the owner's clock showed zero, in seconds
    /// since 1970.
    ///
    /// # Errors
    /// The other end asks what cannot be asked, or does not take its replies in time.
    pub(super) fn serve(&self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        frames::send_bytes(stream, &self.table.clock_base().to_le_bytes())?;
        let mut walk = None;
        loop {
            let request = Request::decode(&frames::receive_bytes(stream, REQUEST_BYTES_MAX)?)?;
            frames::send_bytes(stream, &self.answer(request, &mut walk)?.encode())?;
        }
    }

    fn answer(&self, request: Request, walk: &mut Option<Walk>) -> io::Result<Reply> {
        match request {
            Request::Walk(wanted) => {
                let wanted = wanted.into_iter().collect();
                let begun = walk.insert(Walk { wanted, partition: 0, cursor: 0, keys: Vec::new() });
                Ok(self.walk_on(begun))
            }
            Request::More => {
                let begun = walk.as_mut().ok_or_else(|| io::Error::other("no walk has begun"))?;
                Ok(self.walk_on(begun))
            }
            Request::Keys(groups) => Ok(self.with_hashes(&groups)),
            Request::Piece(owned, from, key) => Ok(self.piece(owned, from, &key)),
        }
    }

    /// The next items of a walk.
    fn walk_on(&self, walk: &mut Walk) -> Reply {
        let (mut reply, begun) = (Reply::default(), Instant::now());
        let mut bytes = 0;
        for _ in 0..CHAINS_MAX {
            while bytes < REPLY_BYTES
                && let Some((micro_shard, key)) = walk.keys.pop()
            {
                let Some(&epoch) = walk.wanted.get(&micro_shard) else { continue };
                match self.show((micro_shard, epoch), micro_shard, &key, bytes) {
                    Ok(item) => {
                        reply.items.extend(item.inspect(|item| bytes += item.key.len() + item.part.len()))
                    }
                    Err(Lost) => walk.lose(micro_shard, &mut reply),
                }
            }
            if bytes >= REPLY_BYTES || self.below.is_some() && begun.elapsed() > REPLY_TIME {
                break;
            }
            if walk.partition == self.table.partitions() || walk.wanted.is_empty() {
                reply.is_last = true;
                break;
            }
            self.next_chain(walk, &mut reply);
        }
        // What was read, and what was not found, is the owner's if it has owned the micro-shard throughout.
        let is_lost = |(micro_shard, epoch): (&u32, &u32)| {
            (!self.has_held((*micro_shard, *epoch))).then_some(*micro_shard)
        };
        let lost: Vec<u32> = walk.wanted.iter().filter_map(is_lost).collect();
        lost.into_iter().for_each(|micro_shard| walk.lose(micro_shard, &mut reply));
        reply
    }

    fn next_chain(&self, walk: &mut Walk, reply: &mut Reply) {
        let Walk { wanted, partition, cursor, keys } = walk;
        let mut add = |key: &[u8]| {
            let micro_shard = (self.shard_of)(key);
            // Only clients of Redis' protocol name longer ones, and a rack has none.
            if wanted.contains_key(&micro_shard) && key.len() <= KEY_BYTES_MAX {
                keys.push((micro_shard, key.into()));
            }
        };
        let now = self.clock.seconds();
        let next = match &self.below {
            Some(below) => below.chains((*partition, *cursor, COLD_CHAINS), now, false, add).map_err(warn),
            None => self
                .table
                .visit(*partition, *cursor, 1, now, |named| hot(named).into_iter().for_each(&mut add))
                .map_err(|_| Lost),
        };
        match next {
            Ok(Some(next)) => *cursor = next,
            Ok(None) => (*partition, *cursor) = (*partition + 1, 0),
            Err(Lost) => reply.lost.extend(std::mem::take(wanted).into_keys()),
        }
    }

    /// Gives `add` the keys of all items with a hash.
    fn keys_with(&self, hash: KeyHash, mut add: impl FnMut(&[u8])) -> Result<(), Lost> {
        let now = self.clock.seconds();
        match &self.below {
            Some(below) => below.keys_with(hash, now, add).map_err(warn),
            None => self
                .table
                .keys_with(hash, now, |named| hot(named).into_iter().for_each(&mut add))
                .map_err(|_| Lost),
        }
    }

    /// The items with some of these hashes: the first ones, up to the bytes of a reply.
    fn with_hashes(&self, groups: &[Group]) -> Reply {
        let (mut reply, mut bytes) = (Reply::default(), 0);
        let mut add = |(position, (owned, hash)): (usize, (Owned, u64))| {
            let mut keys: Vec<Box<[u8]>> = Vec::new();
            self.keys_with(KeyHash(hash), |key| {
                keys.extend(((self.shard_of)(key) == owned.0).then(|| key.into()));
            })?;
            // More than one of a key's records may have been read.
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let item = self.show(owned, position as u32, &key, bytes)?;
                reply.items.extend(item.inspect(|item| bytes += item.key.len() + item.part.len()));
            }
            reply.answered += 1;
            Ok(bytes < REPLY_BYTES)
        };
        let of_group = |(owned, hashes): &Group| {
            let owned = *owned;
            hashes.clone().into_iter().map(move |hash| (owned, hash))
        };
        let mut answered = Ok(true);
        for hash in groups.iter().flat_map(of_group).enumerate() {
            answered = add(hash);
            if !matches!(answered, Ok(true)) {
                break;
            }
        }
        let owned: Vec<Owned> = groups.iter().map(|(owned, _)| *owned).collect();
        self.covered(&owned, answered.map(|_| reply))
    }

    fn piece(&self, owned: Owned, from: u64, key: &[u8]) -> Reply {
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let part = |bytes: usize| from.min(bytes)..from.saturating_add(PIECE_BYTES).min(bytes);
        let item = self.read(owned, 0, key, part);
        self.covered(
            &[owned],
            item.map(|item| Reply { items: item.into_iter().collect(), ..Reply::default() }),
        )
    }

    /// A reply about some micro-shards, which counts only if the node has owned all of them throughout.
    fn covered(&self, owned: &[Owned], reply: Result<Reply, Lost>) -> Reply {
        let have_held = || owned.iter().all(|owned| self.has_held(*owned));
        let lost = || owned.iter().map(|(micro_shard, _)| *micro_shard).collect();
        reply.ok().filter(|_| have_held()).unwrap_or_else(|| Reply { lost: lost(), ..Reply::default() })
    }

    /// An item for a reply that has so many bytes.
    fn show(&self, owned: Owned, tag: u32, key: &[u8], bytes: usize) -> Result<Option<Item>, Lost> {
        let max = if bytes < REPLY_BYTES { INLINE_BYTES } else { 0 };
        self.read(owned, tag, key, |bytes| 0..if bytes <= max { bytes } else { 0 })
    }

    /// An item with a part of its value; `None` if it is gone.
    fn read(
        &self,
        owned: Owned,
        tag: u32,
        key: &[u8],
        part: impl Fn(usize) -> Range<usize>,
    ) -> Result<Option<Item>, Lost> {
        let (hash, now) = (self.table.hash(key), self.clock.seconds());
        let look = |view: &ItemView<'_>| {
            let mut bytes = Vec::new();
            view.copy_part_to(part(view.value_bytes()), &mut bytes);
            let value_bytes = view.value_bytes() as u64;
            Item { tag, meta: meta_of(view), value_bytes, key: key.to_vec(), part: bytes }
        };
        for _ in 0..READS_MAX {
            match self.table.read_owned(owned.0, hash, key, now, look) {
                Answer::Found(item) => return Ok(Some(item)),
                Answer::Missing => return Ok(None),
                Answer::AskOwner if !self.has_held(owned) => break,
                Answer::AskOwner => {}
            }
            if let Some(below) = &self.below {
                let shown = |found: &Found<'_>| cold_item(found, tag, key, &part);
                match below.find(hash, key, now, shown).map_err(warn)? {
                    Place::Flash(item) => return Ok(Some(item)),
                    Place::None => return Ok(None),
                    Place::Memory => {}
                }
            }
            thread::sleep(PAUSE);
        }
        Err(Lost)
    }

    /// True if everything that this thread has read so far was the owner's: it has not lost the micro-shard since.
    fn has_held(&self, (micro_shard, epoch): Owned) -> bool {
        let ownership = self.table.ownership_after_reads(micro_shard);
        ownership.is_readable() && ownership.epoch == epoch
    }
}

impl Walk {
    fn lose(&mut self, micro_shard: u32, reply: &mut Reply) {
        self.wanted.remove(&micro_shard);
        reply.lost.push(micro_shard);
    }
}

/// The key of an item in memory. Where nothing is on flash there are no others.
fn hot<'a>(named: Named<'a>) -> Option<&'a [u8]> {
    match named {
        Named::Key(key) => Some(key),
        Named::Record(_) => None,
    }
}

/// An item on flash with a part of its value.
fn cold_item(found: &Found<'_>, tag: u32, key: &[u8], part: impl Fn(usize) -> Range<usize>) -> Item {
    let mut value = Vec::new();
    found.value.copy_to(&mut value);
    let part = value[part(value.len())].to_vec();
    Item { tag, meta: found.meta, value_bytes: value.len() as u64, key: key.to_vec(), part }
}

fn warn(error: BelowError) -> Lost {
    tracing::warn!(%error, "items on flash are not shown to another node");
    Lost
}

/// What is known of an item besides key and value, with the expiry on the clock of its table.
pub(super) fn meta_of(view: &ItemView<'_>) -> ItemMeta {
    ItemMeta {
        flags: view.flags(),
        expiry: view.expiry(),
        early_ms: view.early_ms(),
        cas: Some(view.cas()),
        stale: view.is_stale(),
        win_sent: view.is_win_sent(),
        encoded_key: view.has_encoded_key(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rack::member::wire::REPLY_BYTES_MAX;
    use minos_engine::{Backing, Engine, OwnerState, Ownership, StoreConfig, StoreMode};
    use std::{cell::Cell, collections::BTreeSet};

    const MINE: Owned = (1, 5);

    fn store() -> Engine<StoreMode> {
        let config = StoreConfig { backing: Backing::Memfd, micro_shards: 4, ..StoreConfig::new(64 << 20) };
        let store = Engine::create(&config).unwrap();
        own(&store, MINE);
        store
    }

    fn own(store: &Engine<StoreMode>, (micro_shard, epoch): Owned) {
        store.set_ownership(micro_shard, Ownership { epoch, state: OwnerState::Owned });
    }

    fn put(store: &Engine<StoreMode>, key: &str, value: &[u8]) {
        let meta = ItemMeta { flags: 9, ..ItemMeta::default() };
        let key = key.as_bytes();
        store.entry(store.hash(key), key, 5).insert(&[value], meta).unwrap();
    }

    fn showing<F: Fn(&[u8]) -> u32>(store: &Engine<StoreMode>, shard_of: F) -> Showing<StoreMode, F> {
        let table = ReadOnly::from_descriptor(store.descriptor_to_read().unwrap()).unwrap();
        Showing { table: Arc::new(table), clock: Clock::new(), shard_of, below: None }
    }

    #[test]
    fn what_is_read_while_the_micro_shard_is_lost_does_not_count() {
        let store = store();
        put(&store, "key", b"value");
        let hash = store.hash(b"key").0;
        let requests = [Request::Walk(vec![MINE]), Request::Keys(vec![(MINE, vec![hash])])];
        for request in &requests {
            let showing = showing(&store, |_| 1);
            let reply = showing.answer(request.clone(), &mut None).unwrap();
            assert_eq!(
                (reply.items.len(), reply.lost.len(), reply.items[0].part.as_slice()),
                (1, 0, &b"value"[..])
            );
        }
        for later in [
            Ownership { epoch: 5, state: OwnerState::None },
            Ownership { epoch: 6, state: OwnerState::Owned },
        ] {
            for request in &requests {
                own(&store, MINE);
                // Between the owner's first look and the end of its answer.
                let is_lost = Cell::new(false);
                let showing = showing(&store, |_| {
                    if !is_lost.replace(true) {
                        store.set_ownership(1, later);
                    }
                    1
                });
                let reply = showing.answer(request.clone(), &mut None).unwrap();
                assert_eq!((reply.lost.as_slice(), is_lost.get()), (&[1][..], true), "{later:?} {request:?}");
            }
            let piece = Request::Piece(MINE, 0, b"key".to_vec());
            assert_eq!(showing(&store, |_| 1).answer(piece, &mut None).unwrap().lost, [1]);
        }
    }

    /// An owner that has lost its items finds none of them.
    #[test]
    fn what_is_not_found_after_a_loss_does_not_count_as_gone() {
        let store = store();
        put(&store, "other", b"value");
        let showing = showing(&store, |_| {
            store.set_ownership(1, Ownership { epoch: 5, state: OwnerState::None });
            2
        });
        let reply = showing.answer(Request::Walk(vec![MINE]), &mut None).unwrap();
        assert_eq!((reply.items.len(), reply.lost.as_slice()), (0, &[1][..]));
    }

    #[test]
    fn walks_show_each_item_in_replies_of_bounded_size() {
        let store = store();
        for number in 0..3000 {
            let bytes = if number % 100 == 0 { 300_000 } else { number * 5 };
            put(&store, &format!("key{number}"), &vec![number as u8; bytes]);
        }
        let showing = showing(&store, |key| u32::from(key.ends_with(b"7")));
        assert!(showing.answer(Request::More, &mut None).is_err());
        let (mut walk, mut keys, mut request) = (None, BTreeSet::new(), Request::Walk(vec![MINE]));
        loop {
            let reply = showing.answer(request, &mut walk).unwrap();
            assert!(reply.encode().len() < 2 * REPLY_BYTES && reply.lost.is_empty());
            for item in reply.items {
                assert!(item.part.len() as u64 == item.value_bytes && item.meta.flags == 9);
                keys.insert(item.key);
            }
            if reply.is_last {
                break;
            }
            request = Request::More;
        }
        assert_eq!(keys.len(), 300);
    }

    #[test]
    fn large_values_come_in_pieces_and_many_keys_in_parts() {
        let store = store();
        let value: Vec<u8> = (0..500_000_u32).map(|at| (at % 251) as u8).collect();
        put(&store, "large", &value);
        let keys: Vec<String> = (0..200).map(|number| format!("key{number}")).collect();
        keys.iter().for_each(|key| put(&store, key, &[7; 10_000]));
        let showing = showing(&store, |_| 1);
        let answer = |request| showing.answer(request, &mut None).unwrap();
        let mut came = Vec::new();
        while came.len() < value.len() {
            let reply = answer(Request::Piece(MINE, came.len() as u64, b"large".to_vec()));
            assert!(reply.encode().len() < REPLY_BYTES_MAX as usize);
            came.extend_from_slice(&reply.items[0].part);
        }
        assert!(came == value);
        assert!(answer(Request::Piece(MINE, u64::MAX, b"large".to_vec())).items[0].part.is_empty());
        assert!(answer(Request::Piece(MINE, 0, b"none".to_vec())).items.is_empty());
        let hashes: Vec<u64> = keys.iter().map(|key| store.hash(key.as_bytes()).0).collect();
        let reply = answer(Request::Keys(vec![(MINE, hashes)]));
        assert!((1..200).contains(&reply.answered) && reply.encode().len() < 2 * REPLY_BYTES);
        assert_eq!(reply.items.len(), reply.answered as usize);
        assert_eq!(answer(Request::Keys(vec![(MINE, vec![store.hash(b"large").0])])).items[0].part.len(), 0);
        assert_eq!(answer(Request::Keys(vec![(MINE, vec![1])])).answered, 1);
    }

    #[test]
    fn one_request_is_for_keys_of_several_micro_shards() {
        const OTHER: Owned = (2, 7);
        let store = store();
        own(&store, OTHER);
        for key in ["a1", "b1", "a2", "b2"] {
            put(&store, key, &[7; 10_000]);
        }
        let showing = showing(&store, |key| u32::from(key[1] - b'0'));
        let hashes = |keys: &[&str]| keys.iter().map(|key| store.hash(key.as_bytes()).0).collect::<Vec<_>>();
        let ask = |groups: &[Group]| showing.answer(Request::Keys(groups.to_vec()), &mut None).unwrap();
        let groups = [(MINE, hashes(&["a1", "none", "b2"])), (OTHER, hashes(&["a2", "b2"]))];
        let reply = ask(&groups);
        let shown: Vec<_> = reply.items.iter().map(|item| (item.tag, item.key.as_slice())).collect();
        // A key of another micro-shard than its group's is not shown.
        assert_eq!(shown, [(0, &b"a1"[..]), (3, b"a2"), (4, b"b2")]);
        assert_eq!((reply.answered, reply.lost.len()), (5, 0));
        // The bytes of a reply are those of all groups.
        let many = vec![(MINE, hashes(&["a1"; 5])), (OTHER, hashes(&["a2"; 5]))];
        let reply = ask(&many);
        assert!(reply.answered == 7 && reply.encode().len() < 2 * REPLY_BYTES);
        // If one was lost, nothing counts.
        own(&store, (OTHER.0, OTHER.1 + 1));
        let reply = ask(&groups);
        assert_eq!((reply.lost.as_slice(), reply.items.len(), reply.answered), (&[1, 2][..], 0, 0));
    }
}
