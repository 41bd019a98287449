//! Passes an open file to another process of the same user, over a Unix socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, recvmsg, sendmsg, sockopt,
    },
    process::geteuid,
};

use crate::socket::retry;

/// The byte that carries the descriptor: a message needs one.
const CARRIER: [u8; 1] = *b"M";

/// Passes `file` to the process at the other end.
///
/// # Errors
/// The other end is gone or of another user, or the kernel refuses.
pub fn pass_file(stream: impl AsFd, file: BorrowedFd<'_>) -> io::Result<()> {
    let stream = stream.as_fd();
    check_user(stream)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file];
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    retry(|| sendmsg(stream, &[IoSlice::new(&CARRIER)], &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Takes the file that the process at the other end passes, and waits for it as long as the stream's timeout says.
///
/// # Errors
/// The other end is gone or of another user, passes none in time, or the kernel refuses.
pub fn take_file(stream: &UnixStream) -> io::Result<OwnedFd> {
    check_user(stream.as_fd())?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0; CARRIER.len()];
    let mut pieces = [IoSliceMut::new(&mut carrier)];
    retry(|| recvmsg(stream, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    };
    let file = ancillary.drain().find_map(rights);
    file.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no file was passed"))
}

/// The number of the process at the other end of a Unix socket, which must run as this one's user, or as root.
///
/// # Errors
/// It is another user's, or the kernel refuses.
pub fn check_user(stream: BorrowedFd<'_>) -> io::Result<u32> {
    let peer = sockopt::socket_peercred(stream)?;
    let user = peer.uid;
    if user == geteuid() || user.is_root() {
        return Ok(peer.pid.as_raw_nonzero().get().cast_unsigned());
    }
    let text = format!("the process at the other end belongs to user {}", user.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Seek, Write},
        time::Duration,
    };

    #[test]
    fn a_file_is_passed_and_read() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut file = tempfile();
        file.write_all(b"shared").unwrap();
        pass_file(&here, file.as_fd()).unwrap();
        let mut taken = File::from(take_file(&there).unwrap());
        let mut text = String::new();
        taken.rewind().unwrap();
        taken.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
    }

    #[test]
    fn nothing_passed_is_an_error() {
        let (mut here, there) = UnixStream::pair().unwrap();
        there.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert!(take_file(&there).is_err(), "nothing came");
        here.write_all(b"M").unwrap();
        assert!(take_file(&there).is_err(), "no file came");
        drop(here);
        assert!(take_file(&there).is_err(), "nobody is there");
    }

    fn tempfile() -> File {
        let fd = rustix::fs::memfd_create("minos-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        File::from(fd)
    }
}
