//! The native datagrams: written ones are read back unchanged, and all others are refused.

use minos_base::{KeyHash, limits::KEY_BYTES_MAX};
use minos_proto::native::*;
use proptest::prelude::*;

/// Any header of this kind whose length and count a composer will set.
fn header(kind: Kind) -> impl Strategy<Value = Header> {
    let small = (any::<u16>(), any::<u16>(), any::<u32>());
    let large = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (small, large).prop_map(move |((flags, queue, geometry), (session, cookie, stamp, sequence))| {
        let flags = Flags(flags as u8).without(Flags::SEALED);
        Header { flags, queue, geometry, session, cookie, stamp, sequence, ..Header::of(kind) }
    })
}

/// An operation that owns its bytes.
#[derive(Clone, Debug)]
struct Owned {
    opcode: Opcode,
    flags: OpFlags,
    request: u32,
    hash: u64,
    key: Vec<u8>,
    detail: Detail,
    value: Vec<u8>,
}

impl Owned {
    /// As it is read again.
    fn operation(&self) -> Operation<'_> {
        let is_deferred = self.flags.contains(OpFlags::DEFERRED);
        let value = if self.opcode.is_long() && !is_deferred { &self.value[..] } else { &[] };
        let value_bytes = if is_deferred { self.detail.value_bytes } else { value.len() as u32 };
        let detail =
            if self.opcode.is_long() { Detail { value_bytes, ..self.detail } } else { Detail::default() };
        Operation {
            opcode: self.opcode,
            flags: self.flags,
            request: self.request,
            hash: KeyHash(self.hash),
            key: &self.key,
            detail,
            value,
        }
    }
}

prop_compose! {
    fn detail()(value_bytes: u32, ttl: i32, item_flags: u32, once: u32, operand: u64) -> Detail {
        Detail { value_bytes, ttl, item_flags, once, operand }
    }
}

prop_compose! {
    fn owned()(
        opcode: u8, flags: u8, request: u32, hash: u64, detail in detail(),
        key in prop::collection::vec(any::<u8>(), 1..=KEY_BYTES_MAX),
        value in prop::collection::vec(any::<u8>(), 0..100),
    ) -> Owned {
        Owned { opcode: Opcode::from_byte(opcode), flags: OpFlags(flags), request, hash, key, detail, value }
    }
}

fn request_of(header: Header, operations: &[Owned], limit_bytes: usize) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(limit_bytes);
    let mut composer = Composer::begin(&mut out, header, limit_bytes);
    let pushed = operations.iter().take_while(|owned| composer.push_operation(&owned.operation())).count();
    assert_eq!(usize::from(composer.count()), pushed);
    let length = composer.finish();
    assert_eq!(length, out.len());
    assert!(length <= limit_bytes && out.capacity() == limit_bytes);
    (out, pushed)
}

fn reply_of(header: Header, statuses: &[(u8, u32, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut composer = Composer::begin(&mut out, header, DATAGRAM_BYTES_MAX);
    for record in statuses {
        assert!(composer.push_reply(&reply_record(record)));
    }
    composer.finish();
    out
}

fn reply_record((status, request, value): &(u8, u32, Vec<u8>)) -> ReplyRecord<'_> {
    ReplyRecord {
        opcode: Opcode::from_byte(request.to_le_bytes()[0]),
        status: Status::from_byte(*status),
        request: *request,
        item_flags: !request,
        cas: u64::from(*request) << 20,
        value,
    }
}

/// The keys of a secret that differs in its bytes, too, with its id.
fn keys(id: u8) -> SealKeys {
    SealKeys::of(&Secret::new(id, std::array::from_fn(|at| id ^ (at as u8) << 3)).unwrap())
}

/// Reads everything that can be read of any bytes.
fn read_all(datagram: &[u8]) {
    keys(7).to_server.verify(datagram);
    refusal_of(datagram, Reason::Malformed, 1);
    version_of(datagram);
    let Ok(header) = Header::parse(datagram) else { return };
    let body = header.body(datagram);
    operations(datagram, &header).for_each(drop);
    replies(datagram, &header).for_each(drop);
    Hello::parse(body).ok();
    Welcome::parse(body).ok();
    Grant::parse(body).ok();
    DataHead::parse(body).ok();
    FragmentHead::parse(body).ok();
    AckHead::parse(body).map(|(_, ranges)| ranges.for_each(drop)).ok();
}

proptest! {
    #[test]
    fn requests_are_read_as_written(
        header in header(Kind::Request),
        operations_in in prop::collection::vec(owned(), 0..20),
        limit_bytes in DATAGRAM_BYTES_MIN..5000,
    ) {
        let (datagram, pushed) = request_of(header, &operations_in, limit_bytes);
        let parsed = Header::parse(&datagram).unwrap();
        prop_assert_eq!(parsed, Header { length: datagram.len() as u16, count: pushed as u16, ..header });
        let read: Vec<_> = operations(&datagram, &parsed).map(Result::unwrap).collect();
        let written: Vec<_> = operations_in[..pushed].iter().map(Owned::operation).collect();
        prop_assert_eq!(read, written);
        prop_assert!(replies(&datagram, &parsed).next().is_none());
    }

    #[test]
    fn replies_are_read_as_written(
        header in header(Kind::Reply),
        records in prop::collection::vec((any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..50)), 0..20),
    ) {
        let datagram = reply_of(header, &records);
        let parsed = Header::parse(&datagram).unwrap();
        let read: Vec<_> = replies(&datagram, &parsed).map(Result::unwrap).collect();
        prop_assert_eq!(read, records.iter().map(reply_record).collect::<Vec<_>>());
        prop_assert!(operations(&datagram, &parsed).next().is_none());
    }

    #[test]
    fn every_prefix_and_every_flip_is_survived(
        header in header(Kind::Request), operations_in in prop::collection::vec(owned(), 1..4), bit in any::<prop::sample::Index>(),
    ) {
        let (mut datagram, _) = request_of(header, &operations_in, 1448);
        for end in 0..datagram.len() {
            prop_assert_eq!(Header::parse(&datagram[..end]).err(), Some(if end < 48 { Malformed::Short } else { Malformed::Length }));
            read_all(&datagram[..end]);
        }
        let bit = bit.index(datagram.len() * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        read_all(&datagram);
        datagram[3] = (bit % 10) as u8;
        read_all(&datagram);
    }

    #[test]
    fn any_bytes_are_survived(mut datagram in prop::collection::vec(any::<u8>(), 0..400), kind in 0u8..10) {
        read_all(&datagram);
        if datagram.len() >= 48 {
            let length = datagram.len() as u16;
            datagram[..4].copy_from_slice(&[b'M', b'n', VERSION, kind]);
            datagram[8..10].copy_from_slice(&length.to_le_bytes());
            datagram[11] = 0;
            read_all(&datagram);
        }
    }

    #[test]
    fn a_flipped_bit_breaks_the_seal(
        header in header(Kind::Request), operations_in in prop::collection::vec(owned(), 1..4),
        bit in any::<prop::sample::Index>(), padding_bytes in 0usize..40,
    ) {
        let SealKeys { to_server: key, to_client } = keys(7);
        let header = Header { flags: header.flags | Flags::SEALED, ..header };
        let mut datagram = Vec::new();
        let mut composer = Composer::begin(&mut datagram, header, 1448);
        for owned in &operations_in {
            prop_assert!(composer.push_operation(&owned.operation()));
        }
        let length = composer.seal(&key);
        prop_assert_eq!(length, datagram.len());
        datagram.resize(length + padding_bytes, 0);
        let parsed = Header::parse(&datagram).unwrap();
        prop_assert_eq!(operations(&datagram, &parsed).filter(Result::is_ok).count(), operations_in.len());
        prop_assert!(key.verify(&datagram));
        prop_assert!(!to_client.verify(&datagram), "nothing of one direction is of the other");
        prop_assert!(!keys(8).to_server.verify(&datagram));
        let bit = bit.index(length * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!key.verify(&datagram));
    }

    #[test]
    fn fragments_cover_a_value_once(value_bytes in 0u64..100_000, fragment_bytes in 1u32..5000) {
        let fragments = Fragments::of(value_bytes, fragment_bytes).unwrap();
        let mut next = 0;
        for index in 0..fragments.count() {
            let range = fragments.range(index).unwrap();
            prop_assert!(range.start == next && range.len() <= fragment_bytes as usize && !range.is_empty());
            next = range.end;
        }
        prop_assert_eq!(next as u64, value_bytes);
        prop_assert_eq!(fragments.range(fragments.count()), None);
        prop_assert_eq!(fragments.range(u32::MAX), None);
    }

    #[test]
    fn ranges_are_read_as_written(list in prop::collection::vec((any::<u32>(), any::<u32>()), 0..40)) {
        let ranges: Vec<_> = list.into_iter().map(|(first, count)| FragmentRange { first, count }).collect();
        let mut bytes = Vec::new();
        push_ranges(&mut bytes, ranges.iter().copied());
        let is_sound = |range: &FragmentRange| range.count > 0 && u64::from(range.first) + u64::from(range.count) < 1 << 32;
        match Ranges::parse(&bytes) {
            Ok(read) => {
                prop_assert_eq!(read.len(), ranges.len());
                prop_assert_eq!(read.collect::<Vec<_>>(), ranges);
            }
            Err(_) => prop_assert!(ranges.len() > RANGES_MAX || !ranges.iter().all(is_sound)),
        }
        bytes.push(0);
        prop_assert!(Ranges::parse(&bytes).is_err());
    }
}

fn welcome() -> Welcome {
    Welcome {
        nonce: 1,
        boot: 2,
        cookie: 3,
        direction_seed: 4,
        session: 5,
        cookie_seconds: 60,
        geometry: 7,
        queues: 3,
        partition_bits: 4,
        access: Access::Crew,
        base_port: 11_311,
        flags: WelcomeFlags::CACHE | WelcomeFlags::SEALED,
        datagram_bytes_max: 1448,
        key_bytes_max: 250,
        window: 32,
        once_window: 128,
        value_bytes_max: 8 << 20,
        transfers_per_client: 8,
        in_flight: 64,
    }
}

/// The body that `write` writes, as it is read by `parse`.
#[track_caller]
fn assert_round_trip<T: std::fmt::Debug + PartialEq, const N: usize>(
    it: T,
    write: impl Fn(&T, &mut [u8; N]),
    parse: impl Fn(&[u8]) -> Result<T, Malformed>,
) {
    let mut body = [0xff; N];
    write(&it, &mut body);
    assert_eq!(parse(&body), Ok(it));
    assert_eq!(parse(&body[..N - 1]), Err(Malformed::Body));
}

#[test]
fn bodies_are_read_as_written() {
    let hello = Hello { nonce: 9, datagram_bytes_max: 1448, window: 32, version_max: 1 };
    assert_round_trip(hello, Hello::write, Hello::parse);
    assert_round_trip(welcome(), Welcome::write, Welcome::parse);
    let grant = Grant {
        transfer: 1 << 40,
        value_bytes: 500_000,
        fragment_bytes: 1368,
        queue: 4,
        window: 32,
        first_follows: false,
    };
    assert_round_trip(grant, Grant::write, Grant::parse);
    let data =
        DataHead { request: 1, index: 1, value_bytes: 1368, cas: 77, item_flags: 4, fragment_bytes: 1000 };
    let mut body = [7; DATA_HEAD_BYTES + 368];
    data.write(body.first_chunk_mut().unwrap());
    assert_eq!(DataHead::parse(&body), Ok((data, &[7; 368][..])));
    assert_eq!(DataHead::parse(&body[..body.len() - 1]), Err(Malformed::Body));
    let fragment = FragmentHead { transfer: 1 << 50, index: 3 };
    assert_round_trip(fragment, FragmentHead::write, |body| FragmentHead::parse(body).map(|(head, _)| head));
}

#[test]
fn acks_carry_as_many_ranges_as_they_say() {
    let ranges = [FragmentRange { first: 3, count: 2 }, FragmentRange { first: 9, count: 1 }];
    let ack = AckHead { transfer: 6, received: 30, ranges: 2, state: AckState::Open };
    let mut body = vec![0; ACK_HEAD_BYTES];
    ack.write(body.first_chunk_mut().unwrap());
    push_ranges(&mut body, ranges);
    let (head, missing) = AckHead::parse(&body).unwrap();
    assert_eq!((head, missing.collect::<Vec<_>>()), (ack, ranges.to_vec()));
    assert!(AckHead::parse(&body[..body.len() - 1]).is_err());
    body[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(AckHead::parse(&body).is_err());
    body[12..16].copy_from_slice(&2u32.to_le_bytes());
    body[16] = 2;
    assert!(AckHead::parse(&body).is_err());
}

#[test]
fn what_cannot_be_is_refused() {
    let wrong: [fn(&mut Welcome); 6] = [
        |it| it.queues = 0,
        |it| it.queues = 40_000,
        |it| it.base_port = u16::MAX - 4,
        |it| it.partition_bits = 17,
        |it| it.datagram_bytes_max = 511,
        |it| it.window = 0,
    ];
    for spoil in wrong {
        let (mut spoilt, mut body) = (welcome(), [0; WELCOME_BYTES]);
        spoil(&mut spoilt);
        spoilt.write(&mut body);
        assert_eq!(Welcome::parse(&body), Err(Malformed::Body), "{spoilt:?}");
    }
    let single = Welcome { base_port: u16::MAX, flags: WelcomeFlags::SINGLE_PORT, ..welcome() };
    assert_round_trip(single, Welcome::write, Welcome::parse);
    assert!(Fragments::of(1, 0).is_err());
    assert!(Fragments::of(1, 70_000).is_err());
    assert!(Fragments::of((1 << 30) + 1, 1000).is_err());
}

#[test]
fn a_header_says_what_is_wrong() {
    let datagram = reply_of(Header::of(Kind::Reply), &[(0, 1, vec![1; 8])]);
    let parse = |at: usize, byte: u8| {
        let mut spoilt = datagram.clone();
        spoilt[at] = byte;
        Header::parse(&spoilt).unwrap_err()
    };
    assert_eq!(parse(0, b'm'), Malformed::Magic);
    assert_eq!(parse(2, 1), Malformed::Version(1));
    assert_eq!(parse(3, 9), Malformed::Kind(9));
    assert_eq!(parse(8, 47), Malformed::Length);
    assert_eq!(parse(8, 81), Malformed::Length);
    assert_eq!(parse(9, 1), Malformed::Length);
    assert_eq!(parse(10, 2), Malformed::Count);
    // A Hello that is not padded would be answered with more than it has.
    assert_eq!(parse(3, 3), Malformed::Length);
}

#[test]
fn records_end_where_the_datagram_does() {
    let cases = [(1, 250, None), (1, 251, Some(Malformed::Key)), (1, 0, Some(Malformed::Key)), (2, 0, None)];
    for (opcode, key_bytes, fault) in cases {
        let mut datagram = vec![0; HEADER_BYTES + 16 + 256];
        let header = Header { count: 1, length: datagram.len() as u16, ..Header::of(Kind::Request) };
        header.write(datagram.first_chunk_mut().unwrap());
        datagram[HEADER_BYTES] = opcode;
        datagram[HEADER_BYTES + 2] = key_bytes;
        let header = Header::parse(&datagram).unwrap();
        assert_eq!(operations(&datagram, &header).next().unwrap().err(), fault, "{opcode} {key_bytes}");
    }
    let mut datagram = reply_of(Header::of(Kind::Reply), &[(0, 1, vec![1; 8]), (0, 2, vec![2; 8])]);
    // The value of the second record then reaches beyond the end; the first is read all the same.
    datagram[HEADER_BYTES + 32 + 8] = 9;
    let header = Header::parse(&datagram).unwrap();
    let read: Vec<_> = replies(&datagram, &header).collect();
    assert!(read[0].is_ok() && read[1..] == [Err(Malformed::Record)]);
}

#[test]
fn an_unknown_opcode_is_told_apart_and_stepped_over() {
    let mut out = Vec::new();
    let mut composer = Composer::begin(&mut out, Header::of(Kind::Request), 512);
    let known = Operation::get(1, KeyHash(2), b"key");
    for opcode in [Opcode::Unknown(3), Opcode::Unknown(0x7f)] {
        assert!(composer.push_operation(&Operation { opcode, ..known }));
    }
    assert!(composer.push_operation(&known));
    composer.finish();
    let header = Header::parse(&out).unwrap();
    let opcodes: Vec<_> = operations(&out, &header).map(|operation| operation.unwrap().opcode).collect();
    assert_eq!(opcodes, [Opcode::Unknown(3), Opcode::Unknown(0x7f), Opcode::Get]);
}

#[test]
fn numbers_of_codes_are_read_as_written() {
    for byte in 0..=u8::MAX {
        assert_eq!(Opcode::from_byte(byte).to_byte(), byte);
        assert_eq!(Status::from_byte(byte).to_byte(), byte);
        assert!(Kind::from_byte(byte).is_none_or(|kind| kind as u8 == byte));
        assert_eq!(Reason::from_count(byte.into()).to_count(), u16::from(byte));
    }
    assert_eq!(Status::from_byte(17), Status::TimedOut);
    assert_eq!(Status::from_byte(18), Status::NotDurable);
    assert_eq!(Status::from_byte(19), Status::NotOwner);
    assert_eq!(Status::from_byte(20), Status::Unknown(20));
}

#[test]
fn a_hello_is_longer_than_its_answer() {
    let hello = Hello { nonce: 9, datagram_bytes_max: 1448, window: 32, version_max: 2 };
    let key = keys(7).to_server;
    for (flags, key) in [(Flags::NONE, None), (Flags::SEALED | Flags::OPEN, Some(&key))] {
        let mut datagram = Vec::new();
        hello.compose(&mut datagram, Header { flags, cookie: 5, ..Header::of(Kind::Hello) }, key);
        assert_eq!(datagram.len(), HELLO_DATAGRAM_BYTES);
        let header = Header::parse(&datagram).unwrap();
        assert_eq!(Hello::parse(header.body(&datagram)), Ok(hello));
        assert_eq!(header.flags, flags);
        assert!(key.is_none_or(|key| key.verify(&datagram)));
        assert!(HEADER_BYTES + WELCOME_BYTES + header.tag_bytes() <= datagram.len());
        assert_eq!(Header::parse(&datagram[..255]), Err(Malformed::Length));
    }
}

#[test]
fn refusals_answer_only_what_clients_send() {
    let mut datagram = [0; HEADER_BYTES];
    let asked = Header { stamp: 11, sequence: 12, session: 13, cookie: 14, ..Header::of(Kind::Request) };
    for (byte, is_answered) in
        [(1, true), (2, false), (3, true), (4, false), (5, false), (6, true), (7, false)]
    {
        asked.write(&mut datagram);
        datagram[3] = byte;
        assert_eq!(refusal_of(&datagram, Reason::Cookie, 1).is_some(), is_answered, "{byte}");
    }
    // Another version, an unknown kind and a length of nothing are answered too.
    datagram[2..4].copy_from_slice(&[9, 200]);
    let refusal = refusal_of(&datagram, Reason::Version, 21).unwrap();
    refusal.write(&mut datagram);
    let read = Header::parse(&datagram).unwrap();
    assert_eq!(read, refusal);
    assert_eq!((read.stamp, read.sequence, read.session, read.cookie), (11, 12, 13, 0));
    assert_eq!((read.geometry, Reason::from_count(read.count)), (21, Reason::Version));
    // That of a server of the future is read as well.
    datagram[2] = 4;
    assert_eq!(Header::parse(&datagram), Ok(refusal));
    assert_eq!(version_of(&datagram), Some(4));
    assert_eq!(refusal_of(&datagram[..47], Reason::Version, 21), None);
}

#[test]
fn a_key_leads_to_its_queue() {
    let welcome = welcome();
    // Partition 15 of 16, three queues.
    assert_eq!(welcome.key_queue(KeyHash(u64::MAX)), 0);
    assert_eq!(welcome.key_queue(KeyHash(0x1fff << 48)), 1);
    assert_eq!(welcome.port_of(5), 11_316);
    assert_eq!(Welcome { flags: WelcomeFlags::SINGLE_PORT, ..welcome }.port_of(5), 11_311);
}

#[test]
fn trains_lie_behind_each_other_in_one_buffer() {
    let mut out = Vec::new();
    for request in 0..3 {
        let at = out.len();
        let mut composer = Composer::begin(&mut out, Header::of(Kind::Reply), 512);
        assert!(composer.push_reply(&ReplyRecord::bare(Opcode::Noop, Status::Ok, request)));
        composer.finish();
        out.resize(at + 128, 0);
    }
    let requests: Vec<_> = out
        .chunks(128)
        .flat_map(|segment| replies(segment, &Header::parse(segment).unwrap()).collect::<Vec<_>>())
        .map(|record| record.unwrap().request)
        .collect();
    assert_eq!(requests, [0, 1, 2]);
}
