//! Transfers by io_uring, with a ring a lane.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use io_uring::{
    IoUring, opcode, squeue,
    types::{Fixed, FsyncFlags, SubmitArgs, Timespec},
};
use rustix::{fd::OwnedFd, io::Errno};

use crate::{
    Buffer,
    backend::{Backend, Done, Job, Work},
    buffer::Pool,
    device::Shared,
};

/// Calls after which a kernel that is short of memory is given up.
const ATTEMPTS_MAX: u32 = 1000;
/// The places of the file and of the pool among those registered with the ring.
const FILE: Fixed = Fixed(0);
const POOL: u16 = 0;

/// Completions come when this thread enters the kernel anyway, not by interrupting it (Linux 5.19).
pub(super) fn build(depth: u32) -> io::Result<IoUring> {
    let ring =
        IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().setup_submit_all().build(depth)?;
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::from(Errno::NOSYS));
    }
    Ok(ring)
}

/// A lane by io_uring.
pub(crate) struct RingLane {
    // Before the pool and the file: it is closed first.
    ring: IoUring,
    /// The buffer of each slot in flight. The kernel has its address.
    buffers: Vec<Option<Buffer>>,
    /// Jobs that the kernel has, or will get with the next submit.
    in_flight: usize,
    /// The kernel has the pool mapped already.
    is_registered: bool,
    _pool: Arc<Pool>,
    _shared: Arc<Shared>,
}

impl RingLane {
    pub(crate) fn open(shared: &Arc<Shared>, fd: &OwnedFd, pool: &Arc<Pool>, depth: u32) -> io::Result<Self> {
        let ring = build(depth)?;
        ring.submitter().register_files(&[fd.as_raw_fd()])?;
        let (address, bytes) = pool.memory();
        let iovec = libc::iovec { iov_base: address.as_ptr().cast(), iov_len: bytes };
        // SAFETY: the memory stays until the pool is dropped, which is after the ring.
        let registered = unsafe { ring.submitter().register_buffers(&[iovec]) };
        if let Err(error) = &registered {
            tracing::info!(%error, bytes, "the kernel maps buffers with each request: is RLIMIT_MEMLOCK too low?");
        }
        Ok(Self {
            ring,
            buffers: (0..depth).map(|_| None).collect(),
            in_flight: 0,
            is_registered: registered.is_ok(),
            _pool: Arc::clone(pool),
            _shared: Arc::clone(shared),
        })
    }

    fn read(&self, offset: u64, buffer: &mut Buffer) -> squeue::Entry {
        let (address, bytes) = (buffer.address(), buffer.len() as u32);
        if self.is_registered {
            return opcode::ReadFixed::new(FILE, address, bytes, POOL).offset(offset).build();
        }
        opcode::Read::new(FILE, address, bytes).offset(offset).build()
    }

    fn write(&self, offset: u64, buffer: &Buffer) -> squeue::Entry {
        let (address, bytes) = (buffer.address(), buffer.len() as u32);
        if self.is_registered {
            return opcode::WriteFixed::new(FILE, address, bytes, POOL).offset(offset).build();
        }
        opcode::Write::new(FILE, address, bytes).offset(offset).build()
    }

    /// Takes completions that the kernel has posted.
    fn take_posted(&mut self, done: &mut Vec<Done>) {
        let before = done.len();
        for entry in self.ring.completion() {
            let slot = entry.user_data() as u32;
            let buffer = self.buffers.get_mut(slot as usize).and_then(Option::take);
            let result = usize::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(entry.result().saturating_neg()));
            done.push(Done { slot, buffer, result });
        }
        self.in_flight -= done.len() - before;
    }
}

impl Backend for RingLane {
    fn start(&mut self, job: Job) {
        let Job { slot, work } = job;
        let (entry, buffer) = match work {
            Work::Read(offset, mut buffer) => (self.read(offset, &mut buffer), Some(buffer)),
            Work::Write(offset, buffer) => (self.write(offset, &buffer), Some(buffer)),
            Work::Flush => (opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(), None),
        };
        let entry = entry.user_data(slot.into());
        self.buffers[slot as usize] = buffer;
        // SAFETY: the buffer stays in its slot until the completion is taken, or for good: see `abandon`. The pool is
        // mapped and the file open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "a lane has more jobs than its ring has places");
        self.in_flight += 1;
    }

    fn submit(&mut self) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            accepted(self.ring.submit())?;
        }
        Err(Errno::AGAIN.into())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        accepted(self.ring.submitter().submit_with_args(least.min(self.in_flight), &arguments))?;
        self.submit()
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.take_posted(done);
        // Completions that wait for this thread to enter the kernel.
        if done.is_empty() && self.in_flight > 0 && self.ring.submission().taskrun() {
            accepted(self.ring.submit())?;
            self.take_posted(done);
        }
        Ok(())
    }

    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn abandon(&mut self) {
        self.buffers.drain(..).flatten().for_each(std::mem::forget);
    }
}

impl Drop for RingLane {
    fn drop(&mut self) {
        // The kernel closes a ring later, in a thread of its own. Until then the file would stay locked. With requests
        // that were abandoned it should, and some kernels would wait for them here.
        if self.in_flight == 0 {
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

impl std::fmt::Debug for RingLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingLane").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// Maps the result of a call; an interrupted one is not an error, because the next call repeats it.
fn accepted(result: io::Result<usize>) -> io::Result<()> {
    match result.map_err(|error| Errno::from_io_error(&error)) {
        Ok(_) | Err(Some(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN)) => Ok(()),
        Err(error) => Err(error.unwrap_or(Errno::IO).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        sync::{Mutex, Weak},
    };

    use super::*;
    use crate::{
        Completion, Device, Geometry, Lane, LaneOptions, Request,
        device::{InnerLane, Medium},
    };

    /// Memory that was leaked on purpose, so that a leak detector sees that it is known.
    static KEPT: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());

    /// A device whose reads never end.
    fn endless() -> (Device, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let facts = crate::Facts {
            driver: crate::Driver::Ring,
            why_threads: None,
            why_buffered: None,
            was_created: true,
        };
        let medium = Medium::File(crate::file::FileMedium { fd: near.into(), facts });
        (Device::new(Geometry::new(4096, 1 << 20, 8), medium, false), far)
    }

    #[test]
    fn requests_that_do_not_end_are_given_up_and_their_memory_stays() {
        let (device, far) = endless();
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        let buffer = lane.buffer(4096).unwrap();
        let pool: Weak<Pool> = buffer.pool();
        assert_eq!(lane.submit(&mut vec![Request::read(0, 0, buffer)]).unwrap(), 1);
        drop(lane);
        assert_eq!(pool.strong_count(), 1, "the kernel may still write there");
        KEPT.lock().unwrap().extend(pool.upgrade());
        // Their places are free again.
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        let mut vector: Vec<_> =
            (0..7).map(|tag| Request::read(tag, 0, lane.buffer(4096).unwrap())).collect();
        assert_eq!(lane.submit(&mut vector).unwrap(), 7);
        // The end of the stream ends these.
        drop(far);
    }

    #[test]
    fn a_pool_need_not_be_registered() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let facts = crate::Facts {
            driver: crate::Driver::Ring,
            why_threads: None,
            why_buffered: None,
            was_created: true,
        };
        let medium = Medium::File(crate::file::FileMedium { fd: file.into(), facts });
        let shared = Device::new(Geometry::new(4096, 1 << 20, 8), medium, false).shared();
        let pool = Pool::new(1 << 20, 4096);
        let mut ring = RingLane::open(&shared, shared.medium.fd().unwrap(), &pool, 4).unwrap();
        assert!(ring.is_registered);
        ring.is_registered = false;
        let mut lane = Lane::new(InnerLane::Ring(Box::new(ring)), shared, pool, 4);
        let (mut written, read) = (lane.buffer(8192).unwrap(), lane.buffer(8192).unwrap());
        written.fill(5);
        for request in [Request::write(0, 4096, written), Request::flush(1), Request::read(2, 4096, read)] {
            let mut ended = Vec::new();
            lane.submit_and_wait(&mut vec![request], 1, Duration::from_secs(60), &mut ended).unwrap();
            assert_eq!(ended[0].result, Ok(()));
            assert!(ended[0].buffer.iter().flat_map(|buffer| buffer.iter()).all(|&byte| byte == 5));
        }
    }

    #[test]
    fn a_wait_ends_with_its_time() {
        let (device, far) = endless();
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        let mut vector = vec![Request::read(5, 0, lane.buffer(4096).unwrap())];
        let mut ended: Vec<Completion> = Vec::new();
        lane.submit_and_wait(&mut vector, 1, Duration::from_millis(1), &mut ended).unwrap();
        assert_eq!((vector.len(), ended.len(), lane.in_flight()), (0, 0, 1));
        // The end of the stream ends the read.
        drop(far);
        lane.wait(1, Duration::from_secs(60), &mut ended).unwrap();
        assert_eq!(ended[0].result, Err(crate::Error::Short { bytes: 0 }));
    }
}
