//! The commands of the protocols, as rules name them.

/// Most commands of a protocol.
pub const COMMANDS_MAX: usize = 256;

/// The tables of all protocols, by the numbers that their owners give them.
pub type Tables = &'static [&'static [Entry]];

/// A command of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name in lower case. The same name in two tables is one command for rules.
    pub name: &'static str,
    /// The categories that it belongs to.
    pub categories: Categories,
}

/// A set of Redis' categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Categories(pub u32);

/// Declares each category once.
macro_rules! categories {
    ($($name:ident = $at:literal $text:literal,)*) => {
        impl Categories {
            $(#[doc = concat!("`@", $text, "`")] pub const $name: Self = Self(1 << $at);)*

            /// Every category with its name.
            pub const NAMES: &'static [(&'static str, Self)] = &[$(($text, Self::$name)),*];
        }
    };
}

categories! {
    KEYSPACE = 0 "keyspace",
    READ = 1 "read",
    WRITE = 2 "write",
    STRING = 3 "string",
    BITMAP = 4 "bitmap",
    ADMIN = 5 "admin",
    FAST = 6 "fast",
    SLOW = 7 "slow",
    PUBSUB = 11 "pubsub",
    DANGEROUS = 8 "dangerous",
    CONNECTION = 9 "connection",
    TRANSACTION = 10 "transaction",
}

impl Categories {
    /// The categories of both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if they have a category in common.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The category of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, category)| *category)
    }
}

/// Commands of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandSet([u64; COMMANDS_MAX / 64]);

impl CommandSet {
    #[inline]
    pub(crate) fn has(&self, command: usize) -> bool {
        self.0.get(command / 64).is_some_and(|word| word >> (command % 64) & 1 == 1)
    }

    pub(crate) fn put(&mut self, command: usize, is_in: bool) {
        if let Some(word) = self.0.get_mut(command / 64) {
            let bit = 1 << (command % 64);
            *word = if is_in { *word | bit } else { *word & !bit };
        }
    }
}
