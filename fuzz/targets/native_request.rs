//! The server's parser of datagrams: any bytes are parsed or refused, and parsed ones are composed to the
//! same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_proto::native::{
    Composer, DATAGRAM_BYTES_MAX, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, HEADER_BYTES, Header, Hello,
    Kind, Opcode, Operation, Ranges, Reason, SealKeys, Secret, operations, refusal_of,
};

fuzz_target!(|datagram: &[u8]| {
    if let Some(refusal) = refusal_of(datagram, Reason::Malformed, 1) {
        assert!(HEADER_BYTES <= datagram.len() && usize::from(refusal.length) == HEADER_BYTES);
    }
    let Ok(header) = Header::parse(datagram) else { return };
    assert!(usize::from(header.length) <= datagram.len());
    // No datagram has a tag under this key.
    let bytes = std::array::from_fn(|at| (at as u8).wrapping_mul(0x9d));
    if let Ok(secret) = Secret::new(header.secret, bytes) {
        assert!(!SealKeys::of(&secret).to_server.verify(datagram));
    }
    match header.kind {
        Kind::Request => check_operations(datagram, header),
        Kind::Hello => check_hello(datagram, &header),
        Kind::Fragment => check_fragment(header.body(datagram)),
        _ => assert_eq!(operations(datagram, &header).count(), 0),
    }
});

fn check_operations(datagram: &[u8], header: Header) {
    let read = || operations(datagram, &header).map_while(Result::ok);
    let count = read().count();
    assert!(count <= usize::from(header.count));
    let (mut out, unsealed) = (Vec::new(), header.flags.without(Flags::SEALED));
    let mut composer = Composer::begin(&mut out, Header { flags: unsealed, ..header }, DATAGRAM_BYTES_MAX);
    for operation in read() {
        check_operation(&operation);
        assert!(composer.push_operation(&operation));
    }
    let length = composer.finish();
    // As long as the bytes that were parsed, or shorter.
    assert!(length + header.tag_bytes() <= usize::from(header.length));
    let again = Header::parse(&out).expect("what was composed is read");
    assert_eq!(
        again,
        Header { flags: unsealed, secret: 0, length: length as u16, count: count as u16, ..header }
    );
    let again: Vec<_> = operations(&out, &again).map(|operation| operation.expect("it was read")).collect();
    assert_eq!(again, read().collect::<Vec<_>>());
}

fn check_operation(operation: &Operation<'_>) {
    assert!(operation.key.len() <= 250 && (!operation.key.is_empty() || !operation.opcode.names_item()));
    if operation.opcode == Opcode::Fetch {
        if let Ok(ranges) = Ranges::parse(operation.value) {
            assert_eq!(ranges.len() * 8, operation.value.len());
            assert!(ranges.into_iter().all(|range| range.indexes().len() == range.count as usize));
        }
    }
}

fn check_hello(datagram: &[u8], header: &Header) {
    let Ok(hello) = Hello::parse(header.body(datagram)) else { return };
    let mut out = Vec::new();
    hello.compose(&mut out, Header::of(Kind::Hello), None);
    let again = Header::parse(&out).expect("what was composed is read");
    assert_eq!(Hello::parse(again.body(&out)), Ok(hello));
}

fn check_fragment(body: &[u8]) {
    let Ok((head, data)) = FragmentHead::parse(body) else { return };
    let mut out = [0xff; FRAGMENT_HEAD_BYTES];
    head.write(&mut out);
    assert_eq!(FragmentHead::parse(&out), Ok((head, &[][..])));
    assert_eq!(data.len() + FRAGMENT_HEAD_BYTES, body.len());
}
