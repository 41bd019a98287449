//! Polling by epoll, edge-triggered.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use minos_base::limits::BURST_MAX;
use rustix::{
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
    io::Errno,
};

use crate::{Interest, Poller, Ready, Token, Wait};

/// A set of sockets watched by epoll.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open() -> io::Result<Self> {
        Ok(Self { fd: epoll::create(CreateFlags::CLOEXEC)? })
    }
}

impl Poller for Epoll {
    fn add(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.fd, socket, EventData::new_u64(token.0), edge(interest))?)
    }

    fn change(&mut self, token: Token, socket: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.fd, socket, EventData::new_u64(token.0), edge(interest))?)
    }

    fn remove(&mut self, _token: Token, socket: BorrowedFd<'_>) {
        // It cannot fail for a socket that is in the set, and one that is not needs no removal.
        let _ = epoll::delete(&self.fd, socket);
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, max: usize, wait: Wait) -> io::Result<()> {
        debug_assert!(ready.is_empty() && max > 0);
        let mut events = [MaybeUninit::<Event>::uninit(); BURST_MAX];
        match epoll::wait(&self.fd, &mut events[..max.min(BURST_MAX)], Some(&timespec(wait))) {
            Ok((events, _)) => ready.extend(events.iter().map(translated)),
            // A signal: the caller checks its condition again.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn edge(interest: Interest) -> EventFlags {
    let base = EventFlags::ET | EventFlags::RDHUP;
    match interest {
        Interest::Read => base | EventFlags::IN,
        Interest::ReadWrite => base | EventFlags::IN | EventFlags::OUT,
        Interest::Write => base | EventFlags::OUT,
    }
}

fn translated(event: &Event) -> Ready {
    let gone = EventFlags::HUP | EventFlags::ERR | EventFlags::RDHUP;
    let (flags, data) = (event.flags, event.data);
    Ready {
        token: Token(data.u64()),
        readable: flags.intersects(EventFlags::IN | gone),
        writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
        hangup: flags.intersects(gone),
    }
}

pub(crate) fn timespec(wait: Wait) -> Timespec {
    let duration = match wait {
        Wait::No => Duration::ZERO,
        Wait::For(duration) => duration,
    };
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Progress, Socket};

    fn pair() -> (Socket, Socket) {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        b.set_nonblocking(true).unwrap();
        (Socket::from_nonblocking(a.into()), Socket::from_nonblocking(b.into()))
    }

    #[test]
    fn an_arrival_is_reported_once() {
        let (near, far) = pair();
        let mut poller = Epoll::open().unwrap();
        poller.add(Token(7), near.as_fd(), Interest::Read).unwrap();
        let mut ready = Vec::new();
        poller.poll(&mut ready, 4, Wait::No).unwrap();
        assert!(ready.is_empty());
        assert_eq!(far.send(b"x"), Progress::Bytes(1));
        poller.poll(&mut ready, 4, Wait::For(Duration::from_secs(5))).unwrap();
        assert_eq!(ready, [Ready { token: Token(7), readable: true, writable: false, hangup: false }]);
        ready.clear();
        poller.poll(&mut ready, 4, Wait::No).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn a_closed_peer_is_readable_and_closed() {
        let (near, far) = pair();
        let mut poller = Epoll::open().unwrap();
        poller.add(Token(1), near.as_fd(), Interest::Read).unwrap();
        drop(far);
        let mut ready = Vec::new();
        poller.poll(&mut ready, 4, Wait::No).unwrap();
        assert!(ready[0].readable && ready[0].hangup);
        assert_eq!(near.receive(&mut [0; 8]), Progress::Closed);
    }
}
