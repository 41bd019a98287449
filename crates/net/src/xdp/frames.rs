//! The frames that hold packets, in memory that the kernel and the card read and write, too.

use std::{io, slice};

use crate::mapping::Mapping;

/// Bytes that the kernel leaves free before a packet that arrives.
const HEADROOM_BYTES: usize = 256;
/// Frames are a page or half of one.
const FRAME_BYTES: [usize; 2] = [2048, 4096];

/// The memory of all frames of a server's ports.
#[derive(Debug)]
pub(super) struct Frames {
    mapping: Mapping,
    frame_bytes: usize,
}

/// Where a frame lies. Whoever has one owns the frame: the kernel gives each out once until it is returned, and nothing
/// here copies one.
#[derive(Debug)]
pub(super) struct Frame(u64);

impl Frames {
    /// Bytes of a frame with room for packets of `packet_bytes` bytes; `None` if there are no such frames.
    pub(super) fn frame_bytes_for(packet_bytes: usize) -> Option<usize> {
        FRAME_BYTES.into_iter().find(|bytes| packet_bytes + HEADROOM_BYTES <= *bytes)
    }

    /// Memory for `count` frames, and all of them.
    pub(super) fn new(count: usize, frame_bytes: usize) -> io::Result<(Self, Vec<Frame>)> {
        let mapping = Mapping::anonymous(count * frame_bytes)?;
        let all = (0..count).map(|number| Frame((number * frame_bytes) as u64)).collect();
        Ok((Self { mapping, frame_bytes }, all))
    }

    /// The bytes' address in this process, their number, and the size of a frame.
    pub(super) fn registration(&self) -> (u64, u64, u32) {
        let base = self.mapping.place::<u8>(0, 0).as_ptr().expose_provenance();
        (base as u64, self.mapping.bytes() as u64, self.frame_bytes as u32)
    }

    pub(super) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// The frame around an address, and the address within it; `None` if there is no such frame.
    ///
    /// # Safety
    /// The kernel has just given the address back, with the frame around it.
    pub(super) unsafe fn around(&self, address: u64) -> Option<(Frame, usize)> {
        let offset = address % self.frame_bytes as u64;
        (address < self.bytes() as u64).then_some((Frame(address - offset), offset as usize))
    }

    /// The bytes of a frame.
    ///
    /// # Safety
    /// The frame is one of these.
    pub(super) unsafe fn slice<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let place = self.mapping.place::<u8>(frame.0, self.frame_bytes);
        // SAFETY: the place lies inside; whoever has the frame is the only one to use its bytes, and the borrows keep the
        // mapping and the frame.
        unsafe { slice::from_raw_parts_mut(place.as_ptr(), self.frame_bytes) }
    }
}

impl Frame {
    /// Gives the frame away, as the kernel's address of its first byte.
    pub(super) fn into_address(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_room_for_the_packets_of_their_link() {
        assert_eq!(Frames::frame_bytes_for(1514), Some(2048));
        assert_eq!(Frames::frame_bytes_for(3514), Some(4096));
        assert_eq!(Frames::frame_bytes_for(9014), None);
    }

    #[test]
    fn addresses_belong_to_frames() {
        let (frames, mut all) = Frames::new(4, 2048).unwrap();
        let address = all.remove(2).into_address();
        // SAFETY: the frame was given away above.
        let (mut frame, offset) = unsafe { frames.around(address + 256) }.unwrap();
        assert_eq!(offset, 256);
        // SAFETY: the frames are these.
        unsafe { frames.slice(&mut frame).fill(7) };
        assert_eq!(frame.into_address(), 2 * 2048);
        // SAFETY: as above.
        assert_eq!(unsafe { frames.slice(&mut all[1]) }, [0; 2048]);
        // SAFETY: it is not there.
        assert!(unsafe { frames.around(4 * 2048) }.is_none());
    }
}
