//! What is not there is not read.

use super::{BYTES, fabric, memory};
use minos_engine::remote::{Completion, Fabric, Range};
use minos_fabric::ucx::{Ucx, UcxError, UcxMemory, Way};

/// Reads that are under way at a time.
const READS: u64 = 1000;

fn is_read(fabric: &mut Ucx, peer: usize, ranges: &[Range]) -> bool {
    fabric.read(peer, ranges, 1);
    let mut ended = None;
    while ended.is_none() {
        fabric.poll(|Completion { words, .. }| ended = Some(words.is_some()));
    }
    ended == Some(true)
}

#[test]
fn ranges_outside_the_memory_are_refused() {
    let (memory, _) = memory();
    for way in [Way::Get, Way::Load] {
        let mut fabric = fabric(memory.advertisement(), way);
        assert!(fabric.is_mapped(0) && !fabric.is_mapped(1));
        let end = BYTES / 8;
        let good = Range { start: end - 4, words: 4 };
        assert!(is_read(&mut fabric, 0, &[good]));
        assert!(!is_read(&mut fabric, 1, &[good]), "a peer that is not there");
        for (start, words) in
            [(end * 2, 1), (u64::MAX, 1), (u64::MAX / 8, 8), (0, usize::MAX), (0, 1 << 18), (0, 0)]
        {
            assert!(!is_read(&mut fabric, 0, &[good, Range { start, words }]), "{words} words at {start}");
        }
        assert!(is_read(&mut fabric, 0, &[good]));
    }
}

#[test]
fn many_reads_are_under_way_at_once() {
    let (memory, _) = memory();
    let mut fabric = fabric(memory.advertisement(), Way::Get);
    let range = |token: u64| Range { start: token * 8, words: 8 };
    (0..READS).for_each(|token| fabric.read(0, &[range(token), range(0)], token));
    let mut seen = Vec::new();
    while seen.len() < READS as usize {
        fabric.poll(|Completion { token, words }| {
            assert_eq!(words.unwrap(), [0; 16]);
            seen.push(token);
        });
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..READS));
    // Some are left to the end of the fabric.
    (0..READS).for_each(|token| fabric.read(0, &[range(token)], token));
}

#[test]
fn what_is_no_advertisement_is_refused() {
    let (memory, _) = memory();
    let mut fabric = Ucx::open(None, Way::Get).unwrap();
    for bytes in [&b""[..], b"minosucx", &memory.advertisement()[..40], &[0; 200]] {
        // SAFETY: the head alone decides, before UCX sees anything.
        assert_eq!(unsafe { fabric.connect(bytes) }, Err(UcxError::Advertisement));
    }
    let error = UcxMemory::allocate(Some("no-such-transport"), 1 << 20).unwrap_err();
    assert!(error.to_string().starts_with("UCX cannot "), "{error}");
}
