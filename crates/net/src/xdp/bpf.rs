//! The three calls of bpf(2) that a steering program needs, and its test.

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::program::Instruction;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const TYPE_XSKMAP: u32 = 17;
const TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_DRV_MODE`: in the driver. Without it the kernel would copy each packet first, and join some.
const IN_DRIVER: u32 = 1 << 2;

/// The sockets that a program redirects to, by number. Dropping it changes nothing for a program that has it.
#[derive(Debug)]
pub(super) struct SocketMap(OwnedFd);

/// A program in the kernel.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

/// A program at work on an interface. The kernel detaches it when this is dropped or the process ends, however it does.
#[derive(Debug)]
pub(super) struct Link {
    _fd: OwnedFd,
}

#[repr(C)]
struct CreateMap {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct UpdateMap {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct LoadProgram {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct CreateLink {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

impl SocketMap {
    /// A map with room for the numbers below `entries`.
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let mut wanted = CreateMap { map_type: TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries, flags: 0 };
        // SAFETY: the structure refers to nothing.
        unsafe { call(MAP_CREATE, &mut wanted) }.map(|fd| Self(opened(fd)))
    }

    /// Gives `socket` the number `key`.
    pub(super) fn insert(&self, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd() as u32;
        let mut wanted = UpdateMap {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: key and value are of the sizes that the map was made with, and live through the call.
        unsafe { call(MAP_UPDATE, &mut wanted) }.map(|_| ())
    }
}

impl Program {
    pub(super) fn load(instructions: &[Instruction]) -> io::Result<Self> {
        let mut name = [0; 16];
        name[..5].copy_from_slice(b"minos");
        let mut wanted = LoadProgram {
            program_type: TYPE_XDP,
            instructions: instructions.len() as u32,
            instructions_at: instructions.as_ptr().expose_provenance() as u64,
            license_at: c"Apache-2.0".as_ptr().expose_provenance() as u64,
            log_level: 0,
            log_bytes: 0,
            log_at: 0,
            kernel_version: 0,
            flags: 0,
            name,
            interface: 0,
            attach_type: ATTACH_XDP,
        };
        // SAFETY: the instructions are as many as said; they and the license live through the call.
        unsafe { call(PROGRAM_LOAD, &mut wanted) }.map(|fd| Self(opened(fd)))
    }

    /// Lets it work on the packets that the interface receives.
    pub(super) fn attach(&self, interface: u32) -> io::Result<Link> {
        let program = self.0.as_raw_fd() as u32;
        let mut wanted = CreateLink { program, interface, attach_type: ATTACH_XDP, flags: IN_DRIVER };
        // SAFETY: the structure refers to nothing.
        unsafe { call(LINK_CREATE, &mut wanted) }.map(|fd| Link { _fd: opened(fd) })
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// # Safety
/// `T` is the beginning of the form that the kernel expects for `command`, and addresses in it are those of memory that
/// is as large as the kernel expects and lives through the call.
unsafe fn call<T>(command: libc::c_int, wanted: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: the size is that of the structure; the caller vouches for what is in it.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(wanted), size_of::<T>() as libc::c_uint)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

/// A descriptor that a call has just returned, closed on exec as all of bpf(2).
fn opened(fd: libc::c_int) -> OwnedFd {
    // SAFETY: it is open, and nothing else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[cfg(test)]
pub(super) mod test_run {
    use super::*;

    const TEST_RUN: libc::c_int = 10;

    #[repr(C)]
    struct TestRun {
        program: u32,
        result: u32,
        data_bytes: u32,
        data_out_bytes: u32,
        data_at: u64,
        data_out_at: u64,
        repeat: u32,
        duration: u32,
    }

    /// The program's answer to a packet.
    pub(in super::super) fn run(program: &Program, packet: &[u8]) -> u32 {
        let mut wanted = TestRun {
            program: program.0.as_raw_fd() as u32,
            result: 0,
            data_bytes: packet.len() as u32,
            data_out_bytes: 0,
            data_at: packet.as_ptr().expose_provenance() as u64,
            data_out_at: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the packet has as many bytes as said, and lives through the call.
        unsafe { call(TEST_RUN, &mut wanted) }.unwrap();
        wanted.result
    }
}
