//! What wakes the reader of a ring.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::AcqRel},
    },
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};

/// Adds one to an eventfd.
const ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// Rings where a ring's reader hears it.
#[derive(Debug)]
pub(super) enum Bell {
    /// An eventfd of this process.
    Ours(OwnedFd),
    /// A file of the other process, at which a write may take as long as that likes: the thread that speaks with it rings.
    Theirs {
        is_wanted: Arc<AtomicBool>,
        /// Wakes the thread.
        call: Arc<OwnedFd>,
    },
}

impl Bell {
    pub(super) fn ring(&self) {
        // An eventfd is full only if it was rung before.
        match self {
            Self::Ours(bell) => drop(rustix::io::write(bell, &ONE)),
            Self::Theirs { is_wanted, call } => {
                if !is_wanted.swap(true, AcqRel) {
                    let _ = rustix::io::write(call, &ONE);
                }
            }
        }
    }
}

/// The bells of the other process.
#[derive(Debug)]
pub(super) struct Bells {
    call: Arc<OwnedFd>,
    bells: Vec<(OwnedFd, Arc<AtomicBool>)>,
}

impl Bells {
    pub(super) fn new() -> io::Result<Self> {
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { call: Arc::new(call), bells: Vec::new() })
    }

    /// Adds a file of the other process.
    pub(super) fn add(&mut self, file: OwnedFd) -> io::Result<Bell> {
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::NONBLOCK)?;
        let is_wanted = Arc::new(AtomicBool::new(false));
        self.bells.push((file, Arc::clone(&is_wanted)));
        Ok(Bell::Theirs { is_wanted, call: Arc::clone(&self.call) })
    }

    /// Readable when bells are to be rung.
    pub(super) fn call(&self) -> &OwnedFd {
        &self.call
    }

    /// Rings all that were asked for.
    pub(super) fn ring(&self) {
        // Before the look: a later call is not lost.
        let _ = rustix::io::read(&self.call, &mut [0; 8]);
        for (file, is_wanted) in &self.bells {
            let mut room = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::OUT)];
            if is_wanted.swap(false, AcqRel) && poll(&mut room, Some(&Timespec::default())) == Ok(1) {
                let _ = rustix::io::write(file, &ONE);
            }
        }
    }
}
