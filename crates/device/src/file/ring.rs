//! Transfers by io_uring, with a ring a lane.
//!
//! # No wake-up is lost
//!
//! A deferring ring's own descriptor does not become readable while completions wait for the lane's thread, so that a
//! sleeper polls an eventfd. The kernel, for each completion: (1) adds its work to the ring's list; if the list was
//! empty, it (2) sets `IORING_SQ_TASKRUN` and then (3) adds to the eventfd. Posted completions add to it as well. The
//! owner (a) reads the eventfd, (b) looks for posted completions, (c) if there is none and the flag is set, enters the
//! kernel with `GETEVENTS`, which runs the list, and looks again; (d) sleeps only if that brought nothing.
//!
//! - If (3) precedes (a), the owner sees the flag, because the eventfd's lock orders both: (c) runs the work, and (b)
//!   finds completions that an earlier run has posted.
//! - If (3) follows (a), nobody reads the eventfd before (d), which finds it readable.
//! - Work added to a list that was not empty has no (2) and (3) of its own. The work in front of it has, and leaves the
//!   list together with it.
//!
//! A kernel that runs only part of the list sets the flag again, so that (c) is repeated until something ended, or the
//! whole list must have been run. The flag alone does not tell: (2) may follow the run that took the work of (1), and
//! then it stays set while the list is empty.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use io_uring::{
    IoUring, opcode, squeue,
    types::{Fixed, FsyncFlags, SubmitArgs, Timespec},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
    io::Errno,
};

use crate::{
    Buffer, Driver,
    backend::{Backend, Done, Job, Work},
    buffer::Pool,
    file::FileMedium,
};

/// Calls after which a kernel that is short of memory is given up.
const ATTEMPTS_MAX: u32 = 1000;
/// Completions that a call runs if so many wait: Linux has run all until 6.12, and since then this many at least.
const RUN_LEAST: usize = 20;
/// The places of the file and of the pool among those registered with the ring.
const FILE: Fixed = Fixed(0);
const POOL: u16 = 0;

/// A ring of `driver`, which is one of the two by io_uring.
pub(super) fn build(driver: Driver, depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_submit_all().setup_taskrun_flag();
    match driver {
        // Disabled until its owner is known: the kernel would take the thread that opens the lane for it.
        Driver::Ring => builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled(),
        _ => builder.setup_coop_taskrun(),
    };
    let ring = builder.build(depth)?;
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::from(Errno::NOSYS));
    }
    Ok(ring)
}

/// The best driver by io_uring that the kernel has.
pub(super) fn best() -> io::Result<Driver> {
    best_of(|driver| build(driver, 1).map(|_: IoUring| ()))
}

fn best_of(build: impl Fn(Driver) -> io::Result<()>) -> io::Result<Driver> {
    match build(Driver::Ring) {
        // It does not know the flags.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            build(Driver::CooperativeRing).map(|()| Driver::CooperativeRing)
        }
        built => built.map(|()| Driver::Ring),
    }
}

/// A lane by io_uring.
pub(crate) struct RingLane {
    // Before the pool and the file: it is closed first.
    ring: IoUring,
    /// The buffer of each slot in flight. The kernel has its address.
    buffers: Vec<Option<Buffer>>,
    /// Jobs that the kernel has, or will get with the next submit.
    in_flight: usize,
    /// A thread owns the ring.
    is_enabled: bool,
    /// The kernel maps the pool with each request, for this reason.
    why_unregistered: Option<String>,
    /// Readable when a job has ended for an owner that sleeps.
    wake: OwnedFd,
    /// The ring adds to `wake`, which busy lanes are spared.
    is_watched: bool,
    _pool: Arc<Pool>,
    _file: Arc<FileMedium>,
}

impl RingLane {
    pub(crate) fn open(file: &Arc<FileMedium>, pool: &Arc<Pool>, depth: u32) -> io::Result<Self> {
        let ring = build(file.facts.driver, depth)?;
        ring.submitter().register_files(&[file.fd.as_raw_fd()])?;
        let (address, bytes) = pool.memory();
        let iovec = libc::iovec { iov_base: address.as_ptr().cast(), iov_len: bytes };
        // SAFETY: the memory stays until the pool is dropped, which is after the ring.
        let registered = unsafe { ring.submitter().register_buffers(&[iovec]) };
        Ok(Self {
            is_enabled: !ring.params().is_setup_single_issuer(),
            ring,
            buffers: (0..depth).map(|_| None).collect(),
            in_flight: 0,
            why_unregistered: registered.err().map(|error| error.to_string()),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_watched: false,
            _pool: Arc::clone(pool),
            _file: Arc::clone(file),
        })
    }

    pub(crate) fn why_unregistered(&self) -> Option<&str> {
        self.why_unregistered.as_deref()
    }

    /// Makes this thread the ring's owner, unless it has one.
    fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }

    fn read(&self, offset: u64, buffer: &mut Buffer) -> squeue::Entry {
        let (address, bytes) = (buffer.address(), buffer.len() as u32);
        if self.why_unregistered.is_none() {
            return opcode::ReadFixed::new(FILE, address, bytes, POOL).offset(offset).build();
        }
        opcode::Read::new(FILE, address, bytes).offset(offset).build()
    }

    fn write(&self, offset: u64, buffer: &Buffer) -> squeue::Entry {
        let (address, bytes) = (buffer.address(), buffer.len() as u32);
        if self.why_unregistered.is_none() {
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
        self.enable()?;
        for _ in 0..ATTEMPTS_MAX {
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            accepted(self.ring.submit())?;
        }
        Err(Errno::AGAIN.into())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        self.enable()?;
        let timeout = Timespec::from(timeout);
        let arguments = SubmitArgs::new().timespec(&timeout);
        accepted(self.ring.submitter().submit_with_args(least.min(self.in_flight), &arguments))?;
        self.submit()
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.take_posted(done);
        for _ in 0..self.in_flight.div_ceil(RUN_LEAST) {
            // Completions that wait for this thread to enter the kernel; the crate adds `GETEVENTS` for the flag.
            if !done.is_empty() || !self.ring.submission().taskrun() {
                break;
            }
            accepted(self.ring.submit())?;
            self.take_posted(done);
        }
        Ok(())
    }

    fn prepare(&mut self) -> io::Result<()> {
        self.enable()?;
        if !self.is_watched {
            self.ring.submitter().register_eventfd(self.wake.as_raw_fd()).map_err(explained)?;
            self.is_watched = true;
        }
        match rustix::io::read(&self.wake, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
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
    match result {
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN) => Ok(()),
            _ => Err(explained(error)),
        },
        Ok(_) => Ok(()),
    }
}

/// The kernel's answer to a thread that is not the owner says no more than "File exists".
fn explained(error: io::Error) -> io::Error {
    match Errno::from_io_error(&error) {
        Some(Errno::EXIST) => io::Error::other("a lane is used by the thread alone that first used it"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::UnixStream,
        sync::{Mutex, Weak},
    };

    use super::*;
    use crate::{Completion, Device, Geometry, LaneOptions, Request, device::Medium};

    /// Memory that was leaked on purpose, so that a leak detector sees that it is known.
    static KEPT: Mutex<Vec<Arc<Pool>>> = Mutex::new(Vec::new());

    /// A device whose reads never end.
    fn endless() -> (Device, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let facts =
            crate::Facts { driver: Driver::Ring, why_threads: None, why_buffered: None, was_created: true };
        let medium = Medium::File(Arc::new(FileMedium { fd: near.into(), facts }));
        (Device::new(Geometry::new(4096, 1 << 20, 8), medium, false), far)
    }

    #[test]
    fn a_kernel_without_the_flags_gets_the_ring_that_it_knows() {
        let all = |_| Ok(());
        let old = |driver| if driver == Driver::Ring { Err(Errno::INVAL.into()) } else { Ok(()) };
        let none = |driver| {
            assert_eq!(driver, Driver::Ring, "a ring that is forbidden is not asked for twice");
            Err(Errno::PERM.into())
        };
        assert_eq!((best_of(all).unwrap(), best_of(old).unwrap()), (Driver::Ring, Driver::CooperativeRing));
        assert_eq!(best_of(none).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_lane_is_of_the_thread_that_first_used_it() {
        let (device, far) = endless();
        let mut lane = device.lane(&LaneOptions::default()).unwrap();
        // Moved before it is used.
        let mut lane = std::thread::spawn(move || {
            let mut vector = vec![Request::read(0, 0, lane.buffer(4096).unwrap())];
            lane.submit(&mut vector).unwrap();
            drop(far);
            lane.wait(1, Duration::from_secs(60), &mut Vec::new()).unwrap();
            lane
        })
        .join()
        .unwrap();
        let error = lane.prepare().unwrap_err();
        assert!(error.to_string().contains("the thread alone that first used it"), "{error}");
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
