//! Streams over wires that move a few bytes at a time, and that an attacker holds.

use std::{
    cell::RefCell,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    rc::Rc,
    time::{Duration, Instant},
};

use minos_net::{Progress, Socket, Wire};
use minos_proto::native::Secret;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::*;
use crate::keys::{ANSWER_BYTES, CALL_BYTES, PROOF_BYTES};

const ENDS: Ends = Ends { purpose: Purpose::Commands, from: 3, to: 1 };
const HERE: (&[Purpose], u16) = (&[Purpose::Commands], 1);

fn secret(id: u8, first: u8) -> Secret {
    let digits: String =
        (0..Secret::BYTES as u8).map(|at| format!("{:02x}", at.wrapping_add(first))).collect();
    format!("{id}:{digits}").parse().unwrap()
}

fn keys() -> Keys {
    Keys::new("r", &[secret(1, 200)])
}

/// One end of a wire without a kernel.
#[derive(Clone, Debug, Default)]
struct Pipe {
    comes: Rc<RefCell<Vec<u8>>>,
    leaves: Rc<RefCell<Vec<u8>>>,
    /// Most bytes moved by a call; a call of two moves none.
    few: usize,
    is_odd: Rc<RefCell<bool>>,
    is_closed: Rc<RefCell<bool>>,
}

impl Pipe {
    fn pair(few: usize) -> (Self, Self) {
        let one = Self { few, ..Self::default() };
        let other = Self { comes: one.leaves.clone(), leaves: one.comes.clone(), few, ..Self::default() };
        (one, other)
    }

    fn may_move(&self, bytes: usize) -> Option<usize> {
        let is_odd = !*self.is_odd.borrow();
        *self.is_odd.borrow_mut() = is_odd;
        (bytes > 0 && (is_odd || self.few > 1000)).then_some(bytes.min(self.few))
    }
}

impl Wire for Pipe {
    fn receive(&self, buffer: &mut [u8]) -> Progress {
        let mut comes = self.comes.borrow_mut();
        let Some(count) = self.may_move(comes.len().min(buffer.len())) else {
            return if *self.is_closed.borrow() { Progress::Closed } else { Progress::Blocked };
        };
        buffer[..count].copy_from_slice(&comes[..count]);
        comes.drain(..count);
        Progress::Bytes(count)
    }

    fn send(&self, bytes: &[u8]) -> Progress {
        match self.may_move(bytes.len()) {
            _ if *self.is_closed.borrow() => Progress::Closed,
            Some(count) => {
                self.leaves.borrow_mut().extend_from_slice(&bytes[..count]);
                Progress::Bytes(count)
            }
            None => Progress::Blocked,
        }
    }

    fn break_off(&self) {
        *self.is_closed.borrow_mut() = true;
    }
}

/// Both ends of an open stream.
fn open(few: usize) -> (Sealed<Pipe>, Sealed<Pipe>) {
    let (one, other) = Pipe::pair(few);
    let mut opener = Sealed::connect(one, &keys(), ENDS).unwrap();
    let mut incoming = Incoming::new(other);
    while !incoming.advance(&keys(), HERE).unwrap() {
        assert_ne!(opener.receive(&mut []), Progress::Closed);
    }
    let (accepter, ends) = incoming.open().unwrap();
    assert_eq!(ends, ENDS);
    (opener, accepter)
}

/// Sends everything, as a connection does, and returns what comes out at the other end, in pieces of `room` bytes.
fn carry(from: &mut Sealed<Pipe>, to: &mut Sealed<Pipe>, bytes: &[u8], room: usize) -> Vec<u8> {
    let (mut sent, mut came, mut buffer) = (0, Vec::new(), vec![0; room]);
    for _ in 0..10_000_000 {
        if sent < bytes.len()
            && let Progress::Bytes(count) = from.send(&bytes[sent..])
        {
            sent += count;
        }
        if let Progress::Bytes(count) = to.receive(&mut buffer) {
            came.extend_from_slice(&buffer[..count]);
        }
        if sent == bytes.len() && came.len() >= sent {
            return came;
        }
    }
    panic!("{} of {} bytes came", came.len(), bytes.len());
}

#[test]
fn bytes_come_as_they_were_sent_however_they_are_cut() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    for (few, room) in [(7, 16 << 10), (1 << 20, 100), (1 << 20, 64 << 10), (900, 1)] {
        let (mut opener, mut accepter) = open(few);
        let part = if room == 1 { &bytes[..5000] } else { &bytes };
        assert!(carry(&mut opener, &mut accepter, part, room) == part);
        assert!(carry(&mut accepter, &mut opener, part, room) == part);
        assert!(carry(&mut opener, &mut accepter, b"x", room) == b"x");
    }
}

#[test]
fn pieces_are_sent_in_order() {
    let (mut opener, mut accepter) = open(1 << 20);
    let pieces = [vec![1; 10], vec![], vec![2; 40_000], vec![3; 2]];
    let slices = pieces.each_ref().map(|piece| std::io::IoSlice::new(piece));
    assert_eq!(opener.send_pieces(&slices), Progress::Bytes(40_012));
    let mut came = vec![0; 50_000];
    assert_eq!(accepter.receive(&mut came), Progress::Bytes(40_012));
    assert!(came[..40_012] == pieces.concat());
}

#[test]
fn nothing_is_sent_in_the_clear_and_nothing_twice_the_same() {
    let sealed = |_| {
        let (mut opener, accepter) = open(1 << 20);
        assert_eq!(opener.send(&[b'a'; 1000]), Progress::Bytes(1000));
        let mut all = accepter.wire().comes.borrow().clone();
        assert_eq!(opener.send(&[b'a'; 1000]), Progress::Bytes(1000));
        all.extend_from_slice(&accepter.wire().comes.borrow()[all.len()..]);
        all
    };
    let [one, other] = [0, 1].map(sealed);
    assert_eq!(one.len(), 2 * (2 + 1000 + 16));
    assert!(!one.windows(4).any(|window| window == b"aaaa"));
    assert!(one[..1018] != one[1018..] && one != other);
}

/// What becomes of a call and the proof behind it at an accepter with `keys`, who is `here`.
fn call(opener: &Keys, ends: Ends, accepter: &Keys, here: (&[Purpose], u16)) -> Result<bool, Refusal> {
    let (one, other) = Pipe::pair(1 << 20);
    let mut opener = Sealed::connect(one, opener, ends).unwrap();
    let mut incoming = Incoming::new(other);
    for _ in 0..10 {
        opener.receive(&mut []);
        if incoming.advance(accepter, here)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn who_does_not_know_the_secret_or_means_another_is_refused() {
    assert_eq!(call(&keys(), ENDS, &keys(), HERE), Ok(true));
    // A secret may be replaced node by node.
    let both = Keys::new("r", &[secret(2, 7), secret(1, 200)]);
    assert_eq!(call(&keys(), ENDS, &both, HERE), Ok(true));
    for (what, opener, ends, here, refusal) in [
        ("id", Keys::new("r", &[secret(2, 200)]), ENDS, HERE, Refusal::Secret),
        ("secret", Keys::new("r", &[secret(1, 7)]), ENDS, HERE, Refusal::Unproven),
        ("rack", Keys::new("s", &[secret(1, 200)]), ENDS, HERE, Refusal::Unproven),
        ("number", keys(), Ends { to: 2, ..ENDS }, HERE, Refusal::Unproven),
        ("purpose", keys(), ENDS, (&[Purpose::Control], 1), Refusal::Stranger),
    ] {
        assert_eq!(call(&opener, ends, &keys(), here), Err(refusal), "{what}");
    }
    assert!(Sealed::connect(Pipe::pair(1).0, &Keys::new("r", &[]), ENDS).is_err());
}

#[test]
fn who_answers_without_the_secret_gets_no_bytes() {
    let (one, other) = Pipe::pair(1 << 20);
    let mut opener = Sealed::connect(one, &keys(), ENDS).unwrap();
    assert_eq!(opener.send(b"precious"), Progress::Blocked);
    assert_eq!(other.comes.borrow().len(), CALL_BYTES);
    other.leaves.borrow_mut().extend([7; ANSWER_BYTES]);
    assert_eq!(opener.send(b"precious"), Progress::Closed);
    assert_eq!(opener.receive(&mut [0]), Progress::Closed);
    assert_eq!(other.comes.borrow().len(), CALL_BYTES);
}

#[test]
fn a_replayed_handshake_proves_nothing() {
    let (one, tap) = Pipe::pair(1 << 20);
    let mut opener = Sealed::connect(one, &keys(), ENDS).unwrap();
    opener.receive(&mut []);
    let call = tap.comes.borrow().clone();
    let mut incoming = Incoming::new(tap.clone());
    assert_eq!(incoming.advance(&keys(), HERE), Ok(false));
    opener.send(b"set a");
    let rest = tap.comes.borrow().clone();
    assert_eq!(incoming.advance(&keys(), HERE), Ok(true));
    assert_eq!(rest.len(), PROOF_BYTES + 2 + 5 + 16);
    // The same bytes once more, to the same node.
    let (one, other) = Pipe::pair(1 << 20);
    one.leaves.borrow_mut().extend([call, rest].concat());
    let mut incoming = Incoming::new(other);
    assert_eq!(incoming.advance(&keys(), HERE), Err(Refusal::Unproven));
    assert_eq!(one.comes.borrow().len(), ANSWER_BYTES);
}

#[test]
fn frames_that_are_changed_repeated_or_exchanged_end_the_stream() {
    let frames = |change: fn(&mut Vec<u8>, usize)| {
        let (mut opener, mut accepter) = open(1 << 20);
        assert_eq!(opener.send(b"first"), Progress::Bytes(5));
        let len = accepter.wire().comes.borrow().len();
        assert_eq!(opener.send(b"other"), Progress::Bytes(5));
        change(&mut accepter.wire().comes.borrow_mut(), len);
        let mut came = Vec::new();
        let mut buffer = [0; 100];
        while let Progress::Bytes(count) = accepter.receive(&mut buffer) {
            came.extend_from_slice(&buffer[..count]);
        }
        (String::from_utf8(came).unwrap(), accepter.is_open())
    };
    assert_eq!(frames(|_, _| {}), ("firstother".to_owned(), true));
    assert_eq!(frames(|wire, at| wire[at + 5] ^= 1), ("first".to_owned(), false));
    assert_eq!(frames(|wire, at| wire.extend_from_within(at..)), ("firstother".to_owned(), false));
    assert_eq!(frames(|wire, at| wire.rotate_left(at)), (String::new(), false));
    assert_eq!(frames(|wire, at| wire.truncate(2 * at - 1)), ("first".to_owned(), true));
    assert_eq!(frames(|wire, _| wire.splice(..2, [0, 0]).for_each(drop)), (String::new(), false));
    assert_eq!(frames(|wire, _| wire.splice(..2, [255, 255]).for_each(drop)), (String::new(), false));
}

#[test]
fn any_bytes_are_refused_within_bounds() {
    let valid = {
        let (one, tap) = Pipe::pair(1 << 20);
        Sealed::connect(one, &keys(), ENDS).unwrap().receive(&mut []);
        tap.comes.borrow().clone()
    };
    // In place of a call, behind a true one, in place of an answer, and on an open stream.
    let hostile = |(bytes, place): (Vec<u8>, u8)| {
        let (one, other) = Pipe::pair(1 << 20);
        let mut sent = bytes.clone();
        if place == 1 {
            sent.splice(..0, valid.iter().copied());
        }
        one.leaves.borrow_mut().extend(&sent);
        let proves = match place {
            0 | 1 => Incoming::new(other).advance(&keys(), HERE) == Ok(true),
            2 => {
                let mut opener = Sealed::connect(other, &keys(), ENDS).unwrap();
                opener.receive(&mut [0; 100]);
                opener.is_open()
            }
            _ => {
                let (_opener, mut accepter) = open(1 << 20);
                accepter.wire().comes.borrow_mut().extend(&sent);
                matches!(accepter.receive(&mut [0; 100]), Progress::Bytes(_))
            }
        };
        prop_assert!(!proves);
        prop_assert!(one.comes.borrow().len() <= CALL_BYTES);
        Ok(())
    };
    let inputs = (vec(any::<u8>(), 0..200), 0_u8..4);
    TestRunner::default().run(&inputs, hostile).unwrap();
}

fn sockets() -> (Socket, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    (Socket::from_nonblocking(one.into()), other)
}

fn nonblocking(stream: UnixStream) -> Socket {
    stream.set_nonblocking(true).unwrap();
    Socket::from_nonblocking(stream.into())
}

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn threads_read_and_write() {
    let (one, other) = sockets();
    let bytes = vec![7; 3_000_000];
    let ends = Ends { purpose: Purpose::Control, ..ENDS };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut opener = Blocking::connect(one, &keys(), ends, LONG).unwrap();
            opener.write_all(&bytes).unwrap();
            let mut word = [0; 4];
            opener.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"done");
        });
        let here = (Purpose::Control, 1);
        let (mut accepter, from) = Blocking::accept(nonblocking(other), &keys(), here, LONG).unwrap();
        assert_eq!(from, 3);
        let mut came = vec![0; bytes.len()];
        accepter.read_exact(&mut came).unwrap();
        assert!(came == bytes);
        accepter.set_timeout(SOON);
        assert_eq!(accepter.read(&mut came).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        accepter.write_all(b"done").unwrap();
        accepter.set_timeout(LONG);
        assert_eq!(accepter.read(&mut came).unwrap(), 0);
    });
}

#[test]
fn both_ends_of_a_duplex_send_while_they_receive() {
    let (one, other) = sockets();
    let bytes = vec![7; 3_000_000];
    let carry = |duplex: &Duplex| {
        std::thread::scope(|scope| {
            scope.spawn(|| duplex.send(&bytes, LONG).unwrap());
            let (mut count, mut buffer) = (0, vec![0; 50_000]);
            while count < bytes.len() {
                let received = duplex.receive(&mut buffer, Some(LONG)).unwrap();
                assert!(received > 0 && buffer[..received].iter().all(|&byte| byte == 7));
                count += received;
            }
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let opener = Blocking::connect(one, &keys(), ENDS, LONG).unwrap();
            carry(&Duplex::new(opener.into_sealed()).unwrap());
        });
        let here = (Purpose::Commands, 1);
        let (accepter, _) = Blocking::accept(nonblocking(other), &keys(), here, LONG).unwrap();
        let duplex = Duplex::new(accepter.into_sealed()).unwrap();
        carry(&duplex);
        assert_eq!(duplex.receive(&mut [0], Some(LONG)).unwrap(), 0);
    });
}

#[test]
fn a_duplex_waits_no_longer_than_asked() {
    use std::io::ErrorKind::{BrokenPipe, TimedOut};
    let (one, other) = sockets();
    let opener = std::thread::spawn(|| Blocking::connect(one, &keys(), ENDS, LONG).unwrap());
    let (_silent, _) = Blocking::accept(nonblocking(other), &keys(), (Purpose::Commands, 1), LONG).unwrap();
    let duplex = Duplex::new(opener.join().unwrap().into_sealed()).unwrap();
    let began = Instant::now();
    assert_eq!(duplex.receive(&mut [0], Some(SOON)).unwrap_err().kind(), TimedOut);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| duplex.receive(&mut [0], None));
        // Nobody takes the bytes: the stream ends, and the reader with it.
        assert_eq!(duplex.send(&[0; 3_000_000], SOON).unwrap_err().kind(), TimedOut);
        assert!(!reader.join().unwrap().is_ok_and(|received| received > 0));
    });
    assert!(began.elapsed() < LONG);
    assert_eq!(duplex.send(&[0], SOON).unwrap_err().kind(), BrokenPipe);
}

#[test]
fn a_stream_for_any_of_several_purposes_is_opened() {
    let purposes = [Purpose::Commands, Purpose::Control];
    for purpose in purposes {
        let (one, other) = Pipe::pair(1 << 20);
        let ends = Ends { purpose, ..ENDS };
        let mut opener = Sealed::connect(one, &keys(), ends).unwrap();
        let mut incoming = Incoming::new(other);
        while !incoming.advance(&keys(), (&purposes, 1)).unwrap() {
            opener.receive(&mut []);
        }
        assert_eq!(incoming.open().unwrap().1, ends);
    }
}

#[test]
fn a_slow_handshake_ends_in_time() {
    // Who gets no processor meanwhile sees all bytes at once.
    assert!((0..20).any(|_| ends_in_time()));
}

/// True if a handshake that comes byte by byte ends by its time.
fn ends_in_time() -> bool {
    let (one, mut other) = sockets();
    let began = Instant::now();
    std::thread::scope(|scope| {
        // A byte at a time, so that each wait is short.
        scope.spawn(move || {
            let mut slow = |byte: u8| {
                std::thread::sleep(Duration::from_millis(5));
                other.write_all(&[byte]).is_ok()
            };
            assert!(!b"MNS\x01\x01\x01\x03\x00".iter().chain(&[0; 2000]).all(|&byte| slow(byte)));
        });
        let refused = Blocking::accept(one, &keys(), (Purpose::Commands, 1), SOON).unwrap_err();
        refused.kind() == std::io::ErrorKind::TimedOut && began.elapsed() < SOON + Duration::from_secs(5)
    })
}
