use minos_rack::{MicroShards, UnitId};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::Index,
};

use super::*;
use crate::{Node, PARTS, Standing};

fn move_ids() -> impl Strategy<Value = MoveId> {
    (any::<u32>(), any::<u32>())
        .prop_map(|(micro_shard, number)| MoveId { micro_shard: MicroShard(micro_shard), number })
}

fn reports() -> impl Strategy<Value = Packet> {
    let progress = prop_oneof![
        Just(Progress::Giving),
        Just(Progress::Pulling),
        Just(Progress::Drained),
        Just(Progress::Failed),
        Just(Progress::Following),
        Just(Progress::Safe),
        Just(Progress::Given)
    ];
    let micro_shards = || vec(any::<u32>().prop_map(MicroShard), 0..4);
    let lists = (micro_shards(), micro_shards(), vec((move_ids(), progress), 0..4));
    let load = (any::<u64>(), any::<u64>(), any::<u64>());
    let heat = (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(micro_shard, reads, changes)| {
        let micro_shard = MicroShard(micro_shard);
        Heat { micro_shard, reads, changes }
    });
    let heat = (vec(heat, 0..3), any::<u32>());
    let load = option::of(load.prop_map(|(reads, writes, busy_us)| Load { reads, writes, busy_us }));
    let head = (any::<u32>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>());
    (head, lists, (load, any::<u32>(), heat)).prop_map(|(head, lists, (load, weights, (heat, sampled)))| {
        let (node, incarnation, sent_us, epoch, kept) = head;
        let (node, (withdrawn, lacking, moves)) = (ServerId(node), lists);
        Packet::Report(Report {
            node,
            incarnation,
            sent_us,
            epoch,
            kept,
            withdrawn,
            lacking,
            moves,
            load,
            weights,
            heat,
            sampled,
        })
    })
}

fn weights() -> impl Strategy<Value = Weights> {
    let parts = btree_map(any::<u32>().prop_map(ServerId), 0..=PARTS, 0..5);
    (1..u32::MAX, parts)
        .prop_map(|(version, parts)| Weights::new(version, parts).expect("parts within their bounds"))
}

fn orders() -> impl Strategy<Value = Packet> {
    let directory = (1u32..20, 0u32..5).prop_map(|(micro_shards, id)| {
        let (standing, address) = (Standing::Member, "host:1".to_owned());
        let node = Node { id: ServerId(id), unit: UnitId(0), standing, address };
        Arc::new(Directory::new(MicroShards::new(micro_shards).unwrap(), 1, vec![node]).unwrap())
    });
    let pull = (move_ids(), any::<u32>(), any::<u32>(), any::<bool>(), any::<u32>());
    let pull = pull.prop_map(|(id, from, epoch, is_follow, base)| {
        let from = ServerId(from);
        Pull { id, from, epoch, is_follow, base }
    });
    let pulls = vec(pull, 0..4);
    let head = (any::<u64>(), option::of(any::<u64>()), any::<u32>());
    let lists = (pulls, vec(move_ids(), 0..4));
    (head, option::of(directory), lists, option::of(weights().prop_map(Arc::new))).prop_map(
        |((incarnation, lease, epoch), directory, (pulls, cancelled), weights)| {
            Packet::Orders(Orders { incarnation, lease, epoch, directory, pulls, cancelled, weights })
        },
    )
}

fn messages() -> impl Strategy<Value = Packet> {
    let asked = (move_ids(), any::<u64>(), any::<u32>(), any::<u32>(), any::<bool>());
    let hashes = vec(any::<u64>().prop_map(KeyHash), 0..5);
    let more = (any::<u64>(), any::<u32>(), any::<u64>(), (any::<u64>(), any::<u32>()));
    let more = more.prop_map(|(incarnation, number, applied, (asked_us, due))| {
        let feed = FeedId { incarnation, number };
        More { feed, applied, asked_us, due }
    });
    (any::<u32>(), 0..10, asked, (hashes, more)).prop_map(|(from, kind, asked, (hashes, more))| {
        let (id, incarnation, epoch, batch, freeze) = asked;
        let asked = Asked { id, incarnation, epoch, batch, freeze };
        let message = match kind {
            0 => Message::Ask(asked),
            1 => Message::Changed { asked, hashes },
            2 => Message::Follow(asked),
            3 => Message::Followed(asked, more.feed),
            4 => Message::More(more),
            5 => {
                let changes = hashes.into_iter().map(|hash| (MicroShard(batch), hash)).collect();
                Message::Batch { more, epoch, changes }
            }
            6 => Message::Lost(more),
            7 => Message::Complete(asked),
            8 => Message::Take(asked, more.feed),
            _ => Message::Refused(asked),
        };
        Packet::Message(ServerId(from), message)
    })
}

fn packets() -> impl Strategy<Value = Packet> {
    prop_oneof![reports(), orders(), messages()]
}

proptest! {
    #[test]
    fn a_packet_survives_its_bytes(packet in packets()) {
        prop_assert_eq!(Packet::decode(&packet.encode()), Ok(packet));
    }

    /// Whatever the bytes, there is no panic; and what is accepted has those bytes alone.
    #[test]
    fn any_bytes_are_read_or_refused(
        packet in packets(), changes in vec((any::<Index>(), any::<u8>()), 0..4), end in option::of(any::<Index>()),
    ) {
        let mut bytes = packet.encode();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.map_or(bytes.len(), |end| end.index(bytes.len())));
        if let Ok(decoded) = Packet::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }
}
