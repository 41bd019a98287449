//! How far the sweep of a partition has come.

/// Where the sweep of a partition is. Under the partition's lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The next bucket.
    pub(crate) bucket: u64,
    /// Number of the flush generation when the pass began.
    pub(crate) pass_generation: u64,
    /// Items of older generations than the one with this number are all gone.
    pub(crate) clean_generation: u64,
}

impl Progress {
    /// After everything older than the generation with this number was removed.
    pub(crate) fn clean(generation: u64) -> Self {
        Self { bucket: 0, pass_generation: generation, clean_generation: generation }
    }

    /// For the next process.
    pub(crate) fn to_words(&self) -> [u64; 3] {
        [self.bucket, self.pass_generation, self.clean_generation]
    }

    /// The inverse of [`Progress::to_words`].
    pub(crate) fn from_words([bucket, pass_generation, clean_generation]: [u64; 3]) -> Self {
        Self { bucket, pass_generation, clean_generation }
    }
}
