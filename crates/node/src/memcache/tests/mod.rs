//! Bytes in, bytes out: every command and error, executed against a real store and against a real cache.

#![allow(clippy::duplicate_mod, reason = "the same dialogues are held in each mode")]

mod full;

/// The same dialogues in each mode: what both have in common is nearly all.
macro_rules! in_mode {
    ($name:ident, $mode:ident) => {
        #[path = "."]
        mod $name {
            type Session = crate::memcache::harness::Session<minos_engine::$mode>;

            mod commands;
            mod large;
            mod meta;
            mod random;
        }
    };
}

in_mode!(store, StoreMode);
in_mode!(cache, CacheMode);
