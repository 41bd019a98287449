//! The parser of Redis' commands: input in pieces is the same input, and hostile input is bounded.

use minos_proto::resp::{Limits, Parsed, parse, rewrite_inline};
use proptest::prelude::*;

const LIMITS: Limits = Limits { bulk_bytes_max: 300, command_bytes_max: 4096 };

/// What a client sees of a stream of commands.
#[derive(Debug, PartialEq)]
enum Seen {
    Command(Vec<Vec<u8>>),
    Line(Vec<u8>),
    Refused(String),
}

/// Serves `input` as it comes: `known` bytes at first, then one more whenever the parser has asked for it.
fn served(input: &[u8], mut known: usize) -> Vec<Seen> {
    let (mut seen, mut at) = (Vec::new(), 0);
    while at < input.len() {
        known = known.clamp(at + 1, input.len());
        let wanted = match parse(&input[at..known], &LIMITS) {
            Parsed::Command(command, consumed) => {
                seen.push(Seen::Command(command.arguments(0).map(<[u8]>::to_vec).collect()));
                at += consumed;
                continue;
            }
            Parsed::Nothing(consumed) => {
                at += consumed;
                continue;
            }
            Parsed::Inline(line, consumed) => {
                seen.push(Seen::Line(line.to_vec()));
                at += consumed;
                continue;
            }
            Parsed::NeedMore(wanted) => wanted,
            Parsed::Begun(begun) => begun.wanted_bytes() as usize,
            Parsed::Malformed(text) => {
                seen.push(Seen::Refused(text.to_owned()));
                break;
            }
            Parsed::NoBulk(byte) => {
                seen.push(Seen::Refused(format!("expected '$', got {byte}")));
                break;
            }
        };
        assert!(wanted > known - at, "it asks for what it has");
        if known == input.len() {
            break;
        }
        known += 1;
    }
    seen
}

fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*')], 0..6),
        proptest::collection::vec(any::<u8>(), 250..301),
    ];
    proptest::collection::vec(word, 1..9)
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => words().prop_map(|words| array(&words)),
        2 => "[a-z \"']{0,12}\r?\n".prop_map(String::into_bytes),
        1 => Just(b"*0\r\n*-1\r\n".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => prop_oneof![Just("*1\r\n$301\r\n"), Just("*9999\r\n"), Just("*1\r\n:1\r\n"), Just("*01\r\n")]
            .prop_map(|text| text.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn pieces_are_read_like_the_whole(input in pieces()) {
        prop_assert_eq!(served(&input, 0), served(&input, usize::MAX));
    }

    #[test]
    fn commands_are_what_was_sent(all in proptest::collection::vec(words(), 1..4)) {
        let input: Vec<u8> = all.iter().flat_map(|words| array(words)).collect();
        let expected: Vec<_> = all.into_iter().map(Seen::Command).collect();
        prop_assert_eq!(served(&input, usize::MAX), expected);
    }

    #[test]
    fn a_line_becomes_an_array(line in proptest::collection::vec(any::<u8>(), 0..60)) {
        let mut out = Vec::new();
        if rewrite_inline(&line, &mut out).is_ok() && !out.is_empty() {
            let limits = Limits { bulk_bytes_max: 1000, command_bytes_max: 100_000 };
            let Parsed::Command(_, consumed) = parse(&out, &limits) else { panic!("{out:?}") };
            prop_assert_eq!(consumed, out.len());
        }
    }
}
