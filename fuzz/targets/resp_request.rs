//! The parser of Redis' commands: it makes progress within its bounds on any bytes, and a parsed command does not depend on
//! the bytes behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_proto::resp::{Limits, Parsed, find, find_subcommand, parse, rewrite_inline};

const LIMITS: Limits = Limits { bulk_bytes_max: 300, command_bytes_max: 3000 };

/// More than any line is long before it is refused.
const LINE_BYTES_MAX: usize = (64 << 10) + 2;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while !rest.is_empty() {
        let parsed = parse(rest, &LIMITS);
        let consumed = match parsed {
            Parsed::NeedMore(wanted) => {
                assert!(rest.len() < wanted && wanted < LINE_BYTES_MAX + rest.len());
                return;
            }
            Parsed::Begun(begun) => {
                assert!(
                    rest.len() < begun.wanted_bytes() as usize && begun.bulk_bytes <= LIMITS.bulk_bytes_max
                );
                assert!(begun.command.len() < begun.arguments && begun.at <= rest.len());
                return;
            }
            Parsed::Malformed(_) | Parsed::NoBulk(_) => return,
            Parsed::Nothing(consumed) => consumed,
            Parsed::Inline(line, consumed) => {
                check_line(line);
                consumed
            }
            Parsed::Command(command, consumed) => {
                assert_eq!(parse(&rest[..consumed], &LIMITS), parsed);
                let arguments = command.arguments(0);
                assert_eq!(arguments.len(), command.len());
                assert!(arguments.enumerate().all(|(at, argument)| command.argument(at) == Some(argument)));
                if let Some(spec) = find(command.name()) {
                    assert!(command.name().eq_ignore_ascii_case(spec.name.as_bytes()));
                    assert!(spec.keys.positions(command.len()).all(|at| command.argument(at).is_some()));
                    command.argument(1).map(|name| find_subcommand(spec, name));
                }
                consumed
            }
        };
        assert!((1..=rest.len()).contains(&consumed));
        rest = &rest[consumed..];
    }
});

/// A line that can be understood is one command.
fn check_line(line: &[u8]) {
    let mut array = Vec::new();
    if rewrite_inline(line, &mut array).is_ok() && !array.is_empty() {
        let limits = Limits { bulk_bytes_max: u64::MAX, command_bytes_max: i64::MAX as usize };
        assert!(matches!(parse(&array, &limits), Parsed::Command(_, consumed) if consumed == array.len()));
    }
}
