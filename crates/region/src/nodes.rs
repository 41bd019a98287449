//! The NUMA nodes that a region's memory comes from.
//!
//! Partitions share one heap, so that memory moves between them, and have no range of the region to themselves that
//! could lie on one node. So the pages of a region come from all nodes in turn: the load on the memory of each is the
//! same.

use crate::region::Region;
use std::{
    ffi::{c_int, c_long, c_ulong, c_void},
    io, ptr,
};

const WORD_BITS: usize = c_ulong::BITS as usize;
/// Most nodes that a kernel of Linux has.
const NODES_MAX: usize = 1024;

/// Some NUMA nodes, by the kernel's numbers. By default none: the kernel takes memory from the node of the processor that
/// touches it first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes([c_ulong; NODES_MAX / WORD_BITS]);

impl Nodes {
    /// These nodes; the kernel has none from 1024 on.
    pub fn of(numbers: &[usize]) -> Self {
        let mut nodes = Self::default();
        for &number in numbers.iter().filter(|&&number| number < NODES_MAX) {
            nodes.0[number / WORD_BITS] |= 1 << (number % WORD_BITS);
        }
        nodes
    }

    /// Pages that the calling thread takes from now on, until the end of what is returned, come from these nodes in turn,
    /// also those that a file gets before it is mapped. If the kernel refuses, or the thread has a memory policy already,
    /// as under `numactl`, the log says so and nothing is changed.
    pub fn begin(self) -> Interleaving {
        let thread = (self != Self::default()).then(|| ThreadPolicy::begin(&self));
        Interleaving { nodes: self, thread }
    }

    /// Takes pages of `region` that are not there yet from these nodes in turn.
    fn bind(&self, region: &Region) -> io::Result<()> {
        let (start, bytes) = region.mapped_bytes();
        // The kernel takes whole words.
        let (mode, flags) = (libc::MPOL_INTERLEAVE as c_ulong, 0 as c_ulong);
        // SAFETY: the call reads the mask, and changes no byte of the mapping.
        let result =
            unsafe { libc::syscall(libc::SYS_mbind, start, bytes, mode, self.0.as_ptr(), MASK_BITS, flags) };
        check(result)
    }
}

/// The time in which a region is mapped over some nodes.
#[derive(Debug)]
#[must_use]
pub struct Interleaving {
    nodes: Nodes,
    /// None if there are no nodes.
    thread: Option<io::Result<ThreadPolicy>>,
}

impl Interleaving {
    /// Ends it with the region that was mapped, whose pages come from the nodes in turn whoever takes them. Pages that
    /// were there before stay where they are.
    pub fn end(self, region: &Region) {
        let Some(thread) = self.thread else { return };
        if let Err(error) = thread.and_then(|_thread| self.nodes.bind(region)) {
            tracing::warn!(%error, "the store's memory is not interleaved over NUMA nodes");
        }
    }
}

/// The kernel takes one bit less than it is told.
const MASK_BITS: usize = NODES_MAX + 1;

/// While it lives, pages that the calling thread is the first to use come from some nodes in turn.
#[derive(Debug)]
struct ThreadPolicy;

impl ThreadPolicy {
    fn begin(nodes: &Nodes) -> io::Result<Self> {
        let mut mode = libc::MPOL_DEFAULT;
        let (nothing, zero) = (ptr::null::<c_void>(), 0 as c_ulong);
        // SAFETY: the call writes the mode and nothing else.
        let result =
            unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nothing, zero, nothing, zero) };
        check(result)?;
        if mode != libc::MPOL_DEFAULT {
            return Err(io::Error::other("the process has a memory policy of its own"));
        }
        set_policy(libc::MPOL_INTERLEAVE, nodes.0.as_ptr(), MASK_BITS).map(|()| Self)
    }
}

impl Drop for ThreadPolicy {
    fn drop(&mut self) {
        if let Err(error) = set_policy(libc::MPOL_DEFAULT, ptr::null(), 0) {
            tracing::warn!(%error, "a thread goes on with memory of all NUMA nodes in turn");
        }
    }
}

fn set_policy(mode: c_int, mask: *const c_ulong, bits: usize) -> io::Result<()> {
    // SAFETY: the mask has so many bits, and is only read.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) })
}

fn check(result: c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backing, Geometry, Memory};

    const GEOMETRY: Geometry = Geometry {
        memory_bytes: 8 << 20,
        partitions: 4,
        partition_words: 8,
        settled_bytes: 0,
        layout: 1,
        hash_seed: 0,
        micro_shards: 0,
    };

    /// The policy of the thread, or of the page at `start`; `None` if the kernel does not say.
    fn policy_of(start: *const u8) -> Option<(c_int, Nodes)> {
        const OF_ADDRESS: usize = 2;
        let (mut mode, mut nodes) = (0, Nodes::default());
        let flags = if start.is_null() { 0 } else { OF_ADDRESS };
        // SAFETY: the call writes the mode, and to the mask at most so many bits.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.0.as_mut_ptr(),
                MASK_BITS,
                start,
                flags,
            )
        };
        (result == 0).then_some((mode, nodes))
    }

    fn made(nodes: &Nodes, backing: &Backing) -> Memory {
        let interleaving = nodes.clone().begin();
        if let Some((mode, _)) = policy_of(ptr::null()) {
            let wanted = if *nodes == Nodes::default() { libc::MPOL_DEFAULT } else { libc::MPOL_INTERLEAVE };
            assert_eq!(mode, wanted, "while it is mapped");
        }
        let memory = Memory::create(GEOMETRY, backing).unwrap();
        interleaving.end(memory.region());
        memory
    }

    #[test]
    fn a_region_is_interleaved_over_its_nodes_and_no_other() {
        let Some((_, before)) = policy_of(ptr::null()) else { return };
        for backing in [Backing::Private, Backing::SmallPages, Backing::Memfd] {
            let memory = made(&Nodes::of(&[0]), &backing);
            let (start, bytes) = memory.region().mapped_bytes();
            for at in [0, bytes / 2, bytes - 1] {
                let policy = policy_of(start.cast::<u8>().wrapping_add(at));
                assert_eq!(policy, Some((libc::MPOL_INTERLEAVE, Nodes::of(&[0]))), "{backing} at {at}");
            }
            // The thread, and what it maps next, are as before.
            assert_eq!(policy_of(ptr::null()), Some((libc::MPOL_DEFAULT, before.clone())));
            let other = made(&Nodes::default(), &backing);
            let policy = policy_of(other.region().mapped_bytes().0.cast());
            assert_eq!(policy.unwrap().0, libc::MPOL_DEFAULT, "{backing}");
        }
    }

    #[test]
    fn a_policy_of_the_process_stays() {
        let nodes = Nodes::of(&[0]);
        // A thread of its own: others run tests.
        std::thread::spawn(move || {
            if set_policy(libc::MPOL_BIND, nodes.0.as_ptr(), MASK_BITS).is_err() {
                return;
            }
            let interleaving = nodes.clone().begin();
            let memory: Memory = Memory::create(GEOMETRY, &Backing::Private).unwrap();
            interleaving.end(memory.region());
            // The region has none of its own, so that the thread's holds.
            let of_page = policy_of(memory.region().mapped_bytes().0.cast());
            assert_eq!(of_page, Some((libc::MPOL_DEFAULT, Nodes::default())));
            assert_eq!(policy_of(ptr::null()), Some((libc::MPOL_BIND, nodes)));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_refusal_costs_nothing_but_the_placement() {
        // There is no such node, so that the kernel refuses.
        let interleaving = Nodes::of(&[1023]).begin();
        interleaving.end(Memory::create(GEOMETRY, &Backing::Private).unwrap().region());
        // Nothing was mapped.
        drop(Nodes::of(&[0]).begin());
        assert!(policy_of(ptr::null()).is_none_or(|(mode, _)| mode == libc::MPOL_DEFAULT));
    }

    #[test]
    fn numbers_are_bits() {
        let nodes = Nodes::of(&[0, 2, 64, 1023, 1024, usize::MAX]);
        assert_eq!((nodes.0[0], nodes.0[1], nodes.0[15]), (5, 1, 1 << 63));
        assert_eq!(Nodes::of(&[]), Nodes::default());
    }
}
