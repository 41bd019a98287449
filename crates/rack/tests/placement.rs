//! Moves between servers, and the balance of the ring.

use std::collections::BTreeMap;

use minos_base::{KeyHash, hash_key};
use minos_rack::{MicroShard, MicroShards, Placement, ServerId, UnitId, unit_count};
use proptest::prelude::*;

const MICRO_SHARDS: u32 = 2_000;

fn shards() -> MicroShards {
    MicroShards::new(MICRO_SHARDS).unwrap()
}

/// Any servers in any units.
fn members() -> impl Strategy<Value = BTreeMap<u32, u32>> {
    proptest::collection::btree_map(0u32..200, 0u32..6, 1..20)
}

fn replicas(placement: &Placement, shard: MicroShard) -> Vec<ServerId> {
    placement.replicas(shard).collect()
}

fn copied(members: &BTreeMap<u32, u32>, copies: usize) -> Placement {
    placed(members).with_copies(copies as u32).unwrap()
}

fn placed(members: &BTreeMap<u32, u32>) -> Placement {
    let mut placement = Placement::new(shards(), 16).unwrap();
    for (&server, &unit) in members {
        placement.add(ServerId(server), UnitId(unit)).unwrap();
    }
    placement
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replicas_are_in_different_units(members in members(), count in 1usize..5) {
        let placement = copied(&members, count);
        let units: std::collections::BTreeSet<_> = members.values().collect();
        for shard in shards().iter() {
            let replicas: Vec<_> = placement.replicas(shard).collect();
            prop_assert_eq!(replicas.len(), count.min(units.len()));
            prop_assert_eq!(replicas.first().copied(), placement.owner(shard));
            let mut of: Vec<_> = replicas.iter().map(|server| placement.unit(*server)).collect();
            of.sort();
            of.dedup();
            prop_assert_eq!(of.len(), replicas.len());
        }
    }

    #[test]
    fn only_what_goes_to_a_new_server_moves(members in members(), server in 200u32..210, unit in 0u32..8) {
        let before = copied(&members, 3);
        let mut after = before.clone();
        after.add(ServerId(server), UnitId(unit)).unwrap();
        for shard in shards().iter() {
            let (old, new) = (replicas(&before, shard), replicas(&after, shard));
            if old != new {
                // The newcomer, and of the others all but one at most, in their order.
                prop_assert!(new.contains(&ServerId(server)));
                let others: Vec<_> = new.iter().copied().filter(|other| other.0 != server).collect();
                prop_assert!(others.len() + 1 >= old.len());
                let kept: Vec<_> = old.iter().copied().filter(|other| others.contains(other)).collect();
                prop_assert_eq!(kept, others);
            }
        }
        after.remove(ServerId(server));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn only_what_a_unit_held_moves_when_it_goes(members in members(), unit in 0u32..6) {
        let before = copied(&members, 2);
        let mut after = before.clone();
        for (&server, _) in members.iter().filter(|(_, other)| **other == unit) {
            prop_assert!(after.remove(ServerId(server)));
        }
        for shard in shards().iter() {
            let old = replicas(&before, shard);
            if old.iter().all(|server| before.unit(*server) != Some(UnitId(unit))) {
                prop_assert_eq!(old, replicas(&after, shard));
            } else if let Some(owner) = after.owner(shard) {
                prop_assert_ne!(after.unit(owner), Some(UnitId(unit)));
            }
        }
    }

    #[test]
    fn after_deaths_the_first_surviving_replica_owns(
        members in members(), dead in proptest::collection::vec(0usize..20, 1..5), count in 1usize..5,
    ) {
        let before = copied(&members, count);
        let mut after = before.clone();
        let dead: Vec<_> = dead.iter().filter_map(|index| members.keys().nth(*index)).map(|id| ServerId(*id)).collect();
        dead.iter().for_each(|server| {
            after.fail(*server);
        });
        for shard in shards().iter() {
            let mut surviving = replicas(&before, shard);
            surviving.retain(|server| !dead.contains(server));
            // Nobody if no holder survives: the next server along the ring holds no copy.
            prop_assert_eq!(after.owner(shard), surviving.first().copied());
            prop_assert_eq!(replicas(&after, shard), surviving);
        }
    }

    #[test]
    fn a_dead_server_is_removed_like_one_that_lives(members in members(), dead in 0usize..20) {
        let mut after = placed(&members);
        let Some(dead) = members.keys().nth(dead).map(|id| ServerId(*id)) else { return Ok(()) };
        let mut expected = after.clone();
        prop_assert!(after.fail(dead) && !after.fail(dead));
        prop_assert!(after.remove(dead) && expected.remove(dead));
        prop_assert_eq!(&after, &expected);
        prop_assert!(!after.fail(dead));
    }

    #[test]
    fn the_order_of_arrival_does_not_matter(members in members()) {
        let forward = placed(&members);
        let mut backward = Placement::new(shards(), 16).unwrap();
        for (&server, &unit) in members.iter().rev() {
            backward.add(ServerId(server), UnitId(unit)).unwrap();
        }
        prop_assert_eq!(forward, backward);
    }
}

#[test]
fn a_server_more_takes_its_part() {
    let shards = MicroShards::new(100_000).unwrap();
    let before = Placement::regular(shards, 256, 0..31, 1).unwrap();
    let mut after = before.clone();
    after.add(ServerId(31), UnitId(31)).unwrap();
    let moved = before.owners().iter().zip(after.owners()).filter(|(old, new)| *old != new).count();
    let fair = 100_000 / 32;
    assert!(moved.abs_diff(fair) < fair / 4, "{moved}, {fair} would be fair");
}

/// The next point of the ring is often one of the dead server's own unit, which holds no copy.
#[test]
fn racks_survive_a_death() {
    for (servers, gf) in [(512, 16), (32, 16)] {
        let before = Placement::regular(shards(), 64, 0..servers, gf).unwrap().with_copies(2).unwrap();
        for dead in (0..servers).step_by(17).map(ServerId) {
            let mut after = before.clone();
            assert!(after.fail(dead));
            for shard in shards().iter() {
                let owner = before.replicas(shard).find(|server| *server != dead);
                assert_eq!(after.owner(shard), owner, "{servers} servers in units of {gf}, without {dead:?}");
            }
        }
    }
}

#[test]
fn without_a_second_copy_nobody_takes_over() {
    let before = Placement::regular(shards(), 64, 0..32, 16).unwrap();
    let mut after = before.clone();
    after.fail(ServerId(3));
    for (old, new) in before.owners().into_iter().zip(after.owners()) {
        assert_eq!(new, old.filter(|owner| *owner != ServerId(3)));
    }
}

#[test]
fn servers_hold_nearly_the_same() {
    let placement = Placement::regular(MicroShards::new(512_000).unwrap(), 256, 0..64, 16).unwrap();
    let mut held = vec![0u32; 64];
    placement.owners().iter().flatten().for_each(|owner| held[owner.0 as usize] += 1);
    assert!(held.iter().all(|held| held.abs_diff(8_000) < 2_000), "{held:?}");
    assert_eq!(placement.servers().len(), 64);
    assert_eq!(placement.unit(ServerId(17)), Some(UnitId(1)));
}

#[test]
fn keys_are_spread_over_micro_shards() {
    let shards = MicroShards::new(10).unwrap();
    let mut keys = [0u32; 10];
    for key in 0u32..10_000 {
        keys[shards.of(hash_key(&key.to_le_bytes(), 1)).0 as usize] += 1;
    }
    assert!(keys.iter().all(|keys| keys.abs_diff(1_000) < 150), "{keys:?}");
}

/// Whatever part of the hash keys have in common: their queue or partition, their bucket, their tag.
#[test]
fn keys_with_bits_in_common_are_spread_over_micro_shards() {
    const KEYS: u32 = 100_000;
    let by_spread = MicroShards::new(64).unwrap();
    let spread = |hash: KeyHash| by_spread.of(hash).0;
    let by_highest_bits = |hash: KeyHash| (hash.0 >> 58) as u32;
    let by_bucket = |hash: KeyHash| hash.bucket_bits() & 63;
    // The largest difference from a fair part, of keys whose hashes have these bits of another key's.
    let worst = |common: u64, of: &dyn Fn(KeyHash) -> u32| {
        let fair = KEYS / 64;
        let differences = (0..8u64).map(|other| {
            let kept = hash_key(&other.to_le_bytes(), 7).0 & common;
            let mut keys = [0u32; 64];
            for key in 0..KEYS {
                let hash = hash_key(&key.to_le_bytes(), 1).0 & !common | kept;
                keys[of(KeyHash(hash)) as usize] += 1;
            }
            keys.map(|keys| f64::from(keys.abs_diff(fair)) / f64::from(fair)).into_iter().fold(0.0, f64::max)
        });
        differences.fold(0.0, f64::max)
    };
    let (queue, partition, bucket, tag) = (0xff << 56, 0xffff << 48, 0xffff_ffff << 16, 0xffff);
    for common in [queue, partition, bucket, tag, bucket | tag, partition | tag] {
        let worst = worst(common, &spread);
        assert!(worst < 0.15, "{common:#x}: {worst}");
    }
    // What the test would find: these have nearly all of them in one micro-shard.
    assert!(worst(partition, &by_highest_bits) > 10.0 && worst(bucket, &by_bucket) > 10.0);
}

#[test]
fn a_key_lies_where_it_always_lay() {
    // The placement must not change: another value means that data of old clusters cannot be found.
    let placement = Placement::regular(MicroShards::new(512_000).unwrap(), 256, 0..512, 16).unwrap();
    let shard = placement.micro_shards().of(hash_key(b"minos", 0));
    assert_eq!((shard.0, placement.owner(shard).unwrap().0), (283_556, 331));
}

#[test]
fn bad_parameters_are_named() {
    let said = |result: Result<u32, minos_rack::BadParameter>| result.unwrap_err().to_string();
    assert_eq!(said(unit_count(512, 12)), "gf: 12 is not allowed; allowed is a divisor of the 512 servers");
    assert_eq!(said(unit_count(512, 0)), "gf: 0 is not allowed; allowed is a divisor of the 512 servers");
    assert_eq!(said(unit_count(0, 1)), "servers: 0 is not allowed; allowed is 1 to 65536");
    assert!(MicroShards::new(0).is_err() && Placement::new(shards(), 0).is_err());
    assert!(Placement::new(shards(), 1).unwrap().with_copies(0).is_err());
    let mut placement = placed(&BTreeMap::from([(1, 1)]));
    assert!(placement.add(ServerId(1), UnitId(2)).is_err());
    assert!(!placement.remove(ServerId(2)) && placement.remove(ServerId(1)));
    assert!(placement.owners().iter().all(Option::is_none) && replicas(&placement, MicroShard(1)).is_empty());
}
