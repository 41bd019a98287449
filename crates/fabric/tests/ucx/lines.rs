//! Within a line, words are not older than the version before them. UCX does not promise it.

use super::{BYTES, fabric, memory};
use minos_engine::remote::{Completion, Fabric, Range};
use minos_fabric::ucx::{Ucx, Way};
use minos_region::{Offset, Region};
use std::{
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, Release},
        fence,
    },
    thread,
};

/// Lines that are written in turn: few, so that reader and writer meet.
const LINES: u64 = 2;
const LINE_WORDS: u64 = 8;
/// Beginning of the first one, in words.
const START: u64 = 64;
const READS: u64 = 2_000_000;

/// Writes lines as the engine does: an odd version, the words, an even version.
fn write_lines(region: &Region, is_over: &AtomicBool) {
    for number in 1.. {
        let start = START + number % LINES * LINE_WORDS;
        let word = |at| region.word(Offset::from_words(start + at));
        word(0).store(2 * number - 1, Relaxed);
        fence(Release);
        (1..LINE_WORDS).for_each(|at| word(at).store(number, Relaxed));
        word(0).store(2 * number, Release);
        if is_over.load(Relaxed) {
            return;
        }
    }
}

/// The words of some ranges.
fn read<const WORDS: usize>(fabric: &mut Ucx, ranges: &[Range]) -> [u64; WORDS] {
    fabric.read(0, ranges, 0);
    let mut read = None;
    while read.is_none() {
        fabric.poll(|Completion { words, .. }| read = words.map(|words| words.try_into().unwrap()));
    }
    read.unwrap()
}

/// Lines whose version was even, and those of them with an older word, as one of two readers sees them.
fn older_words(way: Way, line: impl Fn(&mut Ucx, u64) -> [u64; LINE_WORDS as usize]) -> (u64, u64) {
    let (memory, backing) = memory();
    let (region, is_over) = (Region::map(BYTES, &backing).unwrap(), AtomicBool::new(false));
    let mut fabric = fabric(memory.advertisement(), way);
    let (mut even, mut older) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| write_lines(&region, &is_over));
        for number in 0..READS {
            let [version, words @ ..] = line(&mut fabric, START + number % LINES * LINE_WORDS);
            if version % 2 == 0 {
                even += 1;
                older += u64::from(words.iter().any(|&word| word < version / 2));
            }
        }
        is_over.store(true, Relaxed);
    });
    (even, older)
}

#[test]
fn no_word_is_older_than_its_version() {
    for way in [Way::Get, Way::Load] {
        let (even, older) =
            older_words(way, |fabric, start| read(fabric, &[Range { start, words: LINE_WORDS as usize }]));
        println!("{way:?}: {even} lines, {older} of them with an older word");
        assert!(even > READS / 100 && older == 0, "{way:?}: {older} of {even}");
    }
}

/// A control.
#[test]
fn a_reader_that_begins_at_the_end_is_found() {
    let (even, older) = older_words(Way::Get, |fabric, start| {
        let words: [u64; 7] = read(fabric, &[Range { start: start + 1, words: 7 }]);
        let [version] = read(fabric, &[Range { start, words: 1 }]);
        let mut line = [version; 8];
        line[1..].copy_from_slice(&words);
        line
    });
    println!("{even} lines, {older} of them with an older word");
    assert!(older > 0);
}
