//! The shim, `shim/dpdk.c`.

use std::ffi::{CStr, c_char, c_int, c_void};

/// `minos_dpdk_frame`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RawFrame {
    pub(super) packet: *mut c_void,
    pub(super) bytes: *mut u8,
    pub(super) length: u32,
}

/// `minos_dpdk_wanted`.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) receive_queues: u16,
    pub(super) send_queues: u16,
    pub(super) descriptors: u16,
    pub(super) packets_held: u32,
}

/// `minos_dpdk_found`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Found {
    pub(super) pool: *mut c_void,
    pub(super) pool_bytes: u64,
    pub(super) room_bytes: u32,
    pub(super) port: u16,
    pub(super) mtu: u16,
    pub(super) receive_queues: u16,
    pub(super) send_queues: u16,
    pub(super) mac: [u8; 6],
    pub(super) driver: [c_char; 32],
}

unsafe extern "C" {
    safe fn minos_dpdk_error_text(error: c_int) -> *const c_char;
    pub(super) fn minos_dpdk_init(count: c_int, arguments: *mut *mut c_char) -> c_int;
    pub(super) fn minos_dpdk_create(name: *const c_char, arguments: *const c_char) -> c_int;
    pub(super) safe fn minos_dpdk_enter_thread() -> c_int;
    pub(super) safe fn minos_dpdk_leave_thread();
    pub(super) fn minos_dpdk_open(name: *const c_char, wanted: *const Wanted, out: *mut Found) -> c_int;
    pub(super) safe fn minos_dpdk_is_up(port: u16) -> c_int;
    pub(super) fn minos_dpdk_dropped(port: u16, queue_full: *mut u64, no_packet: *mut u64) -> c_int;
    pub(super) safe fn minos_dpdk_steer(port: u16, ip: u32, udp_port: u16, queue: u16) -> c_int;
    pub(super) fn minos_dpdk_receive(port: u16, queue: u16, frames: *mut RawFrame, count: u16) -> u16;
    pub(super) fn minos_dpdk_allocate(device: *const Found, frames: *mut RawFrame, count: u16) -> c_int;
    pub(super) fn minos_dpdk_send(port: u16, queue: u16, frames: *const RawFrame, count: u16) -> u16;
    pub(super) fn minos_dpdk_free(frames: *const RawFrame, count: u16);
}

/// The meaning of an error.
pub(super) fn text(error: c_int) -> String {
    // SAFETY: DPDK returns a text of this thread that ends with a zero.
    unsafe { CStr::from_ptr(minos_dpdk_error_text(error)) }.to_string_lossy().into_owned()
}
