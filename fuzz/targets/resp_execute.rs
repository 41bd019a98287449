//! Parser, execution and store of Redis' protocol together: neither the split of the input nor the threshold between small
//! and large changes a byte of the replies, and the store stays consistent. Only a broken command may be refused in other
//! words, sooner or later.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_node::resp_fuzz::dialogue;

/// Words whose replies tell the time, or are random.
const TIMELY: [&[u8]; 6] = [b"time", b"ttl", b"info", b"random", b"px", b"genpass"];

fuzz_target!(|input: &[u8]| {
    let [split, here_bytes_max, script @ ..] = input else { return };
    let expected = dialogue(1000, &[script]);
    let (first, second) = script.split_at(usize::from(*split) * script.len() / 256);
    let said = dialogue(u64::from(*here_bytes_max), &[first, second]);
    let lower = script.to_ascii_lowercase();
    let is_timely = |word: &[u8]| lower.windows(word.len()).any(|there| there == word);
    if !TIMELY.iter().any(|word| is_timely(word)) {
        assert!(is_same(&expected, &said), "{} instead of {}", said.escape_ascii(), expected.escape_ascii());
    }
});

/// True if the replies are equal up to the end of one of them, or up to an error in both.
///
/// Where a command is broken depends on what is looked at first: the length of its next string, or the value before, which is
/// received into its place as soon as its own length is known. What follows such an error is no command any more.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let Some(at) = one.iter().zip(other).position(|(one, other)| one != other) else { return true };
    let line = one[..at].windows(2).rposition(|two| two == b"\r\n").map_or(0, |end| end + 2);
    (one[line], other[line]) == (b'-', b'-')
}
