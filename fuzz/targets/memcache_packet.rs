//! The parser of the binary protocol: it makes progress within its bounds on any bytes, and a parsed command does not
//! depend on the bytes behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_proto::memcache::{
    Limits, Parsed, Request, Store, Value,
    binary::{HEADER_BYTES, parse},
};

const LIMITS: Limits = Limits { value_bytes_max: 300, line_bytes_max: 4096 };

/// More than the longest header, extras and key.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 255 + 250;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    loop {
        let parsed = parse(rest, &LIMITS);
        let consumed = match parsed {
            Parsed::NeedMore => {
                assert!(rest.len() < HEAD_BYTES_MAX);
                return;
            }
            Parsed::Malformed(malformed) if malformed.close => return,
            Parsed::Malformed(malformed) => malformed.consumed,
            Parsed::Request { command, consumed } => {
                let key = command.request.key();
                assert!(key.is_none_or(|key| (1..=250).contains(&key.text().len())));
                let is_pending = matches!(
                    command.request,
                    Request::Store(Store { value: Value::Pending { .. }, .. })
                );
                assert!(is_pending || parse(&rest[..consumed], &LIMITS) == parsed);
                consumed
            }
        };
        assert!((1..=rest.len()).contains(&consumed));
        rest = &rest[consumed..];
    }
});
