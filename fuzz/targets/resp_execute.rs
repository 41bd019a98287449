//! Parser, execution and store of Redis' protocol together: neither the split of the input nor the threshold between small
//! and large changes a byte of the replies, and the store stays consistent.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_node::resp_fuzz::dialogue;

/// Words whose replies tell the time, or are random.
const TIMELY: [&[u8]; 5] = [b"time", b"ttl", b"info", b"random", b"px"];

fuzz_target!(|input: &[u8]| {
    let [split, here_bytes_max, script @ ..] = input else { return };
    let expected = dialogue(1000, &[script]);
    let (first, second) = script.split_at(usize::from(*split) * script.len() / 256);
    let said = dialogue(u64::from(*here_bytes_max), &[first, second]);
    let lower = script.to_ascii_lowercase();
    let is_timely = |word: &[u8]| lower.windows(word.len()).any(|there| there == word);
    if !TIMELY.iter().any(|word| is_timely(word)) {
        // An error in a command that begins in the first piece may be told once more of it has come.
        let is_same = expected.starts_with(&said) || said.starts_with(&expected);
        assert!(is_same, "{} instead of {}", said.escape_ascii(), expected.escape_ascii());
    }
});
