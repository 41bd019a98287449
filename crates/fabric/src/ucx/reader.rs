//! Reads of peers' memory.

use super::{
    UcxError, sys,
    worker::{CLOSE_TURNS_MAX, Peer, Worker},
};
use minos_engine::remote::{Completion, Fabric, Range};
use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, RawFd},
    ptr::NonNull,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed},
        fence,
    },
};

const WORD_BYTES: u64 = 8;
/// Words of one read, at most.
const READ_WORDS_MAX: usize = 1 << 17;

/// How memory is read that this process can map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As any other: by `ucp_get_nbx`.
    Get,
    /// By its own loads (`ucp_rkey_ptr`).
    Load,
}

/// Peers that UCX reads, over shared memory or RDMA.
pub struct Ucx {
    way: Way,
    /// `None` for those that were left.
    peers: Vec<Option<Peer>>,
    /// Reads that were not reported, in the order in which they began. UCX writes to them, so that they do not move.
    under_way: Vec<NonNull<Read>>,
    /// Those that were reported.
    free: Vec<NonNull<Read>>,
    descriptor: RawFd,
    worker: Worker,
}

// SAFETY: its reads are its own, and UCX writes to them only while its worker turns, which any thread may let it, one at a time.
unsafe impl Send for Ucx {}

#[derive(Debug, Default)]
struct Read {
    raw: sys::RawRead,
    token: u64,
    /// As long as the longest read that it was used for.
    words: Vec<u64>,
    len: usize,
    is_possible: bool,
}

impl Ucx {
    /// Opens UCX for these transports: as in the variable `UCX_TLS`, which counts if there are none.
    ///
    /// # Errors
    /// UCX refuses, or has no transport of that name.
    pub fn open(transports: Option<&str>, way: Way) -> Result<Self, UcxError> {
        let mut worker = Worker::open(transports, true)?;
        let descriptor = worker.descriptor()?;
        Ok(Self { way, peers: Vec::new(), under_way: Vec::new(), free: Vec::new(), descriptor, worker })
    }

    /// Connects to the peer with an advertisement; returns its number.
    ///
    /// # Errors
    /// It is no advertisement of this version of UCX, or no transport leads there.
    ///
    /// # Safety
    /// The advertisement was made by [`super::UcxMemory::advertisement`], and came unchanged: UCX trusts it. Its maker does not shorten
    /// the memory.
    pub unsafe fn connect(&mut self, advertisement: &[u8]) -> Result<usize, UcxError> {
        // SAFETY: as the caller promises; peers go before their worker.
        let peer = unsafe { self.worker.connect(advertisement, true) }?;
        let free = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
        self.peers.resize_with(self.peers.len().max(free + 1), || None);
        self.peers[free] = Some(peer);
        Ok(free)
    }

    /// Leaves a peer, whose number another one may get. Its reads that are under way end.
    pub fn disconnect(&mut self, peer: usize) {
        if let Some(mut peer) = self.peers.get_mut(peer).and_then(Option::take) {
            // SAFETY: it is of this worker, and nobody finds it any more.
            unsafe { self.worker.disconnect(&mut peer) };
        }
    }

    /// True if this process has mapped the memory of a peer.
    pub fn is_mapped(&self, peer: usize) -> bool {
        self.peer(peer).is_some_and(|peer| peer.mapped.is_some())
    }

    /// Lets the descriptor become readable once reads may have ended; false if some may have already.
    pub fn arm(&mut self) -> bool {
        self.worker.arm()
    }

    fn peer(&self, peer: usize) -> Option<&Peer> {
        self.peers.get(peer)?.as_ref()
    }
}

impl Peer {
    /// Begins to read.
    ///
    /// # Safety
    /// `read` stays where it is until UCX has no range of it under way.
    unsafe fn read(&self, way: Way, ranges: &[Range], read: NonNull<Read>) {
        // SAFETY: nothing of it is under way yet, and nobody else has it.
        let Read { raw, words, .. } = unsafe { &mut *read.as_ptr() };
        let (raw, mut to) = (&raw mut *raw, words.as_mut_ptr());
        for range in ranges {
            match self.mapped.filter(|_| way == Way::Load) {
                // SAFETY: the range lies within the memory, and the buffer has room for all ranges.
                Some(mapped) => unsafe { load(mapped.add(range.start as usize), range.words, to) },
                // SAFETY: as above; read and buffer stay, and the worker and this peer live longer than the request.
                None => unsafe {
                    let (bytes, from) =
                        (range.words * WORD_BYTES as usize, self.base + range.start * WORD_BYTES);
                    sys::minos_ucx_get(&raw const self.raw, to, bytes, from, raw);
                },
            }
            to = to.wrapping_add(range.words);
        }
    }

    /// Words of all ranges, if they lie within the memory.
    fn words_of(&self, ranges: &[Range]) -> Option<usize> {
        ranges.iter().try_fold(0usize, |sum, range| {
            let end = range.start.checked_add(range.words as u64)?;
            let sum = sum.checked_add(range.words)?;
            (end <= self.bytes / WORD_BYTES && sum <= READ_WORDS_MAX && range.words > 0).then_some(sum)
        })
    }
}

/// Loads words in ascending order, while their owner may store.
///
/// # Safety
/// So many words can be loaded from `from`, and stored at `to`.
unsafe fn load(from: NonNull<u64>, words: usize, to: *mut u64) {
    for at in 0..words {
        // SAFETY: as the caller promises. All who store there store whole words, or what is not to be trusted.
        unsafe { *to.add(at) = AtomicU64::from_ptr(from.as_ptr().add(at)).load(Relaxed) };
    }
}

impl Read {
    /// Makes room for another read.
    fn reset(&mut self, token: u64, words: Option<usize>) {
        self.raw = sys::RawRead::default();
        (self.token, self.len, self.is_possible) = (token, words.unwrap_or(0), words.is_some());
        if self.words.len() < self.len {
            self.words.resize(self.len, 0);
        }
    }

    fn completion(&self) -> Completion<'_> {
        let is_whole = self.is_possible && self.raw.status == 0;
        Completion { token: self.token, words: is_whole.then_some(&self.words[..self.len]) }
    }
}

/// True if UCX still has ranges of a read.
fn is_pending(read: &NonNull<Read>) -> bool {
    // SAFETY: the read lives, and UCX writes to it only while its worker turns.
    unsafe { (&raw const (*read.as_ptr()).raw.pending).read() > 0 }
}

impl Fabric for Ucx {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        let read = self.free.pop().unwrap_or_else(|| NonNull::from(Box::leak(Box::default())));
        let peer = self.peer(peer);
        let words = peer.and_then(|peer| peer.words_of(ranges));
        // SAFETY: the read is under way nowhere, so that this is its only reference.
        unsafe { &mut *read.as_ptr() }.reset(token, words);
        // Acquire fences: the rounds of a read are as ordered as the looks at a version, see `minos_sync::version`.
        fence(Acquire);
        if let (Some(peer), Some(_)) = (peer, words) {
            // SAFETY: it stays in `under_way` until nothing of it is pending.
            unsafe { peer.read(self.way, ranges, read) };
        }
        fence(Acquire);
        self.under_way.push(read);
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        if self.under_way.iter().any(is_pending) {
            self.worker.progress();
            fence(Acquire);
        }
        let free = &mut self.free;
        self.under_way.retain(|read| {
            let is_pending = is_pending(read);
            if !is_pending {
                // SAFETY: UCX has nothing of it any more, and nobody else refers to it.
                done(unsafe { &*read.as_ptr() }.completion());
                free.push(*read);
            }
            is_pending
        });
    }
}

impl AsFd for Ucx {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the worker, which this value keeps.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

impl fmt::Debug for Ucx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (peers, reads) = (&self.peers, self.under_way.len());
        f.debug_struct("Ucx").field("peers", peers).field("under_way", &reads).finish_non_exhaustive()
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        let mut turns = 0;
        while turns < CLOSE_TURNS_MAX && self.under_way.iter().any(is_pending) {
            self.worker.progress();
            turns += 1;
        }
        for peer in self.peers.iter_mut().flatten() {
            // SAFETY: nobody uses the peer afterwards.
            unsafe { self.worker.disconnect(peer) };
        }
        // What UCX may still write to is left to it.
        let ended = self.under_way.drain(..).filter(|read| !is_pending(read));
        for read in ended.chain(self.free.drain(..)) {
            // SAFETY: it was leaked from a box, and nobody else has it.
            drop(unsafe { Box::from_raw(read.as_ptr()) });
        }
    }
}
