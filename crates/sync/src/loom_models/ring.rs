//! Rings between producers and consumers.

use super::{beside, explore};
use crate::Ring;
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

#[test]
fn loom_ring_hands_over_each_value_once() {
    explore(|| {
        let ring = Arc::new(Ring::new(2));
        let producers =
            [10u64, 20].map(|value| beside(&ring, move |ring| ring.push(Box::new(value)).unwrap()));
        let first = ring.pop();
        for producer in producers {
            producer.join().unwrap();
        }
        let rest = std::iter::from_fn(|| ring.pop());
        let mut values: Vec<u64> = first.into_iter().chain(rest).map(|value| *value).collect();
        values.sort_unstable();
        assert_eq!(values, [10, 20]);
    });
}

#[test]
fn loom_ring_slots_are_used_again() {
    explore(|| {
        let ring = Arc::new(Ring::new(2));
        ring.push(1u64).unwrap();
        ring.push(2).unwrap();
        let consumer = beside(&ring, |ring| ring.pop());
        let third = ring.push(3);
        let popped = consumer.join().unwrap();
        assert_eq!(popped, Some(1));
        let rest: Vec<u64> = std::iter::from_fn(|| ring.pop()).collect();
        assert_eq!(rest, if third.is_ok() { vec![2, 3] } else { vec![2] });
    });
}

/// A ring of one slot whose number is raised before the value is there: loom sees the race.
#[test]
#[should_panic(expected = "Causality violation")]
fn loom_control_ring_publishes_too_early() {
    explore(|| {
        let slot = Arc::new((AtomicU64::new(0), loom::cell::UnsafeCell::new(0u64)));
        let producer = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                slot.0.store(1, Ordering::Release);
                // SAFETY: none; this is the error that loom is to find, in loom's own cell.
                slot.1.with_mut(|value| unsafe { *value = 7 });
            })
        };
        if slot.0.load(Ordering::Acquire) == 1 {
            // SAFETY: as above.
            slot.1.with(|value| unsafe { *value });
        }
        producer.join().unwrap();
    });
}

/// Two poppers take each value at most once and lose none, while one more value may be pushed.
fn two_poppers(first: &'static [u64], pushed: Option<u64>) {
    explore(move || {
        let ring = Arc::new(Ring::new(2));
        first.iter().for_each(|&value| ring.push(Box::new(value)).unwrap());
        let poppers = [(); 2].map(|()| beside(&ring, |ring| ring.pop()));
        if let Some(value) = pushed {
            ring.push(Box::new(value)).unwrap();
        }
        let taken = poppers.map(|popper| popper.join().unwrap());
        let missed = taken.iter().filter(|value| value.is_none()).count();
        assert!(missed == 0 || first.len() < 2, "one popper has hidden a value from the other");
        let left = std::iter::from_fn(|| ring.pop());
        let mut values: Vec<u64> = taken.into_iter().flatten().chain(left).map(|value| *value).collect();
        values.sort_unstable();
        let brought: Vec<u64> = first.iter().copied().chain(pushed).collect();
        assert_eq!(values, brought, "taken twice or lost");
    });
}

#[test]
fn loom_ring_gives_two_poppers_a_value_each() {
    two_poppers(&[10, 20], None);
}

#[test]
fn loom_ring_gives_each_value_to_one_popper() {
    two_poppers(&[10], Some(20));
}

/// Poppers that read the position and then write the next one, instead of claiming it in one step.
#[test]
#[should_panic(expected = "taken twice or lost")]
fn loom_control_ring_positions_are_not_claimed() {
    explore(|| {
        let head = Arc::new(AtomicU64::new(0));
        let pop = |head: &AtomicU64| {
            let position = head.load(Ordering::Acquire);
            head.store(position + 1, Ordering::Release);
            position
        };
        let popper = beside(&head, move |head| pop(head));
        let taken = [pop(&head), popper.join().unwrap()];
        assert_ne!(taken[0], taken[1], "taken twice or lost");
    });
}
