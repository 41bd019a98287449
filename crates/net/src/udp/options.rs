//! Socket options that are one integer.

use std::{
    io,
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd},
};

use libc::c_int;

/// Where an option stands: its level and its number.
#[derive(Clone, Copy)]
pub(super) struct Place(pub(super) c_int, pub(super) c_int);

/// Sets the option at `place`.
pub(super) fn set(socket: BorrowedFd<'_>, place: Place, value: c_int) -> io::Result<()> {
    // SAFETY: an integer refers to nothing.
    unsafe { set_value(socket, place, &value) }
}

/// Sets an option whose value is the plain structure `value`.
///
/// # Safety
/// Any memory that `value` points to must have the form that the kernel expects, and live through the call.
pub(super) unsafe fn set_value<T: Copy>(socket: BorrowedFd<'_>, place: Place, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the value lives through the call, which reads
    // no more than the size that it is told, and what lies behind pointers, for which the caller vouches.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            place.0,
            place.1,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The first of the integers that the option at `place` is made of.
pub(super) fn integer(socket: BorrowedFd<'_>, place: Place) -> io::Result<c_int> {
    Ok(integers::<1>(socket, place)?[0])
}

/// The first `N` integers that the option at `place` is made of; those that the kernel does not have are 0.
pub(super) fn integers<const N: usize>(socket: BorrowedFd<'_>, place: Place) -> io::Result<[c_int; N]> {
    let mut values = [0; N];
    let mut bytes = size_of::<[c_int; N]>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the call writes at most `bytes` bytes, which
    // is the size of `values`, and the number of them.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), place.0, place.1, values.as_mut_ptr().cast(), &raw mut bytes)
    };
    if result == 0 { Ok(values) } else { Err(io::Error::last_os_error()) }
}
