//! Differences that are no defect if they are seldom.

/// Why a run of a sequence may end at a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excuse {
    /// memcached alone refuses to count. Version 1.6.18 looks for a minus sign in a number of 2^63 or more, and does not stop
    /// at its end: it takes the number for none if one is in the memory behind it, from what was there before
    /// (`safe_strtoull`).
    Confused,
    /// Minos alone has not recorded that an item was read: it does not wait for a writer in the partition for that, which may
    /// be a thread that keeps house and has lost its processor.
    Unrecorded,
}

/// Runs of sequences, and those that ended with an excuse. A server that is wrong would need one in most of them.
#[derive(Default)]
pub(crate) struct Excuses {
    runs: u64,
    seen: [u64; 2],
}

impl Excuses {
    /// Begins a run; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    /// True if this is excused: few runs have ended so.
    pub(crate) fn accept(&mut self, excuse: Excuse) -> bool {
        let seen = &mut self.seen[excuse as usize];
        *seen += 1;
        *seen <= 2 + self.runs / 50
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_accepted() {
        let mut excuses = Excuses::default();
        let accepts = |excuses: &mut Excuses, every: u64, excuse| {
            (0..100).all(|_| !excuses.begin().is_multiple_of(every) || excuses.accept(excuse))
        };
        assert!(accepts(&mut excuses, 50, Excuse::Confused));
        assert!(!accepts(&mut excuses, 5, Excuse::Confused));
        assert!(accepts(&mut excuses, 50, Excuse::Unrecorded));
    }
}
