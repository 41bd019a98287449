//! The server's parser: it makes progress within its bounds on any bytes, and a parsed command does not
//! depend on the bytes behind it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_proto::memcache::{KeyBuffer, Limits, Parsed, Request, Store, Value, parse};

const LIMITS: Limits = Limits { value_bytes_max: 300, line_bytes_max: 4096 };

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    loop {
        let parsed = parse(rest, &LIMITS);
        let consumed = match parsed {
            Parsed::NeedMore => {
                assert!(rest.len() <= LIMITS.line_bytes_max && !rest.contains(&b'\n'));
                return;
            }
            Parsed::Malformed(malformed) if malformed.close => return,
            Parsed::Malformed(malformed) => malformed.consumed,
            Parsed::Request { command, consumed } => {
                check_key(&command.request);
                consumed
            }
        };
        assert!((1..=rest.len()).contains(&consumed));
        if !is_pending(&parsed) {
            assert_eq!(parse(&rest[..consumed], &LIMITS), parsed);
        }
        rest = &rest[consumed..];
    }
});

fn check_key(request: &Request<'_>) {
    let mut buffer = KeyBuffer::default();
    if let Some(key) = request.key() {
        assert!((1..=250).contains(&key.bytes(&mut buffer).len()));
    }
}

/// True if the value was not complete: then less input may parse to the same command, and more to another.
fn is_pending(parsed: &Parsed<'_>) -> bool {
    let Parsed::Request { command, .. } = parsed else { return false };
    matches!(command.request, Request::Store(Store { value: Value::Pending { .. }, .. }))
}
