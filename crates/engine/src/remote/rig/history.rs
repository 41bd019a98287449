//! What was true when.

use std::ops::RangeInclusive;

/// The items and the owner, from one instant to the next change.
#[derive(Clone, Debug)]
pub struct Truth {
    /// False while nobody may answer from this memory.
    pub is_owned: bool,
    /// By number of key.
    pub values: Vec<Option<Vec<u8>>>,
}

/// All changes in the order of time.
#[derive(Clone, Debug)]
pub struct History(Vec<(u64, Truth)>);

impl History {
    /// Nothing is there yet.
    pub fn new(keys: usize) -> Self {
        Self(vec![(0, Truth { is_owned: true, values: vec![None; keys] })])
    }

    /// From `now` on, something else is true.
    pub fn change(&mut self, now: u64, change: impl FnOnce(&mut Truth)) {
        let mut truth = self.last().clone();
        change(&mut truth);
        self.0.push((now, truth));
    }

    /// What is true now.
    pub fn last(&self) -> &Truth {
        &self.0.last().expect("it begins with the first truth").1
    }

    /// True if the key had this value at an instant of `times` at which the memory was its owner's.
    pub fn held(&self, times: RangeInclusive<u64>, key: usize, value: Option<&[u8]>) -> bool {
        let mut end = u64::MAX;
        for (begin, truth) in self.0.iter().rev() {
            let lasts = begin <= times.end() && end > *times.start();
            if lasts && truth.is_owned && truth.values[key].as_deref() == value {
                return true;
            }
            if begin < times.start() {
                return false;
            }
            end = *begin;
        }
        false
    }
}
