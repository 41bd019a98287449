//! Nodes of a rack above flash, whose memory is so small that what was stored is soon on flash alone.

use std::time::{Duration, Instant};

use minos_testkit::Client;

use super::wire::{Connection, Reply, array};

/// The memory of such a node.
pub(crate) const MEMORY: &str = "4m";
/// Keys whose items take the whole memory of two nodes, and bytes of their values.
const KEYS: usize = 2000;
const VALUE_BYTES: usize = 4000;
const PATIENCE: Duration = Duration::from_secs(60);

fn name(number: usize) -> Vec<u8> {
    format!("push{number}").into_bytes()
}

/// Lets everything else that is stored be on flash alone.
pub(crate) fn fill(connection: &mut Connection) {
    let (mut left, begun): (Vec<_>, _) = ((0..KEYS).collect(), Instant::now());
    while !left.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "flash takes nothing");
        for burst in std::mem::take(&mut left).chunks(100) {
            let set = |number: &usize| array(&[b"set".to_vec(), name(*number), vec![b'x'; VALUE_BYTES]]);
            connection.send(&burst.iter().flat_map(set).collect::<Vec<_>>(), usize::MAX);
            // On a busy machine flash may be behind for longer than a request waits.
            left.extend(burst.iter().filter(|_| connection.reply() != Some(Reply::Simple("OK".to_owned()))));
        }
    }
}

/// The same. The keys that have pushed it out are deleted, though most are on flash themselves.
pub(crate) fn push_out(connection: &mut Connection) {
    fill(connection);
    for burst in (0..KEYS).collect::<Vec<_>>().chunks(250) {
        let words: Vec<_> = [b"del".to_vec()].into_iter().chain(burst.iter().copied().map(name)).collect();
        connection.send(&array(&words), usize::MAX);
        let Some(Reply::Integer(deleted)) = connection.reply() else { panic!("no number") };
        // A cache that is loaded faster than flash takes items, as on a busy machine, loses some.
        assert!((1..=burst.len() as i64).contains(&deleted), "{deleted}");
    }
}

/// Items that a node has read from flash.
pub(crate) fn reads(node: &mut Client) -> u64 {
    let stats = node.stats("flash").unwrap();
    stats.iter().find(|(name, _)| name == "read_found").expect("a counter").1.parse().unwrap()
}
