//! io_uring for files: a batch of reads in one system call.
//!
//! The flash device to come will read its pages through it; nothing else does. TCP does not, because that was
//! measured not to pay: see `docs/performance.md`.

use std::{fs::File, io, os::fd::AsRawFd, sync::Arc, time::Duration};

use io_uring::{
    IoUring, opcode,
    types::{Fd, SubmitArgs, Timespec},
};
use rustix::io::Errno;

use crate::Wait;

/// Longest time that a dropped ring waits for the reads in flight.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// Reads in flight, and their buffers.
pub struct Ring {
    ring: IoUring,
    /// By the user data of their submissions. The kernel holds the address of a read's buffer and the number
    /// of its file from submission to completion; the slot keeps both valid.
    slots: Vec<Option<Read>>,
    free: Vec<usize>,
}

struct Read {
    tag: u64,
    buffer: Box<[u8]>,
    _file: Arc<File>,
}

/// A read that has ended.
#[derive(Debug)]
pub struct Completion {
    /// The tag given to [`Ring::read`].
    pub tag: u64,
    /// The buffer given to [`Ring::read`].
    pub buffer: Box<[u8]>,
    /// Bytes read into the front of the buffer; fewer than its length at the end of the file.
    pub result: io::Result<usize>,
}

impl Ring {
    /// A ring for at most `depth` reads at a time.
    ///
    /// # Errors
    /// The kernel does not have or does not permit io_uring.
    pub fn open(depth: u32) -> io::Result<Self> {
        let ring = IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(depth)?;
        let mut slots = Vec::new();
        slots.resize_with(depth as usize, || None);
        Ok(Self { ring, slots, free: (0..depth as usize).collect() })
    }

    /// Queues a read of `file` at `offset`. With as many reads in flight as
    /// the ring holds, the buffer comes back.
    ///
    /// # Errors
    /// The ring is full: submit, and take completions first.
    pub fn read(
        &mut self,
        tag: u64,
        file: &Arc<File>,
        offset: u64,
        buffer: Box<[u8]>,
    ) -> Result<(), Box<[u8]>> {
        let Some(index) = self.free.pop() else { return Err(buffer) };
        let read = self.slots[index].insert(Read { tag, buffer, _file: Arc::clone(file) });
        let bytes = u32::try_from(read.buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), read.buffer.as_mut_ptr(), bytes)
            .offset(offset)
            .build()
            .user_data(index as u64);
        // SAFETY: buffer and file stay in the slot until the completion is taken or, in `drop`, for good.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The kernel's queue has at least as many places as there are slots.
        assert!(pushed.is_ok(), "a free slot without a place in the submission queue");
        Ok(())
    }

    /// Hands all queued reads to the kernel in one call, and waits for one of those in flight to end.
    ///
    /// # Errors
    /// Only errors that make the ring unusable.
    pub fn submit(&mut self, wait: Wait) -> io::Result<()> {
        match wait {
            Wait::No => accepted(self.ring.submit()),
            Wait::For(timeout) => self.submit_for(1, timeout),
        }
    }

    /// Takes a read that has ended.
    pub fn complete(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let index = entry.user_data() as usize;
        let Read { tag, buffer, .. } = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        let result = match entry.result() {
            bytes @ 0.. => Ok(bytes as usize),
            error => Err(io::Error::from_raw_os_error(-error)),
        };
        Some(Completion { tag, buffer, result })
    }

    fn submit_for(&self, completions: usize, timeout: Duration) -> io::Result<()> {
        let in_flight = self.slots.len() - self.free.len();
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        accepted(self.ring.submitter().submit_with_args(completions.min(in_flight), &arguments))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Err(error) = self.submit_for(self.slots.len(), DROP_WAIT) {
            tracing::debug!(%error, "reads in flight are given up");
        }
        while self.complete().is_some() {}
        // The kernel may still write to these.
        self.slots.drain(..).flatten().for_each(std::mem::forget);
    }
}

/// Maps the result of a submission; an interrupted call is not an error, because the next call repeats it.
fn accepted(result: io::Result<usize>) -> io::Result<()> {
    match result.map_err(|error| Errno::from_io_error(&error)) {
        Ok(_) | Err(Some(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN)) => Ok(()),
        Err(error) => Err(error.unwrap_or(Errno::IO).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream};

    use super::*;

    const PAGE_BYTES: usize = 4096;
    const LONG: Wait = Wait::For(Duration::from_secs(60));

    /// A file without a name, of `count` pages, each filled with its number.
    fn pages(count: u8) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        (0..count).for_each(|page| file.write_all(&[page; PAGE_BYTES]).unwrap());
        Arc::new(file)
    }

    fn buffer() -> Box<[u8]> {
        vec![0xff; PAGE_BYTES].into_boxed_slice()
    }

    fn all_of(ring: &mut Ring, count: usize) -> Vec<Completion> {
        let mut completions = Vec::new();
        while completions.len() < count {
            ring.submit(LONG).unwrap();
            completions.extend(std::iter::from_fn(|| ring.complete()));
        }
        completions.sort_by_key(|completion| completion.tag);
        completions
    }

    #[test]
    fn a_batch_is_read() {
        let (mut ring, file) = (Ring::open(4).unwrap(), pages(6));
        // More than once through the ring.
        for _ in 0..3 {
            for (tag, page) in [5, 0, 3, 2].into_iter().enumerate() {
                ring.read(tag as u64, &file, page * PAGE_BYTES as u64, buffer()).unwrap();
            }
            let completions = all_of(&mut ring, 4);
            for (completion, page) in completions.iter().zip([5, 0, 3, 2]) {
                assert_eq!(completion.result.as_ref().unwrap(), &PAGE_BYTES);
                assert_eq!(*completion.buffer, [page; PAGE_BYTES]);
            }
        }
    }

    #[test]
    fn the_end_of_a_file_and_an_error_are_told() {
        let (mut ring, file) = (Ring::open(2).unwrap(), pages(1));
        let folder = Arc::new(File::open("/").unwrap());
        ring.read(0, &file, PAGE_BYTES as u64 - 10, buffer()).unwrap();
        ring.read(1, &folder, 0, buffer()).unwrap();
        let completions = all_of(&mut ring, 2);
        assert_eq!(completions[0].result.as_ref().unwrap(), &10);
        assert_eq!(completions[1].result.as_ref().unwrap_err().raw_os_error(), Some(libc::EISDIR));
    }

    #[test]
    fn a_full_ring_refuses_until_a_completion_is_taken() {
        let (mut ring, file) = (Ring::open(3).unwrap(), pages(1));
        (0..3).for_each(|tag| ring.read(tag, &file, 0, buffer()).unwrap());
        assert_eq!(ring.read(3, &file, 0, buffer()).unwrap_err().len(), PAGE_BYTES);
        assert_eq!(all_of(&mut ring, 3).len(), 3);
        ring.read(3, &file, 0, buffer()).unwrap();
        assert_eq!(all_of(&mut ring, 1)[0].tag, 3);
    }

    #[test]
    fn a_file_stays_open_while_its_number_may_be_used() {
        let (mut ring, file) = (Ring::open(2).unwrap(), pages(1));
        ring.read(0, &file, 0, buffer()).unwrap();
        assert_eq!(Arc::strong_count(&file), 2);
        all_of(&mut ring, 1);
        assert_eq!(Arc::strong_count(&file), 1);
        ring.read(1, &file, 0, buffer()).unwrap();
        // A dropped ring waits for its reads.
        drop(ring);
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn a_read_that_does_not_end_is_given_up() {
        let (near, _far) = UnixStream::pair().unwrap();
        let endless = Arc::new(File::from(std::os::fd::OwnedFd::from(near)));
        let mut ring = Ring::open(1).unwrap();
        ring.read(0, &endless, 0, buffer()).unwrap();
        drop(ring);
        // Its memory is the kernel's.
        assert_eq!(Arc::strong_count(&endless), 2);
    }
}
