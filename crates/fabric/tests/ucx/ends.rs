//! Peers that end, over transports by which the owner answers.

use super::{fabric, owner::Owner};
use minos_engine::remote::{Completion, Fabric, RemoteSketch};
use minos_fabric::ucx::{Ucx, Way};
use minos_net::{Wait, wait_readable};
use std::{
    os::fd::AsFd,
    time::{Duration, Instant},
};

/// Reads that are under way at a time.
const READS: u64 = 100;
/// How long something may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether so many reads bring words, of those that end until nothing does for a while.
fn read(fabric: &mut Ucx, reads: u64) -> Vec<bool> {
    (0..reads).for_each(|token| fabric.read(0, &[RemoteSketch::HEADER], token));
    ended(fabric, reads as usize)
}

fn ended(fabric: &mut Ucx, reads: usize) -> Vec<bool> {
    let (mut ended, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while ended.len() < reads {
        assert!(Instant::now() < deadline, "{} of {reads} have ended", ended.len());
        fabric.poll(|Completion { words, .. }| ended.push(words.is_some()));
        if fabric.arm() {
            wait_readable(&[fabric.as_fd()], Wait::For(Duration::from_millis(100))).unwrap();
        }
    }
    ended
}

#[test]
fn reads_of_a_peer_that_ends_end() {
    let mut owner = Owner::start();
    let mut fabric = fabric(&owner.advertisement, Way::Get);
    assert_eq!(read(&mut fabric, READS), vec![true; READS as usize]);
    owner.kill();
    let is_one_sided = fabric.is_mapped(0);
    let after = read(&mut fabric, READS);
    assert!(is_one_sided || after.iter().all(|is_read| !is_read), "{after:?}");
    // The next one takes its place.
    fabric.disconnect(0);
    assert_eq!(read(&mut fabric, 1), [false]);
    let owner = Owner::start();
    // SAFETY: it is of a test's own memory, which keeps its length.
    assert_eq!(unsafe { fabric.connect(&owner.advertisement) }, Ok(0));
    assert_eq!(read(&mut fabric, READS), vec![true; READS as usize]);
    // Some are under way when the peer is left.
    (0..READS).for_each(|token| fabric.read(0, &[RemoteSketch::HEADER], token));
    fabric.disconnect(0);
    assert_eq!(ended(&mut fabric, READS as usize).len(), READS as usize);
}
