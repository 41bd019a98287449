//! Receiving many messages with one call.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    net::SocketAddr,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    slice::Chunks,
};

use rustix::io::Errno;

use super::{BURST_MESSAGES, MESSAGE_BYTES_MAX, UdpPort, name::Name};

/// Errors of earlier datagrams that a call skips before it gives up.
const ERRORS_MAX: usize = 8;

/// Fewest slots offered to a call. Preparing all slots for one message would
/// cost a tenth of the message itself.
const OFFERED_MIN: usize = 4;
/// The gap between slots: without it, the starts of all messages would compete for the same few cache sets.
const GAP_BYTES: usize = 5 * 64;

/// Room for the control message that carries a segment size, aligned as its header must be.
type Control = MaybeUninit<[u64; 8]>;

/// Room for a burst of messages, taken once.
pub struct ReceiveBurst {
    bytes: Box<[u8]>,
    slot_bytes: usize,
    names: Box<[Name]>,
    received: Vec<Slot>,
    is_full: bool,
    /// Slots offered to the next call at first: twice the number used last.
    offered: usize,
    counts: Received,
}

/// Counts of messages received, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Messages, of which each one may be a train.
    pub messages: u64,
    /// Messages that were dropped because they did not fit their room.
    pub truncated: u64,
    /// Errors that the network reported about earlier datagrams.
    pub errors: u64,
}

/// Where a message lies: in the slot of this number, so long, in segments of this size.
#[derive(Clone, Copy, Debug)]
struct Slot {
    index: usize,
    bytes: usize,
    segment_bytes: usize,
    peer: SocketAddr,
}

/// Bytes that came from one peer at once: one datagram, or a train of them.
#[derive(Debug)]
pub struct Message<'a> {
    /// The sender.
    pub peer: SocketAddr,
    /// All bytes.
    pub bytes: &'a mut [u8],
    /// Bytes of each segment; only the last may be shorter. Never 0.
    pub segment_bytes: usize,
}

impl Message<'_> {
    /// The datagrams that it is made of. An empty datagram has none.
    pub fn segments(&self) -> Chunks<'_, u8> {
        self.bytes.chunks(self.segment_bytes)
    }
}

impl ReceiveBurst {
    /// Room for [`BURST_MESSAGES`] messages of any length: 2 MiB, of which only the
    /// parts that receive messages are touched.
    pub fn new() -> Self {
        Self::with_slots(BURST_MESSAGES, MESSAGE_BYTES_MAX)
    }

    /// Room for `slots` messages (1..=[`BURST_MESSAGES`]) of at most `slot_bytes` each.
    pub fn with_slots(slots: usize, slot_bytes: usize) -> Self {
        let (slots, slot_bytes) = (slots.clamp(1, BURST_MESSAGES), slot_bytes.max(1));
        Self {
            bytes: vec![0; slots * (slot_bytes + GAP_BYTES)].into(),
            slot_bytes,
            names: vec![Name::EMPTY; slots].into(),
            received: Vec::with_capacity(slots),
            is_full: false,
            offered: OFFERED_MIN,
            counts: Received::default(),
        }
    }

    /// True if the last call filled all its slots, so that more messages may be waiting.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The counts of this burst since its creation.
    pub fn counts(&self) -> Received {
        self.counts
    }

    /// Forgets the messages of the last call.
    pub(crate) fn clear(&mut self) {
        self.received.clear();
    }

    /// The messages of the last call.
    pub fn messages(&mut self) -> impl ExactSizeIterator<Item = Message<'_>> {
        let mut slots = self.bytes.chunks_exact_mut(self.slot_bytes + GAP_BYTES);
        let mut passed = 0;
        self.received.iter().map(move |slot| {
            // Slots are listed in ascending order, so that each is met once.
            let room = slots.nth(slot.index - passed).unwrap_or_default();
            passed = slot.index + 1;
            let bytes = &mut room[..slot.bytes];
            Message { peer: slot.peer, bytes, segment_bytes: slot.segment_bytes }
        })
    }
}

impl Default for ReceiveBurst {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for ReceiveBurst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveBurst").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl UdpPort {
    /// Receives the waiting messages into `burst`, in place of its old contents, and returns their number.
    /// [`ReceiveBurst::is_full`] is true if more may be waiting.
    ///
    /// # Errors
    /// Only errors that make the port itself unusable. An empty queue is no error, nor are the network's
    /// reports about datagrams that were sent.
    pub fn receive(&self, burst: &mut ReceiveBurst) -> io::Result<usize> {
        self.receive_at_most(burst, BURST_MESSAGES)
    }

    /// The same for at most `messages_max` messages.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn receive_at_most(&self, burst: &mut ReceiveBurst, messages_max: usize) -> io::Result<usize> {
        let slots = burst.names.len().min(messages_max);
        burst.received.clear();
        let offered = burst.offered.min(slots);
        let mut filled = self.fill(burst, 0..offered)?;
        if filled == offered && offered < slots {
            filled += self.fill(burst, offered..slots)?;
        }
        burst.is_full = filled == slots;
        burst.offered = (2 * filled).max(OFFERED_MIN);
        Ok(burst.received.len())
    }

    /// Receives into these slots. Returns the number filled.
    fn fill(&self, burst: &mut ReceiveBurst, slots: Range<usize>) -> io::Result<usize> {
        for _ in 0..ERRORS_MAX {
            match receive(self.as_fd(), burst, slots.clone()) {
                Ok(messages) => return Ok(messages),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(error @ (Errno::BADF | Errno::NOTSOCK | Errno::FAULT | Errno::INVAL)) => {
                    return Err(error.into());
                }
                Err(_) => burst.counts.errors += 1,
            }
        }
        Ok(0)
    }
}

/// One call for as many messages as there are `slots` of the burst. Returns the number that the kernel handed
/// out, including those that are dropped here.
fn receive(socket: BorrowedFd<'_>, burst: &mut ReceiveBurst, slots: Range<usize>) -> Result<usize, Errno> {
    let mut controls = [Control::uninit(); BURST_MESSAGES];
    let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; BURST_MESSAGES];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BURST_MESSAGES];
    let slot_bytes = burst.slot_bytes;
    let rooms = burst.bytes.chunks_exact_mut(slot_bytes + GAP_BYTES).skip(slots.start);
    let places = rooms.zip(&mut burst.names[slots.clone()]);
    let heads = headers.iter_mut().zip(&mut pieces).zip(&mut controls);
    for ((room, name), ((header, piece), control)) in places.zip(heads) {
        let piece = piece.write(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: slot_bytes });
        header.write(head(name, piece, control));
    }
    // Called directly, because the C library's function is a cancellation point, which takes longer to
    // enter and leave than all the work here.
    // SAFETY: a header was written above for each of the slots, with a name, one piece and a
    // control buffer of its own, whose sizes it gives; all of them live through the call, and
    // no other thread uses them meanwhile.
    let result = unsafe {
        libc::syscall(
            libc::SYS_recvmmsg,
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            slots.len() as libc::c_uint,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut::<libc::timespec>(),
        )
    };
    let Ok(messages) = usize::try_from(result) else {
        return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    for (index, header) in slots.zip(&headers).take(messages) {
        // SAFETY: the kernel filled in this header, which was written before the call; what it points to
        // still lives.
        note(burst, index, unsafe { header.assume_init_ref() });
    }
    Ok(messages)
}

/// A header for one message.
fn head(name: &mut Name, piece: &mut libc::iovec, control: &mut Control) -> libc::mmsghdr {
    // SAFETY: a message header of zeros is a valid one.
    let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
    header.msg_hdr.msg_namelen = size_of::<Name>() as libc::socklen_t;
    header.msg_hdr.msg_iov = piece;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = control.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = size_of::<Control>() as _;
    header
}

/// Writes down the message in the slot of number `index`, or that it is dropped.
fn note(burst: &mut ReceiveBurst, index: usize, header: &libc::mmsghdr) {
    let bytes = (header.msg_len as usize).min(burst.slot_bytes);
    // A name that the kernel did not write would be that of an earlier message.
    let peer = burst.names[index].address().filter(|_| header.msg_hdr.msg_namelen > 0);
    let Some(peer) = peer else {
        burst.counts.errors += 1;
        return;
    };
    if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
        burst.counts.truncated += 1;
        return;
    }
    burst.counts.messages += 1;
    let segment_bytes = segment_bytes(&header.msg_hdr).unwrap_or(bytes).max(1);
    burst.received.push(Slot { index, bytes, segment_bytes, peer });
}

/// The segment size among the control messages that the kernel filled in.
fn segment_bytes(message: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has set the length of the control messages, which the macros respect.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a header that the macros return is whole and aligned.
        let is_size =
            unsafe { (*header).cmsg_level == libc::SOL_UDP && (*header).cmsg_type == libc::UDP_GRO };
        if is_size {
            // SAFETY: this kind of message carries an int; the data need not be aligned.
            let bytes = unsafe { libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(bytes).ok();
        }
        // SAFETY: `header` is one of the messages in `message`.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{TransmitBurst, UdpOptions};

    /// Sends `count` datagrams, receives them, and returns true if the first call received all of them.
    fn takes_all(near: &UdpPort, far: &UdpPort, burst: &mut ReceiveBurst, count: usize) -> bool {
        let mut out = TransmitBurst::new();
        for number in 0..count {
            // Each is longer than the one before, so that none extends its train.
            assert!(out.push(far.address(), &[number as u8; 17][..=number], 100));
        }
        out.send(near);
        let first = far.receive(burst).unwrap();
        assert_eq!(burst.is_full(), first == 16);
        let mut lengths: Vec<usize> = burst.messages().map(|message| message.bytes.len()).collect();
        while lengths.len() < count {
            far.receive(burst).unwrap();
            lengths.extend(burst.messages().map(|message| message.bytes.len()));
        }
        assert_eq!(lengths, (1..=count).collect::<Vec<_>>());
        first == count
    }

    #[test]
    fn a_call_takes_all_that_is_there_however_little_the_last_one_found() {
        let [near, far] =
            [(); 2].map(|()| UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap());
        let mut burst = ReceiveBurst::with_slots(16, 1500);
        for count in [1, 3, 4, 5, 15, 1, 16, 9, 0, 16] {
            // A busy machine may deliver late, but not always.
            let is_taken = (0..100).any(|_| {
                burst.offered = OFFERED_MIN;
                takes_all(&near, &far, &mut burst, count)
            });
            assert!(is_taken, "{count}");
        }
    }
}
