//! Handing messages to the kernel, and handling those that it refuses.

use std::{
    io::{self, IoSlice},
    mem::{MaybeUninit, size_of},
    ops::AddAssign,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::io::Errno;

use super::{UdpPort, name::Name};

/// Messages that are handed over with one call at most.
pub(super) const BATCH_MESSAGES: usize = 64;

/// The fate of trains, counted. A datagram that the kernel accepted may still be lost in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Accepted by the kernel as a whole.
    pub trains: u64,
    /// Dropped, in part or in whole, because a buffer or a queue was full.
    pub dropped: u64,
    /// Longer segments than the path's MTU ([`UdpPort::path_mtu`](super::UdpPort::path_mtu)). The network cut
    /// them into fragments, which is slow and loses more, unless they were longer than any datagram: shorter
    /// ones should be sent from now on.
    pub too_long: u64,
    /// Not sent because the network or a filter reported that the peer can not be reached.
    pub refused: u64,
}

impl AddAssign for Sent {
    fn add_assign(&mut self, other: Self) {
        self.trains += other.trains;
        self.dropped += other.dropped;
        self.too_long += other.too_long;
        self.refused += other.refused;
    }
}

/// One message on its way out.
pub(super) struct Outgoing<'a> {
    pub(super) name: &'a Name,
    pub(super) pieces: &'a [IoSlice<'a>],
    /// The size by which the kernel is to cut it; none for a message of one datagram.
    pub(super) segment_bytes: Option<u16>,
}

/// The kinds of send errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing more can be sent now.
    Full,
    /// This message found no room.
    Dropped,
    /// Perhaps no train can be sent this way: the caller tries its segments one by one.
    NoTrain,
    /// The path does not take datagrams of this length.
    TooLong,
    /// The peer cannot be reached.
    Refused,
}

impl Failure {
    /// Classifies `error`; `is_train` says whether the message was a train.
    pub(super) fn of(error: Errno, is_train: bool) -> Self {
        match error {
            Errno::AGAIN => Self::Full,
            Errno::NOBUFS | Errno::NOMEM => Self::Dropped,
            // Devices and kernels differ in their errors for a train, and for segments that are too long.
            Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP if is_train => Self::NoTrain,
            Errno::MSGSIZE => Self::TooLong,
            _ => Self::Refused,
        }
    }

    /// Counts trains that ended this way.
    pub(super) fn count(self, trains: usize, sent: &mut Sent) {
        match self {
            Self::Full | Self::Dropped => sent.dropped += trains as u64,
            // Counted when fragments were tried.
            Self::TooLong => {}
            Self::NoTrain | Self::Refused => sent.refused += trains as u64,
        }
    }
}

/// How a train goes. Each way is tried when the one before was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// As one message, where the port knows how.
    Train,
    /// In segments, because it was refused as one.
    Segments,
    /// In segments that the network may cut, because they are longer than the path's MTU. The peer could not
    /// learn from a datagram that never comes that it should ask for shorter ones.
    Fragments,
}

impl Way {
    /// True if each segment is a message.
    pub(super) fn is_in_segments(self, port: &UdpPort) -> bool {
        self != Self::Train || !port.gso()
    }

    /// Hands messages over that go this way, as [`submit`] does.
    pub(super) fn submit(self, port: &UdpPort, outgoing: &[Outgoing<'_>]) -> Result<usize, Errno> {
        match self {
            Self::Train => submit(port.as_fd(), outgoing),
            Self::Segments => {
                let taken = submit(port.as_fd(), outgoing)?;
                // Segments were accepted where the train was refused: trains are not supported.
                port.give_up_gso();
                Ok(taken)
            }
            Self::Fragments => {
                // A thread that sends meanwhile may have its datagrams fragmented as well, or forbid
                // fragments too early, so that these are lost: networks may do both anyway.
                port.allow_fragments(true);
                let result = submit(port.as_fd(), outgoing);
                port.allow_fragments(false);
                result
            }
        }
    }

    /// The way to try after a failure of a train; none if that would change nothing.
    pub(super) fn after(self, failure: Failure, sent: &mut Sent) -> Option<Self> {
        match (self, failure) {
            (Self::Train, Failure::NoTrain) => Some(Self::Segments),
            (Self::Train | Self::Segments, Failure::TooLong) => {
                sent.too_long += 1;
                Some(Self::Fragments)
            }
            _ => None,
        }
    }
}

/// The control message with a segment size, as `CMSG_DATA` would place it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    segment_bytes: u16,
    padding: [u8; 6],
}

// SAFETY: the macros only compute.
const _: () = assert!(size_of::<Control>() == unsafe { libc::CMSG_SPACE(2) } as usize);

impl Control {
    fn new(segment_bytes: u16) -> Self {
        // SAFETY: zeros are a value of this structure of integers.
        let mut header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: the macro only computes.
        header.cmsg_len = unsafe { libc::CMSG_LEN(2) } as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self { header, segment_bytes, padding: [0; 6] }
    }
}

/// Hands over the first [`BATCH_MESSAGES`] of `outgoing` with one call; returns how many the kernel accepted.
///
/// # Errors
/// The reason why it refused the first one.
fn submit(socket: BorrowedFd<'_>, outgoing: &[Outgoing<'_>]) -> Result<usize, Errno> {
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; BATCH_MESSAGES];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MESSAGES];
    let count = outgoing.len().min(BATCH_MESSAGES);
    for ((message, header), control) in outgoing.iter().zip(&mut headers).zip(&mut controls) {
        header.write(head(message, control));
    }
    loop {
        // Called directly, as in `receive`.
        // SAFETY: `count` headers were written above; their names, pieces and control messages are
        // borrowed by `outgoing` or lie in `controls`, so that they live through the call, which only
        // reads them and writes nothing but lengths into the headers.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if let Ok(taken) = usize::try_from(result) {
            return if taken > 0 { Ok(taken) } else { Err(Errno::AGAIN) };
        }
        match Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
}

/// The header of one message; its control message goes to `control`.
fn head(message: &Outgoing<'_>, control: &mut MaybeUninit<Control>) -> libc::mmsghdr {
    // SAFETY: a message header of zeros is a valid one.
    let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    // The kernel writes neither to the name nor to the pieces of what it sends.
    header.msg_hdr.msg_name = std::ptr::from_ref(message.name).cast_mut().cast();
    header.msg_hdr.msg_namelen = message.name.bytes();
    // An IoSlice is an iovec, by its documentation.
    header.msg_hdr.msg_iov = message.pieces.as_ptr().cast_mut().cast();
    header.msg_hdr.msg_iovlen = message.pieces.len() as _;
    if let Some(segment_bytes) = message.segment_bytes {
        header.msg_hdr.msg_control = std::ptr::from_mut(control.write(Control::new(segment_bytes))).cast();
        header.msg_hdr.msg_controllen = size_of::<Control>() as _;
    }
    header
}

/// The size to cut a message of `bytes` bytes by, or none if it is one datagram anyway.
pub(super) fn cut(bytes: usize, segment_bytes: usize) -> Option<u16> {
    u16::try_from(segment_bytes).ok().filter(|_| bytes > segment_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_trains_are_tried_again_in_segments() {
        for error in [Errno::IO, Errno::INVAL, Errno::MSGSIZE] {
            assert_eq!(Failure::of(error, true), Failure::NoTrain);
        }
        assert_eq!(Failure::of(Errno::MSGSIZE, false), Failure::TooLong);
        assert_eq!(Failure::of(Errno::INVAL, false), Failure::Refused);
        assert_eq!(Failure::of(Errno::CONNREFUSED, true), Failure::Refused);
        assert_eq!(Failure::of(Errno::PERM, true), Failure::Refused);
        assert_eq!(Failure::of(Errno::AGAIN, true), Failure::Full);
        assert_eq!(Failure::of(Errno::NOBUFS, true), Failure::Dropped);
    }

    #[test]
    fn each_way_is_tried_once() {
        let mut sent = Sent::default();
        assert_eq!(Way::Train.after(Failure::NoTrain, &mut sent), Some(Way::Segments));
        assert_eq!(Way::Segments.after(Failure::TooLong, &mut sent), Some(Way::Fragments));
        assert_eq!(sent.too_long, 1);
        assert_eq!(Way::Fragments.after(Failure::TooLong, &mut sent), None);
        for way in [Way::Train, Way::Segments, Way::Fragments] {
            for failure in [Failure::Full, Failure::Dropped, Failure::Refused] {
                assert_eq!(way.after(failure, &mut sent), None);
            }
        }
        assert_eq!(sent.too_long, 1);
    }

    #[test]
    fn one_datagram_is_not_cut() {
        assert_eq!(cut(1448, 1448), None);
        assert_eq!(cut(1449, 1448), Some(1448));
        assert_eq!(cut(10, 1448), None);
    }
}
