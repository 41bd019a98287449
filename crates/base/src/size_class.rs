//! Size classes: the unit in which sizes are counted, compared and kept in index slots.

/// Largest value any store can hold, in bytes (1 GiB).
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Classes per power of two. 32 of them keep a class at most 1/32 (3.2 %) wide.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// A log-linear class of value sizes, at most 3.2 % wide, from 0 bytes to [`VALUE_BYTES_MAX`].
///
/// Classes below 64 bytes hold exactly one size. The paper's classes are powers of two
/// (Minos §5.2); finer ones let the threshold fall close to the percentile that was asked for.
/// A class fits 10 bits, so that an index slot can hold it and a GET can be classified without
/// touching the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeClass(u16);

impl SizeClass {
    /// Number of classes.
    pub const COUNT: usize = Self::of(VALUE_BYTES_MAX).0 as usize + 1;

    /// Bits that hold any class.
    pub const BITS: u32 = 10;

    /// The smallest class: values of no bytes.
    pub const MIN: Self = Self(0);

    /// The largest class.
    pub const MAX: Self = Self((Self::COUNT - 1) as u16);

    /// The class of a value of `value_bytes`; sizes beyond [`VALUE_BYTES_MAX`] are in the last one.
    #[inline]
    pub const fn of(value_bytes: u64) -> Self {
        let bytes = if value_bytes > VALUE_BYTES_MAX { VALUE_BYTES_MAX } else { value_bytes };
        if bytes < STEPS {
            return Self(bytes as u16);
        }
        // The leading one and the STEP_BITS below it name the class.
        let shift = bytes.ilog2() - STEP_BITS;
        Self((shift as u64 * STEPS + (bytes >> shift)) as u16)
    }

    /// The class at `index`, if there is one.
    pub const fn from_index(index: usize) -> Option<Self> {
        if index < Self::COUNT { Some(Self(index as u16)) } else { None }
    }

    /// Position among all classes, smallest first.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The smallest size in this class, in bytes.
    pub const fn bytes_min(self) -> u64 {
        let index = self.0 as u64;
        if index < 2 * STEPS {
            return index;
        }
        let shift = index / STEPS - 1;
        (index % STEPS + STEPS) << shift
    }

    /// The largest size in this class, in bytes.
    pub const fn bytes_max(self) -> u64 {
        if self.0 as usize + 1 == Self::COUNT {
            return VALUE_BYTES_MAX;
        }
        Self(self.0 + 1).bytes_min() - 1
    }
}

const _: () = assert!(SizeClass::COUNT <= 1 << SizeClass::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_partition_the_sizes() {
        let mut next = 0;
        for index in 0..SizeClass::COUNT {
            let class = SizeClass::from_index(index).unwrap();
            assert_eq!(class.bytes_min(), next, "class {index}");
            assert_eq!(SizeClass::of(class.bytes_min()), class);
            assert_eq!(SizeClass::of(class.bytes_max()), class);
            next = class.bytes_max() + 1;
        }
        assert_eq!(next, VALUE_BYTES_MAX + 1);
        assert_eq!(SizeClass::from_index(SizeClass::COUNT), None);
    }

    #[test]
    fn classes_are_at_most_five_percent_wide() {
        for index in 1..SizeClass::COUNT {
            let class = SizeClass::from_index(index).unwrap();
            let width = class.bytes_max() - class.bytes_min();
            assert!(width as f64 <= 0.05 * class.bytes_min() as f64, "class {index}");
        }
    }

    #[test]
    fn beyond_the_largest_is_the_last() {
        assert_eq!(SizeClass::of(u64::MAX), SizeClass::MAX);
    }
}
