//! A bounded queue between many producers and many consumers.

use crate::facade::{AtomicUsize, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::{fmt, mem::MaybeUninit};

/// A bounded multi-producer multi-consumer queue (Vyukov's, with a sequence number per slot).
///
/// It allocates nothing after its creation, and neither end ever waits: a full ring refuses, and the caller
/// keeps the value at its source (back-pressure).
///
/// Slot `i` passes through the numbers `i` (free for the push at position `i`), `i + 1` (holds
/// the value of that push) and `i + capacity` (free for the push one round later).
pub struct Ring<T> {
    /// Position of the next pop. Claimed by consumers with a compare-exchange.
    head: CachePadded<AtomicUsize>,
    /// Position of the next push. Claimed by producers with a compare-exchange.
    tail: CachePadded<AtomicUsize>,
    slots: Box<[Slot<T>]>,
}

struct Slot<T> {
    sequence: AtomicUsize,
    /// Belongs to the thread that claimed the position in `sequence`.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a value is moved in by one thread and out by one thread, with the slot's sequence number
// (release, acquire) between the two; the ring never hands out references.
unsafe impl<T: Send> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    /// A ring for `capacity` values, rounded up to a power of two, at least 2.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(2).next_power_of_two();
        let slot = |sequence| Slot {
            sequence: AtomicUsize::new(sequence),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..capacity).map(slot).collect(),
        }
    }

    /// How many values fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many values are in the ring, or were a moment ago.
    pub fn len(&self) -> usize {
        // Relaxed: a hint; the two loads are not one moment, so the difference is clamped.
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        let len = tail.wrapping_sub(head);
        if len > isize::MAX as usize { 0 } else { len.min(self.capacity()) }
    }

    /// True if the ring is empty, or was a moment ago.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `value`; returns it when the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        // Relaxed: the position is only a guess until the compare-exchange; the slot's own
        // sequence number orders its contents.
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            // Acquire: pairs with the release of the pop that emptied the slot one round ago.
            let sequence = slot.sequence.load(Ordering::Acquire);
            match sequence.wrapping_sub(position) as isize {
                0 => match self.claim(&self.tail, position) {
                    Ok(()) => {
                        // SAFETY: the claim made this thread the only one at `position`, and the
                        // sequence number says that the slot is empty.
                        slot.value.with_mut(|cell| unsafe { (*cell).write(value) });
                        // Release: the pop that sees this number sees the value.
                        slot.sequence.store(position.wrapping_add(1), Ordering::Release);
                        return Ok(());
                    }
                    Err(now) => position = now,
                },
                behind if behind < 0 => return Err(value),
                _ => position = self.tail.load(Ordering::Relaxed),
            }
        }
    }

    /// Takes the oldest value, if there is one.
    pub fn pop(&self) -> Option<T> {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            // Acquire: pairs with the release of the push that filled the slot.
            let sequence = slot.sequence.load(Ordering::Acquire);
            match sequence.wrapping_sub(position.wrapping_add(1)) as isize {
                0 => match self.claim(&self.head, position) {
                    Ok(()) => {
                        // SAFETY: the claim made this thread the only one at `position`, and the
                        // sequence number says that the slot holds a value.
                        let value = slot.value.with_mut(|cell| unsafe { (*cell).assume_init_read() });
                        // Release: the push that reuses the slot comes after this read.
                        let free = position.wrapping_add(self.capacity());
                        slot.sequence.store(free, Ordering::Release);
                        return Some(value);
                    }
                    Err(now) => position = now,
                },
                behind if behind < 0 => return None,
                _ => position = self.head.load(Ordering::Relaxed),
            }
        }
    }

    fn slot(&self, position: usize) -> &Slot<T> {
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Moves `end` from `position` to the next one, or returns its present position.
    fn claim(&self, end: &AtomicUsize, position: usize) -> Result<(), usize> {
        let next = position.wrapping_add(1);
        // Relaxed: decides only which thread owns the position; the sequence number orders the contents.
        end.compare_exchange_weak(position, next, Ordering::Relaxed, Ordering::Relaxed).map(drop)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, AtomicUsize as Count},
        },
        thread,
    };

    #[test]
    fn first_in_first_out_until_full() {
        let ring = Ring::new(3);
        assert_eq!((ring.capacity(), ring.len(), ring.pop()), (4, 0, None));
        for round in 0..10 {
            for value in 0..4 {
                assert_eq!(ring.push(round * 4 + value), Ok(()));
            }
            assert_eq!(ring.push(99), Err(99));
            assert_eq!(ring.len(), 4);
            for value in 0..4 {
                assert_eq!(ring.pop(), Some(round * 4 + value));
            }
            assert!(ring.is_empty());
        }
    }

    #[test]
    fn what_is_left_is_dropped() {
        let value = Arc::new(());
        let ring = Ring::new(8);
        for _ in 0..5 {
            ring.push(Arc::clone(&value)).unwrap();
        }
        drop(ring.pop());
        drop(ring);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn nothing_is_lost_or_doubled_between_threads() {
        const EACH: u64 = 20_000;
        let (ring, sum, count) = (Ring::new(16), AtomicU64::new(0), Count::new(0));
        let produce = |producer| {
            for value in 0..EACH {
                let mut value = producer * EACH + value;
                while let Err(back) = ring.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        };
        let consume = || {
            while count.load(Ordering::Relaxed) < 2 * EACH as usize {
                match ring.pop() {
                    Some(value) => {
                        sum.fetch_add(value, Ordering::Relaxed);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    None => thread::yield_now(),
                }
            }
        };
        thread::scope(|scope| {
            let producers = [0, 1].map(|producer| scope.spawn(move || produce(producer)));
            let consumers = [(); 2].map(|()| scope.spawn(consume));
            producers.into_iter().chain(consumers).for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(sum.into_inner(), (0..2 * EACH).sum());
    }
}
