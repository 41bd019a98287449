//! The rings that a socket shares with the kernel: one side produces entries, the other consumes them.
//!
//! ```text
//! consumed by the peer | waiting              | free
//! ---------------------+----------------------+--------->  positions count up modulo 2^32
//!                      ^ consumer             ^ producer
//! ```
//!
//! The producer writes entries, then its position (release). The consumer reads that (acquire), then the entries, then
//! writes its own position (release), so that the producer overwrites only what has been read.

use std::{
    io,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

use crate::mapping::Mapping;

/// A ring of entries of type `T`, which are plain integers.
#[derive(Debug)]
struct Ring<T> {
    mapping: Mapping,
    places: XdpRingOffset,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the entries lie in the mapping, which any thread may use.
unsafe impl<T: Send> Send for Ring<T> {}

/// A ring that this side fills.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Our position, which the kernel sees when it is published.
    next: u32,
    /// The kernel's position as last seen.
    consumed: u32,
}

/// A ring that this side empties.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
    /// The kernel's position as last seen.
    produced: u32,
}

impl<T: Copy> Ring<T> {
    /// The ring of `entries` entries, a power of two, that `socket` shares from `offset` on.
    fn map(socket: BorrowedFd<'_>, offset: u64, places: XdpRingOffset, entries: u32) -> io::Result<Self> {
        let bytes = places.desc as usize + entries as usize * size_of::<T>();
        let mapping = Mapping::of_socket(socket, bytes, offset)?;
        let first = mapping.place(places.desc, entries as usize);
        Ok(Self { mapping, places, entries: first, mask: entries - 1 })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the place lies inside and is aligned; both sides use it atomically.
        unsafe { self.mapping.place::<AtomicU32>(offset, 1).as_ref() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.places.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.places.consumer)
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the masked position is below the number of entries.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }

    fn needs_wakeup(&self) -> bool {
        let is_set = |offset| {
            self.word(offset).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
        };
        self.places.flags.is_some_and(is_set)
    }
}

impl<T: Copy> Producer<T> {
    /// See [`Ring::map`].
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, offset, places, entries).map(|ring| Self { ring, next: 0, consumed: 0 })
    }

    /// True if an entry can be added.
    pub(super) fn has_room(&mut self) -> bool {
        let is_full = |it: &Self| it.next.wrapping_sub(it.consumed) > it.ring.mask;
        if is_full(self) {
            // Acquire: the kernel has read the entries that are overwritten.
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        !is_full(self)
    }

    /// Adds an entry, which the kernel does not see yet; false if the ring is full.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: the place is this side's until the position is published.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel what was added.
    pub(super) fn publish(&self) {
        // Release: the entries are written.
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// True if the kernel has taken all entries.
    pub(super) fn is_taken(&self) -> bool {
        self.ring.consumer().load(Ordering::Relaxed) == self.next
    }

    /// True if the kernel takes entries only after a call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

impl<T: Copy> Consumer<T> {
    /// See [`Ring::map`].
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, offset, places, entries).map(|ring| Self { ring, next: 0, produced: 0 })
    }

    /// Takes the next entry. The kernel may reuse its place after [`release`](Self::release).
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.produced {
            // Acquire: the entries up to there are written.
            self.produced = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the kernel has written this entry, and writes it again only after the release.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all taken entries back.
    pub(super) fn release(&self) {
        // Release: the entries are read.
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}
