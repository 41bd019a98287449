//! What a worker does at a time for requests that wait for flash.

use minos_base::{KeyHash, SizeClass};
use minos_device::{Device, MemoryOptions, ServiceTime};
use minos_engine::{ItemMeta, Lookup, StoreConfig, Tiered, TieredMode};
use minos_net::{Wait, wait_readable};
use minos_tier::{Entry, Format, Memory, Now, Options, TieredStore};

use super::*;
use crate::{
    datagram::native::Waiting,
    ops::{Fetch, Need},
    worker::rings::Waiter,
};

/// Four times as many as memory holds.
const KEYS: u64 = 8000;
const SEGMENT_BYTES: u32 = 256 << 10;

/// A tier, and some of its keys that are on flash alone.
fn cold(service_time: Option<ServiceTime>) -> (Arc<Tier>, Vec<(KeyHash, Vec<u8>)>) {
    let memory = MemoryOptions { capacity_bytes: 32 << 20, service_time, ..MemoryOptions::default() };
    let device = Device::in_memory(&memory);
    let format =
        Format { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 0, segment_bytes: SEGMENT_BYTES };
    minos_tier::format(&device, &format).unwrap();
    let config = StoreConfig { value_bytes_max: 16 << 10, hash_seed: 3, ..StoreConfig::new(4 << 20) };
    let (tier, mut keeper, _) = minos_tier::open(&device, &Options::cache(), 1, |_| {
        Tiered::create(&config).map(|engine| (Arc::new(engine), Memory::Empty))
    })
    .unwrap();
    let mut store = TieredStore::new(&tier).unwrap();
    let key_of = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..KEYS {
        let entry = Entry { key: &key_of(number), value: &[7; 1000], meta: ItemMeta::default() };
        store.put_many(&[entry], 1, |_, stored| stored.unwrap());
        for turn in 0..2 {
            keeper.turn(Now { us: (2 * number + turn) * 5000, seconds: 1 }).unwrap();
        }
    }
    let engine = tier.engine();
    let keys = (0..KEYS).map(key_of).map(|key| (engine.hash(&key), key));
    let is_cold =
        |(hash, key): &(KeyHash, Vec<u8>)| matches!(engine.find_cold(*hash, key, 1), Lookup::Cold(_));
    let keys = keys.filter(is_cold).collect();
    (tier, keys)
}

fn fetches(tier: &Arc<Tier>) -> Fetches<TieredMode> {
    let promote = (Promote::First, Arc::new(ReadLately::new(1)));
    Fetches::of(tier, (Gathering::default(), None), promote, Arc::default()).unwrap()
}

fn begin(fetches: &mut Fetches<TieredMode>, (hash, key): &(KeyHash, Vec<u8>), now: (Instant, Seconds)) {
    let fetch = Box::new(Fetch::of(*hash, key, SizeClass::of(1000), Need::Item));
    let waiter = Waiter::Datagrams(Waiting::Store(0));
    fetches.begin(Box::new(Awaiting { waiter, fetch }), now);
}

#[test]
fn a_read_that_is_submitted_before_a_sleep_ends_it() {
    let (tier, keys) = cold(Some(ServiceTime::of_the_paper()));
    let mut fetches = fetches(&tier);
    let now = (Instant::now(), 1);
    begin(&mut fetches, &keys[0], now);
    // If the read has ended by now there is no sleep.
    if fetches.prepare_sleep(now) {
        let patience = Wait::For(Duration::from_secs(30));
        assert!(wait_readable(&[fetches.descriptor()], patience).unwrap(), "it sleeps through the answer");
    }
    while fetches.take_ready(1).is_none() {
        fetches.advance(now).unwrap();
    }
}

#[test]
fn a_turn_takes_few_answers() {
    let (tier, keys) = cold(None);
    let mut fetches = fetches(&tier);
    let now = (Instant::now(), 1);
    let asked = 2 * ANSWERS_MAX + 1;
    keys[..asked].iter().for_each(|key| begin(&mut fetches, key, now));
    let mut taken = 0;
    while taken < asked {
        fetches.advance(now).unwrap();
        let ready = fetches.ready.len();
        assert!(ready <= ANSWERS_MAX, "{ready} answers at once hold up what else comes");
        while fetches.take_ready(1).is_some() {
            taken += 1;
        }
        assert!(taken == asked || taken == 0 || fetches.is_runnable(), "the rest is forgotten");
    }
    assert!(fetches.is_empty() && !fetches.is_runnable());
}

/// Ends all requests, as after an error of the lane.
fn fail(fetches: &mut Fetches<TieredMode>) -> usize {
    fetches.fail();
    std::iter::from_fn(|| fetches.take_ready(1)).count()
}

/// Before the fix, the late answer was taken for the one to the next request, which took the place of the first.
#[test]
fn answers_after_a_failure_are_nobodys() {
    let (tier, keys) = cold(Some(ServiceTime::of_the_paper()));
    let mut fetches = fetches(&tier);
    let now = (Instant::now(), 1);
    keys[..8].iter().for_each(|key| begin(&mut fetches, key, now));
    fetches.advance(now).unwrap();
    assert!(fetches.reader.in_flight() > 0, "nothing is late");
    assert_eq!(fail(&mut fetches), 8);
    assert_eq!(fetches.reader.under_way(), 0, "segments are held for ever");
    begin(&mut fetches, &keys[8], now);
    let patience = Instant::now() + Duration::from_secs(30);
    let ended = loop {
        fetches.advance(now).unwrap();
        if let Some((awaiting, _)) = fetches.take_ready(1) {
            break awaiting;
        }
        assert!(Instant::now() < patience);
    };
    let (hash, key) = &ended.fetch.keys[0];
    assert!(tier.engine().read(*hash, key, 1, |_| ()).is_some(), "it ended with the answer to another one");
    assert!(fetches.is_empty());
}
