use std::os::unix::net::UnixStream;

use super::*;

const TOKEN: Token = Token(3 << 32 | 1);

fn pair() -> (Socket, Socket) {
    let (a, b) = UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    (Socket::from_nonblocking(a.into()), Socket::from_nonblocking(b.into()))
}

/// What is ready after as many calls as it takes for `is_done`.
fn poll_until(poller: &mut Uring, mut is_done: impl FnMut(&Uring, &[Ready]) -> bool) -> Vec<Ready> {
    let mut ready = Vec::new();
    while !is_done(poller, &ready) {
        poller.poll(&mut ready, 4, Wait::For(Duration::from_secs(60))).unwrap();
    }
    ready
}

fn is_refused(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
}

#[test]
fn a_name_in_use_is_refused() {
    let mut poller = Uring::open().unwrap();
    let (near, far) = pair();
    let (other, _peer) = pair();
    poller.add(TOKEN, &near, Interest::Read).unwrap();
    assert!(is_refused(poller.add(TOKEN, &other, Interest::Read)));
    // Another one at the same place: the receipt that is in flight there would lose its memory.
    assert!(is_refused(poller.add(Token(4 << 32 | 1), &other, Interest::Read)));
    assert_eq!(far.send(b"x"), Progress::Bytes(1));
    let ready = poll_until(&mut poller, |_, ready| !ready.is_empty());
    assert_eq!(ready, [Ready { token: TOKEN, readable: true, writable: false, hangup: false }]);
    let mut buffer = [0; RECEIPT_BYTES];
    assert_eq!((poller.receive(TOKEN, &near, &mut buffer), buffer[0]), (Progress::Bytes(1), b'x'));
}

#[test]
fn a_name_is_free_when_nothing_is_in_flight_any_more() {
    let mut poller = Uring::open().unwrap();
    let ((near, _far), (other, peer)) = (pair(), pair());
    poller.add(TOKEN, &near, Interest::Read).unwrap();
    poller.remove(TOKEN, &near);
    assert!(is_refused(poller.add(TOKEN, &other, Interest::Read)));
    poll_until(&mut poller, |poller, _| poller.leaving.is_empty());
    poller.add(TOKEN, &other, Interest::Read).unwrap();
    assert_eq!(peer.send(b"x"), Progress::Bytes(1));
    assert_eq!(poll_until(&mut poller, |_, ready| !ready.is_empty())[0].token, TOKEN);
}

#[test]
fn a_descriptor_stays_open_while_its_number_may_be_used() {
    let mut poller = Uring::open().unwrap();
    let (near, _far) = pair();
    let fd = near.share();
    poller.add(TOKEN, &near, Interest::Read).unwrap();
    drop(near);
    assert_eq!(Arc::strong_count(&fd), 2);
    // A receipt is in flight: its memory is the kernel's, but not the descriptor.
    drop(poller);
    assert_eq!(Arc::strong_count(&fd), 1);
}
