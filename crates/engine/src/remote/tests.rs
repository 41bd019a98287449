//! Whatever a remote read answers was true, and the owner's, at some instant while it ran: over a simulated fabric
//! whose lines are of different instants, and over mapped memory beside the real engine.

mod simulated;

use super::{
    Completion, Fabric, Mapped, Range, RemoteRead, RemoteSketch, Safeguard, Step,
    rig::{Beside, History, MICRO_SHARD, NOW, PEER, Rig, run},
    without,
};
use crate::{cache_mode::CacheMode, mode::Mode, store_mode::StoreMode};
use minos_base::seeded_stream;
use minos_region::{Backing, Image};
use rand::{Rng, RngExt};
use simulated::{Ground, Simulated};

/// An engine on a memfd, which is mapped again.
fn mapped<M: Mode>(seed: u64) -> Beside<M, Mapped> {
    Beside::new(seed, Backing::Memfd, |engine| {
        let mut mapped = Mapped::default();
        mapped.add(Image::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap());
        mapped
    })
}

#[test]
fn answers_over_a_simulated_fabric_were_true() {
    for ground in [Ground::of_store(), Ground::of_cache()] {
        let counts = run(|seed| Simulated::new(&ground, seed), (40, 2000)).unwrap();
        println!("{counts:?}");
        counts.are_at_least(1000);
    }
}

#[test]
fn answers_beside_the_engine_were_true() {
    let counts = run(mapped::<StoreMode>, (8, 5000)).unwrap();
    println!("{counts:?}");
    counts.are_at_least(100);
    let counts = run(mapped::<CacheMode>, (3, 3000)).unwrap();
    println!("{counts:?}");
    counts.are_at_least(100);
}

#[test]
fn without_a_safeguard_answers_were_never_true() {
    let (store, cache) = (Ground::of_store(), Ground::of_cache());
    for safeguard in
        [Safeguard::Owner, Safeguard::Version, Safeguard::LogHead, Safeguard::Buckets, Safeguard::LastRound]
    {
        let ground = if safeguard == Safeguard::LogHead { &cache } else { &store };
        // Each index splits once.
        let extent = if safeguard == Safeguard::Buckets { (2000, 300) } else { (40, 2000) };
        let result = without(Some(safeguard), || run(|seed| Simulated::new(ground, seed), extent));
        println!("without {safeguard:?}: {}", result.as_ref().unwrap_err());
    }
    // Rounds are of one instant there, and every change has a version.
    let result = without(Some(Safeguard::Version), || run(mapped::<StoreMode>, (8, 5000)));
    println!("beside the engine: {}", result.as_ref().unwrap_err());
}

#[test]
fn any_words_are_survived() {
    any_words_of(&mut mapped::<StoreMode>(1));
    any_words_of(&mut mapped::<CacheMode>(1));
}

fn any_words_of(rig: &mut impl Rig) {
    let mut table = rig.attach();
    let (mut random, mut read) = (seeded_stream(2, 0), RemoteRead::default());
    let needed = |step: Step<'_>| match step {
        Step::Need(ranges) => Some(ranges.iter().map(|range| range.words).sum::<usize>()),
        _ => None,
    };
    for number in 0..20_000 {
        let key = rig.key(number % rig.keys());
        let mut need = needed(read.begin(&table, MICRO_SHARD, &key, NOW));
        while let Some(count) = need {
            let small = random.random_range(0..3) > 0;
            // A word that names the key's tag, or an owner, leads farther.
            let tag = u64::from(table.hash(&key).tag()) << 48;
            let mut word = |_| {
                let any = random.next_u64();
                if small { any % 66 + 64 } else { any >> 16 | tag }
            };
            let mut words: Vec<u64> = (0..count).map(&mut word).collect();
            words[0] = words[0] & !3 | 1;
            need = needed(read.step(&mut table, &words));
        }
    }
}

#[test]
fn any_header_is_survived() {
    any_header_of(&mut mapped::<StoreMode>(1));
    any_header_of(&mut mapped::<CacheMode>(1));
}

fn any_header_of(rig: &mut impl Rig) {
    let header = rig.read_alone(RemoteSketch::HEADER);
    let saved = rig.read_alone(RemoteSketch::of(&header).unwrap().saved_range());
    let (mut refused, mut opened) = (0, 0);
    let mut open = |header: &[u64], saved: &[u64]| {
        let sketch = RemoteSketch::of(header);
        match sketch.filter(|sketch| sketch.saved_range().words > 0).and_then(|sketch| sketch.table(saved)) {
            Some(mut table) => {
                let mut read = RemoteRead::default();
                _ = read.begin(&table, MICRO_SHARD, b"key", NOW);
                _ = read.step(&mut table, &[64, 0]);
                opened += 1;
            }
            None => refused += 1,
        }
    };
    let changed = |words: &[u64], at: usize, value: u64| {
        let mut words = words.to_vec();
        words[at] = value;
        words
    };
    for at in 0..saved.len().max(14) {
        for bit in 0..64 {
            let old = header[at];
            for value in [old ^ 1 << bit, 1 << bit, !0 << bit, old.wrapping_add(1 << bit)] {
                open(&changed(&header, at, value), &saved);
            }
            if at < saved.len() {
                open(&header, &changed(&saved, at, saved[at] ^ 1 << bit));
                open(&header, &changed(&saved, at, !0 << bit));
            }
        }
    }
    assert!(refused > 500 && opened > 100, "{refused} refused, {opened} opened");
}
