//! Every command and error, executed against a real store and a real cache: bytes in, bytes out.

#![allow(clippy::duplicate_mod, reason = "the same dialogues are held in each mode")]

mod full;

/// The same dialogues in each mode, because the modes agree on nearly everything.
macro_rules! in_mode {
    ($name:ident, $mode:ident) => {
        #[path = "."]
        mod $name {
            type Session = crate::memcache::harness::Session<minos_engine::$mode>;

            mod binary;
            mod commands;
            mod large;
            mod meta;
            mod random;
        }
    };
}

in_mode!(store, StoreMode);
in_mode!(cache, CacheMode);
