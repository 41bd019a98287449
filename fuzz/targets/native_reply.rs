//! The client's parser of datagrams: any bytes are parsed or refused, and parsed ones are composed to the
//! same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_proto::native::{
    ACK_HEAD_BYTES, AckHead, Composer, DATA_HEAD_BYTES, DATAGRAM_BYTES_MAX, DataHead, Flags, GRANT_BYTES,
    Grant, Header, Kind, ReplyRecord, Status, WELCOME_BYTES, Welcome, push_ranges, replies,
};

fuzz_target!(|datagram: &[u8]| {
    let Ok(header) = Header::parse(datagram) else { return };
    let body = header.body(datagram);
    match header.kind {
        Kind::Reply => check_replies(datagram, header),
        Kind::Welcome => check_welcome(body),
        Kind::Data => check_data(body),
        Kind::Ack => check_ack(body),
        _ => assert_eq!(replies(datagram, &header).count(), 0),
    }
});

fn check_replies(datagram: &[u8], header: Header) {
    let read = || replies(datagram, &header).map_while(Result::ok);
    let (mut out, unsealed) = (Vec::new(), header.flags.without(Flags::SEALED));
    let mut composer = Composer::begin(&mut out, Header { flags: unsealed, ..header }, DATAGRAM_BYTES_MAX);
    for record in read() {
        check_grant(&record);
        assert!(composer.push_reply(&record));
    }
    let length = composer.finish();
    assert!(length + header.tag_bytes() <= usize::from(header.length));
    let again = Header::parse(&out).expect("what was composed is read");
    let again: Vec<_> = replies(&out, &again).map(|record| record.expect("it was read")).collect();
    assert_eq!(again, read().collect::<Vec<_>>());
}

fn check_grant(record: &ReplyRecord<'_>) {
    if !matches!(record.status, Status::Large | Status::Granted) {
        return;
    }
    let Ok(grant) = Grant::parse(record.value) else { return };
    let fragments = grant.fragments().expect("a grant that was read has fragments");
    if let Some(last) = fragments.count().checked_sub(1) {
        assert_eq!(fragments.range(last).map(|range| range.end as u64), Some(grant.value_bytes));
    }
    let mut out = [0xff; GRANT_BYTES];
    grant.write(&mut out);
    assert_eq!(Grant::parse(&out), Ok(grant));
}

fn check_welcome(body: &[u8]) {
    let Ok(welcome) = Welcome::parse(body) else { return };
    let mut out = [0xff; WELCOME_BYTES];
    welcome.write(&mut out);
    assert_eq!(Welcome::parse(&out), Ok(welcome));
    let hash = minos_base::KeyHash(welcome.cookie);
    assert!(welcome.key_queue(hash) < welcome.queues);
    assert!(welcome.port_of(2 * welcome.queues - 1) >= welcome.base_port);
}

fn check_data(body: &[u8]) {
    let Ok((head, data)) = DataHead::parse(body) else { return };
    let mut out = vec![0xff; DATA_HEAD_BYTES];
    head.write(out.first_chunk_mut().expect("it is as long"));
    out.extend_from_slice(data);
    assert_eq!(DataHead::parse(&out), Ok((head, data)));
}

fn check_ack(body: &[u8]) {
    let Ok((head, missing)) = AckHead::parse(body) else { return };
    let missing: Vec<_> = missing.collect();
    assert_eq!(missing.len(), head.ranges as usize);
    let mut out = vec![0xff; ACK_HEAD_BYTES];
    head.write(out.first_chunk_mut().expect("it is as long"));
    push_ranges(&mut out, missing.iter().copied());
    let (again, ranges) = AckHead::parse(&out).expect("what was composed is read");
    assert_eq!((again, ranges.collect::<Vec<_>>()), (head, missing));
}
