//! Parser, execution and store together: neither the split of the input nor the threshold between small and
//! large changes a byte of the replies, and the store stays consistent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_node::fuzz::dialogue;

fuzz_target!(|input: &[u8]| {
    let [split, here_bytes_max, script @ ..] = input else { return };
    let expected = dialogue(1000, &[script]);
    let (first, second) = script.split_at(usize::from(*split) * script.len() / 256);
    assert_eq!(dialogue(u64::from(*here_bytes_max), &[first, second]), expected);
});
