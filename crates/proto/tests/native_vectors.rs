//! The bytes that `docs/native-protocol.md` shows are the bytes that are written and read here.

use std::collections::BTreeMap;

use minos_base::hash_key;
use minos_proto::native::*;

const DIRECTION_SEED: u64 = 0x0123_4567_89ab_cdef;
const SECRET: &str = "7:00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";
const COOKIE: u64 = 0xc00c_1e00_c00c_1e00;
const GEOMETRY: u32 = 0xbeef_05a8;

fn keys() -> SealKeys {
    SealKeys::of(&SECRET.parse().unwrap())
}

fn header(kind: Kind) -> Header {
    Header { stamp: 1_000_000, sequence: 7, ..Header::of(kind) }
}

fn asking(kind: Kind) -> Header {
    Header { queue: 2, geometry: GEOMETRY, cookie: COOKIE, ..header(kind) }
}

/// A datagram with the records that `push` writes.
fn composed(header: Header, push: impl FnOnce(&mut Composer<'_>) -> bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut composer = Composer::begin(&mut out, header, DATAGRAM_BYTES_ETHERNET);
    assert!(push(&mut composer));
    let SealKeys { to_server, to_client } = keys();
    let key = if header.kind.is_from_server() { to_client } else { to_server };
    composer.finish_with(header.is_sealed().then_some(&key));
    out
}

fn get(request: u32, key: &'static [u8]) -> Operation<'static> {
    Operation::get(request, hash_key(key, DIRECTION_SEED), key)
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    let hello = Hello { nonce: 0x0807_0605_0403_0201, datagram_bytes_max: 1448, window: 32, version_max: 2 };
    hello.compose(&mut out, header(Kind::Hello), None);
    out
}

fn welcome() -> Vec<u8> {
    let welcome = Welcome {
        nonce: 0x0807_0605_0403_0201,
        boot: 0xb007_b007_b007_b007,
        cookie: COOKIE,
        direction_seed: DIRECTION_SEED,
        session: 0,
        cookie_seconds: 90,
        geometry: GEOMETRY,
        queues: 4,
        partition_bits: 6,
        access: Access::Crew,
        base_port: 11_311,
        flags: WelcomeFlags::CACHE,
        datagram_bytes_max: 1448,
        key_bytes_max: 250,
        window: 32,
        once_window: ONCE_WINDOW,
        value_bytes_max: 8 << 20,
        transfers_per_client: 8,
        in_flight: 64,
    };
    let mut body = [0; WELCOME_BYTES];
    welcome.write(&mut body);
    composed(Header { geometry: GEOMETRY, ..header(Kind::Welcome) }, |composer| composer.push_bytes(&body))
}

fn put() -> Vec<u8> {
    let detail = Detail { value_bytes: 5, ttl: 60, item_flags: 9, ..Detail::default() };
    let value = Operation { opcode: Opcode::Put, detail, value: b"hello", ..get(3, b"greeting") };
    let detail = Detail { once: 1, operand: 10, ..Detail::default() };
    let incr = Operation { opcode: Opcode::Incr, flags: OpFlags::ONCE, detail, ..get(4, b"visits") };
    composed(Header { session: 0x5e55_1011, ..asking(Kind::Request) }, |composer| {
        composer.push_operation(&value) && composer.push_operation(&incr)
    })
}

fn sealed_reply() -> Vec<u8> {
    let missing = ReplyRecord::bare(Opcode::Get, Status::NotFound, 1);
    let (flags, session) = (Flags::SEALED, 0x5e55_1011);
    let answer = Header { flags, session, queue: 2, geometry: GEOMETRY, ..header(Kind::Reply) };
    composed(answer, |composer| composer.push_reply(&missing))
}

fn reply() -> Vec<u8> {
    let value = ReplyRecord {
        item_flags: 9,
        cas: 77,
        value: b"hello",
        ..ReplyRecord::bare(Opcode::Get, Status::Ok, 1)
    };
    let missing = ReplyRecord::bare(Opcode::Get, Status::NotFound, 2);
    let answer = Header { queue: 2, geometry: GEOMETRY, ..header(Kind::Reply) };
    composed(answer, |composer| composer.push_reply(&value) && composer.push_reply(&missing))
}

fn refusal() -> Vec<u8> {
    let refusal = refusal_of(&hello(), Reason::Cookie, GEOMETRY).unwrap();
    let mut out = [0; HEADER_BYTES];
    refusal.write(&mut out);
    out.to_vec()
}

/// Every vector under the name that it has in the document.
fn vectors() -> BTreeMap<&'static str, Vec<u8>> {
    let sealed = Header { flags: Flags::SEALED, session: 0x5e55_1011, ..asking(Kind::Request) };
    let gets = |composer: &mut Composer<'_>| {
        composer.push_operation(&get(1, b"greeting")) && composer.push_operation(&get(2, b"key"))
    };
    BTreeMap::from([
        ("hello", hello()),
        ("welcome", welcome()),
        ("get", composed(asking(Kind::Request), gets)),
        ("put", put()),
        ("reply", reply()),
        ("refusal", refusal()),
        ("sealed reply", sealed_reply()),
        ("sealed", composed(sealed, |composer| composer.push_operation(&get(1, b"greeting")))),
    ])
}

/// The blocks of bytes in the document: hexadecimal digits, `00*n` for n zeros, and remarks behind `;`.
fn shown(document: &str) -> BTreeMap<&str, Vec<u8>> {
    let blocks = document.split("```hex ").skip(1).filter_map(|block| block.split("```").next());
    blocks
        .filter_map(|block| block.split_once('\n'))
        .map(|(name, lines)| (name.trim(), lines.lines().flat_map(bytes_of_line).collect()))
        .collect()
}

fn bytes_of_line(line: &str) -> Vec<u8> {
    let words = line.split(';').next().unwrap_or_default().split_whitespace();
    words
        .flat_map(|word| match word.split_once('*') {
            Some((_, times)) => vec![0; times.parse().unwrap()],
            None => word
                .as_bytes()
                .chunks(2)
                .map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap())
                .collect(),
        })
        .collect()
}

/// Lines of 16 bytes, to be pasted.
fn printed(bytes: &[u8]) -> String {
    let line =
        |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ") + "\n";
    bytes.chunks(16).map(line).collect()
}

#[test]
fn the_document_shows_what_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/native-protocol.md");
    let document = std::fs::read_to_string(path).unwrap();
    let shown = shown(&document);
    for (name, bytes) in &vectors() {
        let found = shown.get(name).map(Vec::as_slice).unwrap_or_default();
        assert!(found == bytes, "{name}:\n{}is shown as\n{}", printed(bytes), printed(found));
    }
    assert_eq!(shown.len(), vectors().len(), "{:?}", shown.keys());
}

#[test]
fn what_the_document_shows_is_read() {
    for (name, bytes) in vectors() {
        let header = Header::parse(&bytes).unwrap_or_else(|malformed| panic!("{name}: {malformed}"));
        assert_eq!(usize::from(header.length), bytes.len(), "{name}");
        assert!(operations(&bytes, &header).all(|operation| operation.is_ok()), "{name}");
        assert!(replies(&bytes, &header).all(|record| record.is_ok()), "{name}");
        assert_eq!(keys().to_server.verify(&bytes), name == "sealed", "{name}");
        assert_eq!(keys().to_client.verify(&bytes), name == "sealed reply", "{name}");
    }
}

#[test]
fn a_wrong_byte_in_the_document_would_be_noticed() {
    let wrong = shown("```hex get\n4d 6e 01 00*2 ; no\nff\n```");
    assert_eq!(wrong["get"], [0x4d, 0x6e, 1, 0, 0, 0xff]);
    assert_ne!(wrong["get"], vectors()["get"]);
}
