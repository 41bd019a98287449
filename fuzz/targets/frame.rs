//! The reader of frames from a network card: any bytes are read or refused, and a datagram that is read is written as
//! one that is read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use minos_net::frame::{ARP_FRAME_BYTES, Arp, head_bytes, parse, write_head};

fuzz_target!(|bytes: &[u8]| {
    if let Some(asked @ Arp::Request { mac, ip, wanted }) = Arp::parse(bytes) {
        let mut frame = [0xa5; ARP_FRAME_BYTES];
        Arp::write_request(&mut frame, mac, ip, wanted);
        assert_eq!(Arp::parse(&frame), Some(asked));
    }
    let Ok(datagram) = parse(bytes) else { return };
    let payload = &bytes[datagram.payload.clone()];
    let begin = head_bytes(&datagram.from.address.ip());
    assert_eq!(datagram.payload.start, begin);
    let mut frame = vec![0xa5; begin + payload.len()];
    frame[begin..].copy_from_slice(payload);
    let bytes = write_head(&mut frame, &datagram.from, &datagram.to, payload.len());
    assert_eq!(bytes, Some(frame.len()));
    assert_eq!(parse(&frame), Ok(datagram));
});
