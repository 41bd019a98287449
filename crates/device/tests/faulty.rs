//! The faulty twin: each fault happens when it is on, none when it is off, and power losses keep what was flushed.

mod common;

use std::collections::BTreeSet;

use common::{BLOCK, CAPACITY, CREATE, LONG, lane, memory, read, run, write};
use minos_base::seeded;
use minos_device::{
    Completion, Device, Error, Lane, Request,
    faulty::{FaultCounts, Faults, Twin},
};
use rand::RngExt as _;

const PAGE: u64 = BLOCK as u64;
const PAGES: u64 = CAPACITY / PAGE;

fn twin(faults: Faults, seed: u64) -> Twin {
    Twin::over(memory(None), faults, seed)
}

/// The differences that random writes and reads show between a device and plain bytes.
#[derive(Debug, Default, PartialEq)]
struct Differences {
    failed: u64,
    short: u64,
    wrong: u64,
    /// The most polls that a vector took.
    polls_max: u64,
}

fn differences(twin: &Twin, seed: u64) -> Differences {
    let device = twin.device();
    let (mut lane, mut rng) = (lane(&device), seeded(seed));
    let mut bytes = vec![0; CAPACITY as usize];
    let mut found = Differences::default();
    for round in 0..400u64 {
        let (from, blocks) = (rng.random_range(0..PAGES - 4), rng.random_range(1..5));
        let (at, len) = (from as usize * BLOCK, blocks * BLOCK);
        let is_write = rng.random_bool(0.5);
        let mark = rng.random_range(1..255);
        let mut request = vec![if is_write {
            write(&mut lane, at as u64, blocks, mark)
        } else {
            read(&mut lane, at as u64, blocks)
        }];
        if is_write {
            bytes[at..at + len].fill(mark);
        }
        if round % 8 == 0 {
            request.push(Request::flush(1));
        }
        let (width, mut ended, mut polls) = (request.len(), Vec::new(), 0);
        lane.submit(&mut request).unwrap();
        while ended.len() < width {
            polls += 1;
            lane.complete(&mut ended).unwrap();
        }
        found.polls_max = found.polls_max.max(polls);
        for Completion { buffer, result, .. } in ended {
            match result {
                Ok(()) if is_write => {}
                Ok(()) => {
                    found.wrong += u64::from(buffer.is_some_and(|buffer| buffer[..] != bytes[at..at + len]))
                }
                Err(Error::Short { .. }) => found.short += 1,
                Err(Error::Io(5)) => found.failed += 1,
                Err(error) => panic!("{error}"),
            }
            if result.is_err() && is_write {
                // Whatever is there now is right.
                bytes[at..at + len].copy_from_slice(&twin.peek(at as u64, len));
            }
        }
    }
    found
}

#[test]
fn without_faults_it_is_plain_bytes() {
    let twin = twin(Faults::none(), 1);
    let Differences { failed, short, wrong, .. } = differences(&twin, 1);
    assert_eq!((failed, short, wrong), (0, 0, 0));
    assert_eq!(twin.counts(), FaultCounts::default());
}

/// A fault, how often it happened, and the differences that it makes.
type Case = (&'static str, Faults, fn(&FaultCounts) -> u64, fn(&Differences) -> u64);

#[test]
fn each_fault_is_seen_when_it_is_on() {
    const NONE: Faults = Faults {
        eio: 0.0,
        short: 0.0,
        slow: 0.0,
        slow_polls_max: 0,
        flush_eio: 0.0,
        torn: 0.0,
        lost: 0.0,
        misdirected: 0.0,
        misread: 0.0,
        rot: 0.0,
        flush_ignored: 0.0,
    };
    let cases: [Case; 8] = [
        ("eio", Faults { eio: 0.1, ..NONE }, |counts| counts.eio, |found| found.failed),
        ("short", Faults { short: 0.1, ..NONE }, |counts| counts.short, |found| found.short),
        ("flush_eio", Faults { flush_eio: 0.5, ..NONE }, |counts| counts.flush_eio, |found| found.failed),
        ("torn", Faults { torn: 0.1, ..NONE }, |counts| counts.torn, |found| found.wrong),
        ("lost", Faults { lost: 0.1, ..NONE }, |counts| counts.lost, |found| found.wrong),
        (
            "misdirected",
            Faults { misdirected: 0.1, ..NONE },
            |counts| counts.misdirected,
            |found| found.wrong,
        ),
        ("misread", Faults { misread: 0.1, ..NONE }, |counts| counts.misread, |found| found.wrong),
        ("rot", Faults { rot: 0.1, ..NONE }, |counts| counts.rot, |found| found.wrong),
    ];
    for (name, faults, count, difference) in cases {
        let faulty = twin(faults, 7);
        let found = differences(&faulty, 7);
        let counts = faulty.counts();
        assert!(count(&counts) > 5 && difference(&found) > 5, "{name}: {counts:?} {found:?}");
        // Nothing else happened.
        let Differences { failed, short, wrong, .. } = found;
        assert_eq!(failed + short + wrong, difference(&found), "{name}: {found:?}");
        let again = twin(faults, 7);
        assert_eq!(
            (differences(&again, 7), again.counts()),
            (found, counts),
            "{name}: a seed tells everything"
        );
    }
}

#[test]
fn slow_requests_take_longer_and_hold_up_no_others() {
    let quick = differences(&twin(Faults::none(), 3), 3);
    let slow = differences(&twin(Faults { slow: 0.2, slow_polls_max: 100, ..Faults::none() }, 3), 3);
    assert!(slow.polls_max > quick.polls_max + 50, "{slow:?} {quick:?}");
    assert_eq!(slow.wrong, 0);
}

#[test]
fn the_faults_of_the_contract_lose_nothing_that_succeeded() {
    for seed in 0..20 {
        let twin = twin(Faults::permitted(), seed);
        let found = differences(&twin, seed);
        assert!(found.wrong == 0 && found.failed > 0 && found.short > 0, "{found:?}");
    }
}

/// Marks of the four pages at the front after: flush of 1, writes of 2 and 3 without a flush, power loss.
fn marks_after_a_cut(device: Device, seed: u64) -> Vec<u8> {
    let twin = Twin::over(device, Faults::none(), seed);
    let mut lane = lane(&twin.device());
    for mark in 1..4 {
        let mut vector = vec![write(&mut lane, 0, 4, mark)];
        if mark == 1 {
            vector.push(Request::flush(9));
        }
        run(&mut lane, vector);
    }
    twin.cut_power();
    assert_eq!(twin.counts().power_losses, 1);
    let device = twin.device();
    let mut lane = common::lane(&device);
    let vector = vec![read(&mut lane, 0, 4)];
    let ended = run(&mut lane, vector);
    let pages = ended[0].buffer.as_ref().unwrap().chunks(BLOCK);
    pages.inspect(|page| assert!(page.iter().all(|byte| byte == &page[0]))).map(|page| page[0]).collect()
}

#[test]
fn a_power_loss_leaves_any_state_since_the_last_flush() {
    let outcomes: BTreeSet<_> = (0..2000).map(|seed| marks_after_a_cut(memory(None), seed)).collect();
    // Three states of each of four blocks.
    assert_eq!(outcomes.len(), 81);
    assert!(outcomes.iter().flatten().all(|mark| (1..4).contains(mark)));
}

#[test]
fn a_file_has_a_faulty_twin_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    for seed in 0..10 {
        let marks = marks_after_a_cut(Device::open(&path, &CREATE).unwrap(), seed);
        assert!(marks.iter().all(|mark| (1..4).contains(mark)), "{marks:?}");
    }
}

#[test]
fn after_a_power_loss_everything_is_gone_until_the_device_is_opened_again() {
    let twin = twin(Faults::none(), 1);
    let (device, mut lane) = (twin.device(), lane(&twin.device()));
    let mut vector = vec![write(&mut lane, 0, 1, 1), read(&mut lane, PAGE, 1), Request::flush(3)];
    assert_eq!(lane.submit(&mut vector).unwrap(), 3);
    twin.cut_power();
    let mut ended = Vec::new();
    lane.wait(3, LONG, &mut ended).unwrap();
    assert!(ended.iter().all(|ended| ended.result == Err(Error::Gone)), "{ended:?}");
    // The device of before stays gone when the power is back.
    let (mut before, mut after) = (common::lane(&device), common::lane(&twin.device()));
    for (lane, result) in [(&mut before, Err(Error::Gone)), (&mut after, Ok(()))] {
        let vector = vec![read(lane, 0, 1)];
        assert_eq!(run(lane, vector)[0].result, result);
    }
}

fn mark(page: u64) -> u8 {
    (page % 255) as u8 + 1
}

/// Writes numbered pages with a flush after each second one until the power fails; returns the pages whose flush
/// succeeded.
fn log_until_the_cut(lane: &mut Lane) -> u64 {
    let mut durable = 0;
    for page in 0..PAGES {
        let mut vector = vec![write(lane, page * PAGE, 1, mark(page))];
        if page % 2 == 1 {
            vector.push(Request::flush(u64::MAX));
        }
        let ended = run(lane, vector);
        if ended.iter().any(|ended| ended.result.is_err()) {
            break;
        }
        if page % 2 == 1 {
            durable = page + 1;
        }
    }
    durable
}

/// Pages that were reported as durable and are not there after a power loss, over all points of such losses.
fn durable_pages_lost(faults: Faults) -> u64 {
    let mut lost = 0;
    for cut in 0..PAGES {
        let twin = twin(faults, cut);
        twin.cut_power_after(cut);
        let durable = log_until_the_cut(&mut lane(&twin.device()));
        assert_eq!((twin.counts().power_losses, twin.blocks_stored()), (1, cut));
        twin.device();
        lost += (0..durable).filter(|page| twin.peek(page * PAGE, 1) != [mark(*page)]).count() as u64;
    }
    lost
}

#[test]
fn flushed_pages_survive_a_power_loss_at_any_write() {
    assert_eq!(durable_pages_lost(Faults::none()), 0);
    // A control: with flushes that do nothing pages are lost.
    assert!(durable_pages_lost(Faults { flush_ignored: 1.0, ..Faults::none() }) > 100);
}

#[test]
fn bytes_are_changed_behind_everyones_back() {
    let twin = twin(Faults::none(), 1);
    let mut lane = lane(&twin.device());
    let vector = vec![write(&mut lane, 0, 2, 5)];
    run(&mut lane, vector);
    twin.poke(PAGE - 1, &[1, 2]);
    assert_eq!(twin.peek(PAGE - 2, 4), [5, 1, 2, 5]);
    twin.cut_power();
    assert_eq!(twin.peek(PAGE - 1, 2), [1, 2], "whatever state a power loss leaves");
}
