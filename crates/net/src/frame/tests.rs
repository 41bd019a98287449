use std::net::SocketAddr;

use proptest::{collection::vec, prelude::*};

use super::*;

const CLIENT: Mac = [2, 0, 0, 0, 0, 1];
const SERVER: Mac = [2, 0, 0, 0, 0, 2];

fn ends(from: &str, to: &str) -> [End; 2] {
    let end = |mac, address: &str| End { mac, address: address.parse().unwrap() };
    [end(CLIENT, from), end(SERVER, to)]
}

fn written(from: &End, to: &End, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xa5; 2048];
    let begin = head_bytes(&from.address.ip());
    frame[begin..begin + payload.len()].copy_from_slice(payload);
    let bytes = write_head(&mut frame, from, to, payload.len()).unwrap();
    frame.truncate(bytes);
    frame
}

fn families() -> [[End; 2]; 2] {
    [ends("10.77.0.2:4000", "10.77.0.1:11311"), ends("[fd77::2]:4000", "[fd77::1]:11311")]
}

/// Sets the UDP checksum to `value`.
fn with_checksum(mut frame: Vec<u8>, ip: IpAddr, value: u16) -> Vec<u8> {
    let at = head_bytes(&ip) - 2;
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    frame
}

/// The checksums, one of them over an odd number of bytes, were computed apart.
#[test]
fn bytes_on_the_wire() {
    let [from, to] = ends("10.77.0.2:4000", "10.77.0.1:11311");
    let frame = written(&from, &to, b"abc");
    let expected = [
        &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..],
        &[0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x26, 0x32, 10, 77, 0, 2, 10, 77, 0, 1],
        &[0x0f, 0xa0, 0x2c, 0x2f, 0, 11, 0xeb, 0x09],
        b"abc",
    ]
    .concat();
    assert_eq!(frame, expected);
}

#[test]
fn a_head_serves_datagrams_of_all_lengths() {
    for [from, to] in families() {
        let head = Head::between(&from, &to).unwrap();
        let begin = head.bytes();
        assert_eq!(begin, head_bytes(&from.address.ip()));
        for bytes in [0, 1, 2, 7, 8, 9, 700, 1472, 3, 0] {
            // What lay there before has no effect.
            let mut frame: Vec<u8> = (0..begin + bytes + 5).map(|at| (at * 7) as u8 | 1).collect();
            let payload = frame[begin..begin + bytes].to_vec();
            assert_eq!(head.write(&mut frame, bytes), Some(begin + bytes));
            let read = parse(&frame).unwrap();
            assert_eq!((read.from, read.to, &frame[read.payload]), (from, to, &payload[..]));
        }
    }
}

#[test]
fn what_is_written_is_read() {
    for [from, to] in families() {
        for payload in [&b""[..], b"a", b"ab", &[0xff; 1472]] {
            let mut frame = written(&from, &to, payload);
            // Short frames are padded on their way.
            frame.extend([0; 18]);
            let read = parse(&frame).unwrap();
            assert_eq!((read.from, read.to), (from, to));
            assert_eq!(&frame[read.payload], payload);
        }
    }
}

#[test]
fn a_checksum_may_be_left_to_the_hardware_and_may_be_absent_in_ipv4_only() {
    for [from, to] in families() {
        let ip = from.address.ip();
        let frame = written(&from, &to, b"payload");
        let ips = [from, to].map(|end| match end.address.ip() {
            IpAddr::V4(ip) => sum(&ip.octets()),
            IpAddr::V6(ip) => sum(&ip.octets()),
        });
        let left = fold(ips[0] + ips[1] + number(17) + number(8 + 7)).to_be();
        assert!(parse(&with_checksum(frame.clone(), ip, left)).is_ok());
        let wrong = Err(Invalid::Checksum);
        assert_eq!(parse(&with_checksum(frame.clone(), ip, left ^ 0x100)), wrong);
        let absent = parse(&with_checksum(frame, ip, 0));
        assert_eq!(absent.err(), if ip.is_ipv4() { None } else { wrong.err() });
    }
}

#[test]
fn other_packets_are_told_apart() {
    let spoiled = |[from, to]: [End; 2], at: usize, byte: u8| {
        let mut frame = written(&from, &to, b"payload");
        frame[at] = byte;
        parse(&frame).unwrap_err()
    };
    let [ipv4, ipv6] = families();
    // ARP, VLAN, options, a fragment, TCP; then a next header, a version.
    for (at, byte) in [(13, 6), (12, 0x81), (14, 0x46), (20, 0x20), (21, 1), (23, 6)] {
        assert_eq!(spoiled(ipv4, at, byte), Invalid::Other, "{at}");
    }
    for (at, byte) in [(20, 44), (14, 0x45)] {
        assert_eq!(spoiled(ipv6, at, byte), Invalid::Other, "{at}");
    }
    // A length of UDP, beyond the packet and below its header.
    for byte in [200, 7] {
        assert_eq!(spoiled(ipv4, 39, byte), Invalid::Length);
        assert_eq!(spoiled(ipv6, 59, byte), Invalid::Length);
    }
    // The checksum of the IPv4 header.
    assert_eq!(spoiled(ipv4, 25, 0), Invalid::Checksum);
}

#[test]
fn sources_that_are_no_host_are_not_answered() {
    for from in ["224.0.0.1:5", "255.255.255.255:5", "0.0.0.0:5", "127.0.0.1:5", "10.77.0.2:0"] {
        let [from, to] = ends(from, "10.77.0.1:11311");
        assert_eq!(parse(&written(&from, &to, b"x")), Err(Invalid::Source), "{from:?}");
    }
    for from in ["[ff02::1]:5", "[::]:5", "[::1]:5", "[fd77::2]:0"] {
        let [from, to] = ends(from, "[fd77::1]:11311");
        assert_eq!(parse(&written(&from, &to, b"x")), Err(Invalid::Source), "{from:?}");
    }
    let [mut from, to] = families()[0];
    from.mac = [0xff; 6];
    assert_eq!(parse(&written(&from, &to, b"x")), Err(Invalid::Source));
}

/// Sets IP's checksum to the right one.
fn repair(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&checksum.to_ne_bytes());
}

/// Frames of one flow, and then with one byte changed.
#[test]
fn a_flow_has_what_parsing_reads() {
    let [from, to] = families()[0];
    let flow = Flow::of(&written(&from, &to, b"first")).unwrap();
    for bytes in [0, 1, 2, 7, 8, 700, 1472] {
        let mut frame = written(&from, &to, &vec![0x5a; bytes]);
        frame.extend([0; 18]);
        assert_eq!(flow.payload(&frame), Some(parse(&frame).unwrap().payload));
        // The number of IP is a sender's own.
        frame[18..20].copy_from_slice(&[7, 9]);
        repair(&mut frame);
        assert_eq!(flow.payload(&frame), Some(parse(&frame).unwrap().payload));
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 0x11;
            // All count but the padding and, for the checksum, which may be left out, its field.
            assert_eq!(flow.payload(&changed).is_some(), at >= 42 + bytes, "{bytes} {at}");
        }
        for end in 0..frame.len() {
            assert_eq!(flow.payload(&frame[..end]).is_some(), end >= 42 + bytes, "{bytes} {end}");
        }
    }
    let absent = with_checksum(written(&from, &to, b"none"), from.address.ip(), 0);
    // IP's length, and UDP's, in a frame of 46 bytes whose UDP has no checksum.
    for (ip_bytes, udp_bytes, end) in [
        (32, 12, Some(46)),
        (33, 12, None),
        (31, 12, None),
        (32, 11, Some(45)),
        (32, 13, None),
        (32, 7, None),
    ] {
        let mut frame = absent.clone();
        [frame[17], frame[39]] = [ip_bytes, udp_bytes];
        repair(&mut frame);
        assert_eq!(parse(&frame).ok().map(|datagram| datagram.payload.end), end, "{ip_bytes} {udp_bytes}");
        assert_eq!(flow.payload(&frame).map(|payload| payload.end), end, "{ip_bytes} {udp_bytes}");
    }
    assert_eq!(flow.payload(&absent), Some(42..46));
    let [from, to] = families()[1];
    let frame = written(&from, &to, b"first");
    assert_eq!((Flow::of(&frame), flow.payload(&frame)), (None, None));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let [[v4, v4_to], [v6, v6_to]] = families();
    assert_eq!(write_head(&mut [0; 49], &v4, &v4_to, 8), None);
    assert_eq!(write_head(&mut [0; 50], &v4, &v4_to, 8), Some(50));
    assert_eq!(write_head(&mut vec![0; 1 << 17], &v4, &v4_to, 65_508), None);
    assert_eq!(write_head(&mut vec![0; 1 << 17], &v4, &v4_to, 65_507), Some(65_549));
    assert_eq!(write_head(&mut vec![0; 1 << 17], &v6, &v6_to, 65_528), None);
    assert_eq!(write_head(&mut [0; 100], &v4, &v6_to, 8), None);
    assert_eq!(write_head(&mut [0; 100], &v4, &v4_to, usize::MAX), None);
}

fn any_end() -> impl Strategy<Value = ([Mac; 2], bool, [[u16; 8]; 2], [u16; 2])> {
    (any::<[Mac; 2]>(), any::<bool>(), any::<[[u16; 8]; 2]>(), any::<[u16; 2]>())
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(datagram) = parse(&bytes) {
            prop_assert!(datagram.payload.end <= bytes.len());
        }
    }

    #[test]
    fn a_spoiled_frame_never_reaches_beyond_itself(
        payload in vec(any::<u8>(), 0..64), is_ipv4: bool, changes in vec((0_usize..128, any::<u8>()), 0..4),
        cut in 0_usize..128,
    ) {
        let [from, to] = families()[usize::from(!is_ipv4)];
        let mut frame = written(&from, &to, &payload);
        changes.iter().for_each(|&(at, byte)| if let Some(it) = frame.get_mut(at) { *it = byte });
        frame.truncate(cut);
        if let Ok(datagram) = parse(&frame) {
            prop_assert!(datagram.payload.end <= frame.len());
        }
    }

    #[test]
    fn a_flow_says_nothing_that_parsing_does_not(
        payload in vec(any::<u8>(), 0..64), changes in vec((0_usize..128, any::<u8>()), 0..3), cut in 0_usize..140,
        is_repaired: bool,
    ) {
        let [from, to] = families()[0];
        let flow = Flow::of(&written(&from, &to, b"first")).unwrap();
        let mut frame = written(&from, &to, &payload);
        changes.iter().for_each(|&(at, byte)| if let Some(it) = frame.get_mut(at) { *it = byte });
        if is_repaired {
            frame[40..42].fill(0);
            repair(&mut frame);
        }
        frame.truncate(cut);
        if let Some(place) = flow.payload(&frame) {
            prop_assert_eq!(parse(&frame), Ok(Datagram { from, to, payload: place }));
        }
    }

    #[test]
    fn any_datagram_comes_back((macs, is_ipv4, ips, ports) in any_end(), payload in vec(any::<u8>(), 0..1500)) {
        let ip = |words: [u16; 8]| match is_ipv4 {
            true => IpAddr::from((u32::from(words[0]) << 16 | u32::from(words[1])).to_be_bytes()),
            false => IpAddr::from(words),
        };
        let end = |at: usize| End { mac: macs[at], address: SocketAddr::from((ip(ips[at]), ports[at])) };
        let frame = written(&end(0), &end(1), &payload);
        match parse(&frame) {
            Ok(read) => {
                prop_assert_eq!((read.from, read.to), (end(0), end(1)));
                prop_assert_eq!(&frame[read.payload], &payload[..]);
            }
            Err(error) => prop_assert_eq!(error, Invalid::Source),
        }
    }

    #[test]
    fn one_wrong_bit_of_the_payload_is_noticed(payload in vec(any::<u8>(), 1..200), is_ipv4: bool, bit: usize) {
        let [from, to] = families()[usize::from(!is_ipv4)];
        let mut frame = written(&from, &to, &payload);
        let begin = head_bytes(&from.address.ip());
        let bit = bit % (8 * payload.len());
        // Not where the checksum is by chance that of the pseudo-header.
        prop_assume!(!is_same(fold(sum(&frame[begin - 8..begin - 2]) + sum(&payload)), 0));
        frame[begin + bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(parse(&frame), Err(Invalid::Checksum));
    }
}
