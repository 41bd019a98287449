//! When bytes arrived, as the kernel saw it.
//!
//! A load generator that is busy with one reply must not date the next one late. The kernel notes the
//! time at which a segment came in (SO_TIMESTAMPING), whenever it is received.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

/// Bytes that were received, and when the last of them arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// How many; 0 when the peer has closed.
    pub bytes: usize,
    /// Nanoseconds since 1970 on the real-time clock, if the kernel noted it.
    pub arrived_unix_ns: Option<u64>,
}

/// The treatment of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Copy them into the buffer.
    Copy,
    /// Drop them without copying where the kernel can (TCP); the buffer only gives their number.
    Discard,
}

/// Room for the control message that carries a stamp, aligned as its header must be.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; 128]);

/// Asks the kernel to note arrivals on a socket.
///
/// # Errors
/// The kind of socket or the kernel does not know how.
pub fn enable_arrival_stamps(socket: impl AsFd) -> io::Result<()> {
    let flags: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the descriptor is open while it is borrowed; the option's value is a c_uint that lives
    // through the call, and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast(),
            size_of::<libc::c_uint>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Receives at most as many bytes as `buffer` holds.
///
/// # Errors
/// As `recvmsg`; [`io::ErrorKind::WouldBlock`] when nothing is there.
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8], take: Take) -> io::Result<Stamped> {
    let flags = match take {
        Take::Copy => 0,
        Take::Discard => libc::MSG_TRUNC,
    };
    loop {
        match receive(socket.as_fd(), buffer, flags | libc::MSG_DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<Stamped> {
    let mut control = Control([MaybeUninit::uninit(); 128]);
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a message header of zeros is a valid one.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the header points to one piece that spans `buffer` and to `control`, whose sizes it gives;
    // all of them live through the call, and no other thread uses them meanwhile.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    match usize::try_from(received) {
        Ok(bytes) => Ok(Stamped { bytes: bytes.min(buffer.len()), arrived_unix_ns: stamp(&message) }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The software time stamp among the control messages that `recvmsg` filled in.
fn stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has set the length of the control messages, which the macros respect.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a header that the macros return is whole and aligned.
        let kind =
            unsafe { (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == SCM_TIMESTAMPING };
        if kind {
            // SAFETY: this kind of message carries three timespecs, the first of which is the software
            // stamp; the data need not be aligned.
            let time: libc::timespec =
                unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            return nanoseconds(time);
        }
        // SAFETY: `header` is one of the messages in `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// The control message has the number of the option.
const SCM_TIMESTAMPING: libc::c_int = libc::SO_TIMESTAMPING;

/// None for a time of zero, which means that the kernel did not note it.
fn nanoseconds(time: libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanoseconds = seconds.checked_mul(1_000_000_000)?.checked_add(u64::try_from(time.tv_nsec).ok()?)?;
    (nanoseconds > 0).then_some(nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        net::{TcpListener, TcpStream},
        os::unix::net::UnixStream,
        thread,
        time::{Duration, SystemTime, UNIX_EPOCH},
    };

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        enable_arrival_stamps(&near).unwrap();
        (near, far)
    }

    fn now_ns() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
    }

    /// Receives when something is there; the first stamps may be missing, for the kernel switches them
    /// on in the background.
    fn receive_some(socket: impl AsFd, buffer: &mut [u8], take: Take) -> Stamped {
        loop {
            match receive_stamped(socket.as_fd(), buffer, take) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                result => return result.unwrap(),
            }
        }
    }

    #[test]
    fn the_stamp_is_of_the_arrival_and_not_of_the_receipt() {
        let (near, mut far) = pair();
        let delay = Duration::from_millis(30);
        for _ in 0..100 {
            let before = now_ns();
            far.write_all(b"hello").unwrap();
            let after = now_ns();
            thread::sleep(delay);
            let received = receive_some(&near, &mut [0; 16], Take::Copy);
            assert_eq!(received.bytes, 5);
            let Some(arrived) = received.arrived_unix_ns else { continue };
            // On loopback a segment arrives while it is sent, or soon after; it was received at least
            // `delay` later.
            assert!(arrived >= before);
            assert!(now_ns() - arrived >= delay.as_nanos() as u64 || arrived > after);
            return;
        }
        panic!("the kernel noted no arrival");
    }

    #[test]
    fn discarded_bytes_leave_the_buffer_as_it_was() {
        let (near, mut far) = pair();
        far.write_all(b"dropped, kept").unwrap();
        let mut buffer = *b"--------";
        let mut left = 8;
        while left > 0 {
            left -= receive_some(&near, &mut buffer[..left], Take::Discard).bytes;
        }
        assert_eq!(&buffer, b"--------");
        let received = receive_some(&near, &mut buffer, Take::Copy);
        assert_eq!(&buffer[..received.bytes], b" kept");
    }

    #[test]
    fn a_closed_peer_is_no_bytes_and_an_empty_socket_blocks() {
        let (near, far) = UnixStream::pair().unwrap();
        let error = receive_stamped(&near, &mut [0; 4], Take::Copy).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(far);
        assert_eq!(receive_stamped(&near, &mut [0; 4], Take::Copy).unwrap().bytes, 0);
    }
}
