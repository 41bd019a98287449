use super::*;
use proptest::prelude::*;

fn node(id: u32, unit: u32, standing: Standing) -> Node {
    Node { id: ServerId(id), unit: UnitId(unit), standing, address: format!("10.0.{unit}.{id}:11300") }
}

fn standing() -> impl Strategy<Value = Standing> {
    prop_oneof![Just(Standing::Joining), Just(Standing::Member), Just(Standing::Leaving)]
}

/// Any directory of a few nodes, after a few changes.
fn directories() -> impl Strategy<Value = Directory> {
    let nodes = proptest::collection::btree_map(0u32..20, (0u32..3, standing()), 1..6);
    let moves = proptest::collection::vec((0u32..40, 0usize..6, 0u32..2, any::<bool>()), 0..20);
    (nodes, 1u32..40, 1u32..3, moves).prop_map(|(nodes, micro_shards, copies, moves)| {
        let mut nodes: Vec<Node> =
            nodes.into_iter().map(|(id, (unit, standing))| node(id, unit, standing)).collect();
        nodes[0].standing = Standing::Member;
        let micro_shards = MicroShards::new(micro_shards).unwrap();
        let mut directory = Directory::new(micro_shards, copies, nodes.clone()).unwrap();
        for (micro_shard, index, since, is_serving) in moves {
            let (micro_shard, node) =
                (MicroShard(micro_shard % micro_shards.count()), &nodes[index % nodes.len()]);
            let place = Place { node: node.id, epoch: 0, since, is_serving };
            let number = since % 2;
            let follower = Follower { node: node.id, number, is_safe: is_serving };
            let followers = BTreeMap::from([(micro_shard, vec![follower; number as usize])]);
            let change =
                Change { places: BTreeMap::from([(micro_shard, place)]), followers, ..Change::default() };
            directory = directory.changed(change).unwrap();
        }
        directory
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_directory_survives_its_bytes(directory in directories()) {
        let decoded = Directory::decode(&directory.encode()).unwrap();
        prop_assert_eq!(&decoded, &directory);
        prop_assert!(!decoded.is_newer_than(&directory));
    }

    #[test]
    fn what_clients_are_shown_is_read(directory in directories(), version in 0u32..2, is_asked in any::<bool>()) {
        let weights = crate::Weights::new(version, BTreeMap::from([(ServerId(3), 5)])).ok();
        let mut bytes = directory.encode_places();
        bytes.extend(weights.as_ref().map_or(Vec::new(), crate::Weights::encode));
        if is_asked {
            bytes.extend(if weights.is_none() { &Shown::NO_WEIGHTS[..] } else { &[] });
            bytes.extend(directory.encode_copies());
        }
        let shown = Shown::decode(&bytes).unwrap();
        let nodes = |it: &Directory| it.places().map(|(_, place)| place.node).collect::<Vec<_>>();
        prop_assert_eq!(nodes(&shown.directory), nodes(&directory));
        prop_assert_eq!(shown.weights, weights);
        for (micro_shard, _) in directory.places() {
            let told = shown.copies.iter().filter(|(it, _)| *it == micro_shard).map(|(_, node)| *node);
            let known: BTreeSet<_> = shown.directory.wanted(micro_shard).chain(told).collect();
            let follows = |it: &Follower| !is_asked || known.contains(&it.node);
            prop_assert!(directory.followers(micro_shard).iter().all(follows));
        }
        prop_assert!(is_asked || shown.copies.is_empty());
    }

    /// Whatever the bytes, there is no panic; and what is accepted has those bytes alone.
    #[test]
    fn any_bytes_are_read_or_refused(
        directory in directories(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(), is_cut in any::<bool>(),
    ) {
        let mut bytes = directory.encode();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Ok(decoded) = Directory::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }

    #[test]
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Directory::decode(&bytes).is_err());
    }

    #[test]
    fn reads_go_to_the_writers_unit(directory in directories(), hash in any::<u64>()) {
        let hash = KeyHash(hash);
        let place = directory.place(directory.micro_shards().of(hash)).unwrap();
        let writer = directory.writer(hash);
        prop_assert_eq!(writer.map(|node| node.id), place.is_serving.then_some(place.node));
        let unit = directory.node(place.node).unwrap().unit;
        let expected = directory.nodes().iter().filter(|node| node.unit == unit && place.is_serving);
        prop_assert!(directory.readers(hash).eq(expected));
    }
}

#[test]
fn clients_are_not_told_of_places_where_the_ring_puts_them() {
    let nodes = vec![node(0, 0, Standing::Member)];
    let directory = Directory::new(MicroShards::new(256).unwrap(), 1, nodes).unwrap();
    let before = directory.encode_places().len();
    // All its micro-shards have been taken over again.
    let places = directory.places().collect();
    let directory = directory.changed(Change { places, ..Change::default() }).unwrap();
    assert_eq!(directory.encode_places().len(), before);
    assert!(directory.encode().len() > before + 256);
}

#[test]
fn a_change_has_the_next_epoch() {
    let first = Directory::new(
        MicroShards::new(64).unwrap(),
        1,
        vec![node(1, 0, Standing::Member), node(2, 0, Standing::Member)],
    );
    let first = first.unwrap();
    let old = first.place(MicroShard(3)).unwrap();
    let moved = Place { node: ServerId(3 - old.node.0), epoch: 0, since: 0, is_serving: true };
    let second = first
        .changed(Change { places: BTreeMap::from([(MicroShard(3), moved)]), ..Change::default() })
        .unwrap();
    assert!(second.is_newer_than(&first) && !first.is_newer_than(&second));
    assert_eq!(second.place(MicroShard(3)), Some(Place { epoch: 2, since: 2, ..moved }));
    // A node more changes the ring, and no place.
    let mut nodes = second.nodes().to_vec();
    nodes.push(node(7, 1, Standing::Joining));
    let third = second.changed(Change { nodes: Some(nodes), ..Change::default() }).unwrap();
    assert!(third.places().eq(second.places()) && third.epoch() == 3);
    assert!(third.micro_shards().iter().any(|m| third.target(m) == Some(ServerId(7))));
}

#[test]
fn contradictions_are_refused() {
    let shards = MicroShards::new(8).unwrap();
    let said = |nodes| Directory::new(shards, 1, nodes).unwrap_err().to_string();
    assert_eq!(said(vec![]), "not a directory: no node stays");
    assert_eq!(said(vec![node(1, 0, Standing::Leaving)]), "not a directory: no node stays");
    let twice = vec![node(1, 0, Standing::Member), node(1, 2, Standing::Member)];
    assert_eq!(said(twice), "not a directory: a node is there twice");
    let long = Node { address: "x".repeat(256), ..node(1, 0, Standing::Member) };
    assert_eq!(said(vec![long]), "not a directory: an address is too long");
    let high = vec![node(1, 0, Standing::Member), node(64, 0, Standing::Member)];
    assert_eq!(said(high), "not a directory: a node has a number above 63");
    let directory = Directory::new(shards, 1, vec![node(1, 0, Standing::Member)]).unwrap();
    let nowhere = Place { node: ServerId(2), epoch: 0, since: 0, is_serving: true };
    let change = Change { places: BTreeMap::from([(MicroShard(0), nowhere)]), ..Change::default() };
    assert!(directory.changed(change).is_err());
}
