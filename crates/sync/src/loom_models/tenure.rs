//! A reader of another process beside an owner that restarts.

use super::{beside, explore};
use crate::tenure;
use loom::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Word of a tenure that has ended.
const NOBODY: u64 = 0;

/// Data without a version, and the tenure under which it is valid. Tenure `n` has the values `n`.
struct Owned {
    tenure: AtomicU64,
    data: [AtomicU64; 2],
}

impl Owned {
    fn new() -> Self {
        Self { tenure: AtomicU64::new(1), data: [1, 1].map(AtomicU64::new) }
    }

    fn repair(&self) {
        self.data.iter().for_each(|word| word.store(2, Ordering::Relaxed));
    }

    fn restart(&self) {
        tenure::end(std::slice::from_ref(&self.tenure), |_| NOBODY);
        self.repair();
        tenure::begin(&self.tenure, 2);
    }

    /// As [`Owned::restart`], but the repair begins before the tenure has ended.
    fn restart_after_repairing(&self) {
        self.repair();
        tenure::end(std::slice::from_ref(&self.tenure), |_| NOBODY);
        tenure::begin(&self.tenure, 2);
    }

    /// As [`Owned::restart`], but without the fence behind the end of the tenure.
    fn restart_without_fence(&self) {
        self.tenure.store(NOBODY, Ordering::Relaxed);
        self.repair();
        self.tenure.store(2, Ordering::Release);
    }

    /// The tenure and the data, if there was one throughout.
    fn read(&self) -> Option<(u64, [u64; 2])> {
        let (seen, data) = self.read_without_second_look()?;
        tenure::still(&self.tenure, seen).then_some((seen, data))
    }

    /// As [`Owned::read`], but without looking at the tenure again.
    fn read_without_second_look(&self) -> Option<(u64, [u64; 2])> {
        let seen = tenure::look(&self.tenure);
        let data = [0, 1].map(|at| self.data[at].load(Ordering::Relaxed));
        (seen != NOBODY).then_some((seen, data))
    }
}

fn reader_beside_restart(restart: fn(&Owned), read: fn(&Owned) -> Option<(u64, [u64; 2])>) {
    explore(move || {
        let owned = Arc::new(Owned::new());
        let owner = beside(&owned, move |owned| restart(owned));
        if let Some((tenure, data)) = read(&owned) {
            assert_eq!(data, [tenure; 2], "of another tenure");
        }
        owner.join().unwrap();
        assert_eq!(owned.read(), Some((2, [2, 2])));
    });
}

#[test]
fn loom_a_restart_is_noticed() {
    reader_beside_restart(Owned::restart, Owned::read);
}

#[test]
#[should_panic(expected = "of another tenure")]
fn loom_control_tenure_without_second_look() {
    reader_beside_restart(Owned::restart, Owned::read_without_second_look);
}

#[test]
#[should_panic(expected = "of another tenure")]
fn loom_control_tenure_that_ends_after_the_repair() {
    reader_beside_restart(Owned::restart_after_repairing, Owned::read);
}

#[test]
#[should_panic(expected = "of another tenure")]
fn loom_control_tenure_without_fence() {
    reader_beside_restart(Owned::restart_without_fence, Owned::read);
}
