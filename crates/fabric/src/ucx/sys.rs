//! The shim, `shim/ucx.c`.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// `minos_ucx`, of which only addresses are used.
#[repr(C)]
pub(super) struct Context {
    _private: [u8; 0],
}

/// `minos_ucx_memory`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) handle: *mut c_void,
    pub(super) base: *mut c_void,
    pub(super) bytes: usize,
    pub(super) key: *mut c_void,
    pub(super) key_bytes: usize,
}

/// `minos_ucx_peer`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) endpoint: *mut c_void,
    pub(super) key: *mut c_void,
}

/// `minos_ucx_read`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawRead {
    /// Ranges under way.
    pub(super) pending: u32,
    /// The last error, or 0.
    pub(super) status: i32,
}

unsafe extern "C" {
    /// Major and minor version of the library, 16 bits each.
    pub(super) safe fn minos_ucx_version() -> c_uint;
    safe fn minos_ucx_status_text(status: c_int) -> *const c_char;
    pub(super) fn minos_ucx_open(transports: *const c_char, wakes: c_int, out: *mut *mut Context) -> c_int;
    pub(super) fn minos_ucx_close(ucx: *mut Context);
    pub(super) fn minos_ucx_progress(ucx: *mut Context) -> c_uint;
    pub(super) fn minos_ucx_descriptor(ucx: *mut Context, descriptor: *mut c_int) -> c_int;
    pub(super) fn minos_ucx_arm(ucx: *mut Context) -> c_int;
    pub(super) fn minos_ucx_address(ucx: *mut Context, address: *mut *mut c_void, bytes: *mut usize)
    -> c_int;
    pub(super) fn minos_ucx_release_address(ucx: *mut Context, address: *mut c_void);
    pub(super) fn minos_ucx_allocate(ucx: *mut Context, bytes: usize, out: *mut Memory) -> c_int;
    pub(super) fn minos_ucx_free(ucx: *mut Context, memory: *mut Memory);
    pub(super) fn minos_ucx_connect(
        ucx: *mut Context,
        address: *const u8,
        key: *const u8,
        watches: c_int,
        out: *mut Peer,
    ) -> c_int;
    pub(super) fn minos_ucx_disconnect(ucx: *mut Context, peer: *mut Peer, rounds: c_uint);
    pub(super) fn minos_ucx_pointer(peer: *const Peer, remote: u64) -> *const c_void;
    pub(super) fn minos_ucx_get(
        peer: *const Peer,
        buffer: *mut u64,
        bytes: usize,
        remote: u64,
        read: *mut RawRead,
    );
}

/// The meaning of a status.
pub(super) fn text(status: i32) -> String {
    let text = minos_ucx_status_text(status);
    // SAFETY: UCX returns a string that is terminated and is never freed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
