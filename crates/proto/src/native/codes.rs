//! Enums that are written as numbers, and sets of marks.

/// Declares an enum whose variants are written as numbers, with the functions that read and write them.
macro_rules! coded {
    ($(#[$about:meta])* $name:ident: $number:ty, $from:ident, $to:ident;
     $($(#[$doc:meta])* $variant:ident = $code:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// One that this version does not know.
            Unknown($number),
        }

        impl $name {
            /// What is written as `number`.
            #[inline]
            pub const fn $from(number: $number) -> Self {
                match number { $($code => Self::$variant,)* other => Self::Unknown(other) }
            }

            /// How it is written.
            #[inline]
            pub const fn $to(self) -> $number {
                match self { $(Self::$variant => $code,)* Self::Unknown(other) => other }
            }
        }
    };
}

/// Gives a type of marks, which are bits of a number, what all such types have.
macro_rules! marks {
    ($name:ident) => {
        impl $name {
            /// No marks.
            pub const NONE: Self = Self(0);

            /// True if all marks of `other` are set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}
