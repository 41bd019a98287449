//! Lanes of every kind of device.

mod common;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::{BLOCK, CAPACITY, LONG, Sample, all, lane, memory, read, results, run, write};
use minos_base::seeded_stream;
use minos_device::{Error, Lane, LaneOptions, Operation, Request};
use rand::RngExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PAGE: u64 = BLOCK as u64;

#[test]
fn a_vector_is_written_and_read() {
    for sample in all() {
        let mut lane = lane(&sample.device);
        let writes = (0..8).map(|page| write(&mut lane, 2 * page * PAGE, 1, page as u8 + 1)).collect();
        assert!(run(&mut lane, writes).iter().all(|ended| ended.result.is_ok()), "{}", sample.name);
        let reads = (0..8).rev().map(|page| read(&mut lane, page * 2 * PAGE, 2)).collect();
        for ended in run(&mut lane, reads) {
            let (mark, buffer) = ((ended.tag / PAGE / 2) as u8 + 1, ended.buffer.unwrap());
            assert!(buffer[..BLOCK].iter().all(|&byte| byte == mark), "{}", sample.name);
            assert!(buffer[BLOCK..].iter().all(|&byte| byte == 0), "{}", sample.name);
        }
        let counts = lane.counts();
        assert_eq!((counts.vectors, counts.writes, counts.reads), (2, 8, 8), "{}", sample.name);
        assert_eq!((counts.written_bytes, counts.read_bytes), (8 * PAGE, 16 * PAGE), "{}", sample.name);
    }
}

#[test]
fn lanes_see_each_others_writes() {
    for sample in all() {
        let (mut near, mut far) = (lane(&sample.device), lane(&sample.device));
        let vector = vec![write(&mut near, CAPACITY - PAGE, 1, 9)];
        run(&mut near, vector);
        let vector = vec![read(&mut far, CAPACITY - PAGE, 1)];
        assert!(run(&mut far, vector)[0].buffer.as_ref().unwrap().iter().all(|&byte| byte == 9));
    }
}

#[test]
fn a_request_that_is_wrong_fails_alone() {
    for sample in all() {
        let mut lane = lane(&sample.device);
        let vector = vec![
            read(&mut lane, 1, 1),
            read(&mut lane, CAPACITY, 1),
            write(&mut lane, CAPACITY - PAGE, 2, 1),
            read(&mut lane, u64::MAX / PAGE * PAGE, 1),
            read(&mut lane, 0, 1),
        ];
        let expected = [
            (0, Ok(())),
            (1, Err(Error::Misaligned)),
            (CAPACITY - PAGE, Err(Error::OutOfRange)),
            (CAPACITY, Err(Error::OutOfRange)),
            (u64::MAX / PAGE * PAGE, Err(Error::OutOfRange)),
        ];
        assert_eq!(results(&run(&mut lane, vector)), expected, "{}", sample.name);
        assert_eq!(lane.counts().failed, 4);
    }
}

#[test]
fn a_read_may_have_less_than_a_block() {
    // The disk below files may have larger blocks.
    let takes_sectors = |sample: &Sample| sample.device.geometry().read_block_bytes == 512;
    for sample in all().into_iter().filter(takes_sectors) {
        let mut lane = lane(&sample.device);
        let mut page = write(&mut lane, PAGE, 2, 0);
        let Operation::Write { buffer, .. } = &mut page.operation else { unreachable!() };
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512) as u8);
        run(&mut lane, vec![page]);
        let mut buffer = lane.buffer(2 * PAGE as usize).unwrap();
        buffer.fill(99);
        buffer.show(2560..5120);
        let mut ended = run(&mut lane, vec![Request::read(0, PAGE + 2560, buffer)]);
        let mut buffer = ended.remove(0).buffer.unwrap();
        buffer.show(0..2 * PAGE as usize);
        let sectors: Vec<u8> = buffer.chunks(512).map(|sector| sector[0]).collect();
        let rest = [99; 6];
        assert_eq!(sectors, [&[99; 5][..], &[5, 6, 7, 8, 9], &rest].concat(), "{}", sample.name);
        // A write has whole blocks.
        let mut buffer = lane.buffer(PAGE as usize).unwrap();
        buffer.show(0..512);
        let ended = run(&mut lane, vec![Request::write(0, PAGE, buffer)]);
        assert_eq!(results(&ended), [(0, Err(Error::Misaligned))], "{}", sample.name);
    }
}

#[test]
fn a_flush_follows_the_writes_in_front_of_it() {
    for sample in all() {
        let mut lane = lane(&sample.device);
        let mut vector: Vec<_> = (1..5).map(|page| write(&mut lane, page * PAGE, 1, 1)).collect();
        vector.insert(2, Request::flush(100));
        vector.push(Request::flush(101));
        vector.push(Request::flush(102));
        let order: Vec<_> = run(&mut lane, vector).iter().map(|ended| ended.tag).collect();
        let at = |tag| order.iter().position(|&other| other == tag).unwrap();
        assert!(at(PAGE) < at(100) && at(2 * PAGE) < at(100), "{}: {order:?}", sample.name);
        assert!((1..5).all(|page| at(page * PAGE) < at(101)), "{}: {order:?}", sample.name);
        assert_eq!(lane.counts().flushes, 3);
        // With nothing in front of it.
        let ended = run(&mut lane, vec![Request::flush(7)]);
        assert!(ended[0].buffer.is_none() && ended[0].result.is_ok());
    }
}

#[test]
fn a_vector_that_does_not_fit_is_refused_in_part_and_room_for_writes_is_kept() {
    for sample in all() {
        let kept = u64::from(sample.device.geometry().kept_for_writes);
        assert_eq!(kept, 2);
        let (mut first, mut second) = (lane(&sample.device), lane(&sample.device));
        let mut reads: Vec<_> = (0..16).map(|page| read(&mut first, page * PAGE, 1)).collect();
        assert_eq!(first.submit(&mut reads).unwrap(), 14, "{}", sample.name);
        let left: Vec<_> = reads.iter().map(|request| request.tag).collect();
        assert_eq!(left, [14 * PAGE, 15 * PAGE], "the order stays");
        // Of reads and writes on another lane only writes find room; what is behind a refused write stays.
        let mut mixed = vec![read(&mut second, 0, 1)];
        mixed.extend((20..23).map(|page| write(&mut second, page * PAGE, 1, 1)));
        mixed.push(Request::flush(100));
        assert_eq!(second.submit(&mut mixed).unwrap(), 2, "{}", sample.name);
        let left: Vec<_> = mixed.iter().map(|request| request.tag).collect();
        assert_eq!((left, second.counts().refused), (vec![0, 22 * PAGE, 100], 3));
        // Completions make room.
        let mut ended = Vec::new();
        while first.in_flight() > 0 {
            first.wait(14, LONG, &mut ended).unwrap();
        }
        assert_eq!((first.submit(&mut reads).unwrap(), second.submit(&mut mixed).unwrap()), (2, 3));
    }
}

#[test]
fn a_lane_takes_no_more_than_its_depth() {
    for sample in all() {
        let mut lane = sample.device.lane(&LaneOptions { depth: 3, ..LaneOptions::default() }).unwrap();
        let mut vector: Vec<_> = (0..5).map(|page| read(&mut lane, page * PAGE, 1)).collect();
        assert_eq!((lane.submit(&mut vector).unwrap(), lane.in_flight()), (3, 3), "{}", sample.name);
        let mut ended = Vec::new();
        lane.wait(usize::MAX, LONG, &mut ended).unwrap();
        assert_eq!((ended.len(), lane.submit(&mut vector).unwrap()), (3, 2), "{}", sample.name);
    }
}

#[test]
fn an_empty_pool_is_a_clear_error() {
    let mut lane =
        memory(None).lane(&LaneOptions { pool_bytes: 2 * BLOCK, ..LaneOptions::default() }).unwrap();
    let both = (lane.buffer(BLOCK).unwrap(), lane.buffer(BLOCK).unwrap());
    let error = lane.buffer(BLOCK).unwrap_err();
    assert_eq!(error.to_string(), "no buffer of 4096 bytes is free in a pool of 8192");
    assert_eq!(lane.counts().exhausted, 1);
    drop(both);
    assert_eq!(lane.buffer(2 * BLOCK).unwrap().len(), 2 * BLOCK);
}

/// Sleeps on a lane's descriptor; returns true if it became readable.
fn sleep(lane: &Lane, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    // A signal of the kernel to this thread ends the sleep too.
    poll(&mut [PollFd::from_borrowed_fd(lane.descriptor(), PollFlags::IN)], Some(&timeout))
        .is_ok_and(|n| n > 0)
}

#[test]
fn a_sleeper_is_woken() {
    for sample in all() {
        let mut lane = lane(&sample.device);
        for round in 0..20 {
            let mut vector = vec![write(&mut lane, round * PAGE, 1, 1), read(&mut lane, 100 * PAGE, 1)];
            lane.submit(&mut vector).unwrap();
            let mut ended = Vec::new();
            while ended.len() < 2 {
                lane.prepare().unwrap();
                if lane.complete(&mut ended).unwrap() == 0 {
                    sleep(&lane, 60);
                }
            }
        }
        lane.prepare().unwrap();
        assert!(!sleep(&lane, 0), "{}: an idle lane lets its owner sleep", sample.name);
    }
}

/// Vectors after each of which a thread sleeps with [`sleep`] until all of it has ended.
const SLEEPS: u64 = 1500;

#[test]
fn no_wake_up_is_lost() {
    for sample in all() {
        // Two sleepers, so that a thread loses its processor between any two steps.
        thread::scope(|scope| {
            let sleepers = [0, 1].map(|seed| {
                scope.spawn({
                    let sample = &sample;
                    move || sleep_often(sample, seed)
                })
            });
            sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
        });
    }
}

/// Submits vectors and sleeps, with more or less time between the two.
fn sleep_often(sample: &Sample, seed: u64) {
    let mut rng = seeded_stream(seed, 0);
    let mut lane = lane(&sample.device);
    let mut ended = Vec::new();
    for _ in 0..SLEEPS {
        let mut vector: Vec<_> =
            (0..rng.random_range(1..8)).map(|page| read(&mut lane, page * PAGE, 1)).collect();
        if rng.random_bool(0.1) {
            vector.push(write(&mut lane, 200 * PAGE, 1, 1));
            vector.push(Request::flush(1));
        }
        lane.submit(&mut vector).unwrap();
        (0..rng.random_range(0..2000)).for_each(|_| std::hint::spin_loop());
        while lane.in_flight() > 0 {
            lane.prepare().unwrap();
            (0..rng.random_range(0..200)).for_each(|_| std::hint::spin_loop());
            if lane.complete(&mut ended).unwrap() == 0 {
                let since = Instant::now();
                let was_woken = sleep(&lane, LONG.as_secs() as i64);
                assert!(was_woken || since.elapsed() < LONG, "{}: a wake-up was lost", sample.name);
            }
        }
        // Of the requests that found no room.
        drop(vector);
        ended.clear();
    }
}

#[test]
fn a_dropped_lane_waits_for_its_requests() {
    let mut in_time = 0;
    for sample in all() {
        let mut first = lane(&sample.device);
        let mut writes: Vec<_> = (0..16).map(|page| write(&mut first, page * PAGE, 1, 5)).collect();
        assert_eq!(first.submit(&mut writes).unwrap(), 16);
        let held = first.buffer(BLOCK).unwrap();
        let begun = Instant::now();
        drop(first);
        if begun.elapsed() >= Duration::from_secs(5) {
            // The disk stalls: a lane that is dropped waits no longer.
            continue;
        }
        in_time += 1;
        // The buffer is this thread's still, and all room is free again.
        assert_eq!(held.len(), BLOCK);
        let mut second = lane(&sample.device);
        let reads = (0..14).map(|page| read(&mut second, page * PAGE, 1)).collect();
        for ended in run(&mut second, reads) {
            assert!(ended.buffer.unwrap().iter().all(|&byte| byte == 5), "{}", sample.name);
        }
    }
    assert!(in_time > 0);
}

#[test]
#[should_panic(expected = "another lane")]
fn a_buffer_of_another_lane_is_not_taken() {
    let device = memory(None);
    let (mut near, mut far) = (lane(&device), lane(&device));
    let _ = near.submit(&mut vec![read(&mut far, 0, 1)]);
}
