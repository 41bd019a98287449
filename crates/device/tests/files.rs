//! Files as devices.

mod common;

use std::{
    fs::{self, File},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    thread,
};

use common::{BLOCK, CAPACITY, CREATE, lane, open, read, results, run, write};
use minos_device::{Device, Driver, DriverChoice, Error, FileOptions, LaneOptions, OpenError};

const PAGE: u64 = BLOCK as u64;
const EXISTING: FileOptions = FileOptions { create: false, size_bytes: None, ..CREATE };

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn refusal(path: &Path, options: FileOptions) -> OpenError {
    Device::open(path, &options).unwrap_err()
}

#[test]
fn a_device_is_open_once() {
    let folder = folder();
    let path = folder.path().join("device");
    let device = open(&path, DriverChoice::Auto);
    assert!(matches!(refusal(&path, CREATE), OpenError::InUse { .. }));
    let lane = lane(&device);
    drop(device);
    assert!(matches!(refusal(&path, CREATE), OpenError::InUse { .. }), "a lane keeps it open");
    drop(lane);
    open(&path, DriverChoice::Auto);
}

#[test]
fn a_missing_file_is_created_only_if_asked() {
    let folder = folder();
    let path = folder.path().join("device");
    let to_read = FileOptions { read_only: true, ..CREATE };
    for options in [EXISTING, to_read, FileOptions { size_bytes: None, ..CREATE }] {
        let error = refusal(&path, options);
        assert!(matches!(error, OpenError::Missing { .. }), "{error}");
        assert!(!path.exists());
    }
    let error = refusal(&path, FileOptions { size_bytes: Some(100), ..CREATE });
    assert!(matches!(error, OpenError::TooSmall { have: 100, wanted: PAGE, .. }), "{error}");
    assert!(!path.exists());
    Device::open(&path, &CREATE).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.permissions().mode() & 0o777), (CAPACITY, 0o600));
    assert!(metadata.blocks() * 512 >= CAPACITY, "its blocks are reserved");
}

#[test]
fn a_filled_file_reads_as_zeros() {
    let folder = folder();
    let device =
        Device::open(&folder.path().join("device"), &FileOptions { prefill: true, ..CREATE }).unwrap();
    let mut lane = lane(&device);
    let vector = vec![read(&mut lane, 0, 4), read(&mut lane, CAPACITY - PAGE, 1)];
    for ended in run(&mut lane, vector) {
        assert!(ended.result.is_ok() && ended.buffer.unwrap().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn bytes_of_others_are_left_alone() {
    let folder = folder();
    let path = folder.path().join("letter");
    let text = b"dear device\n".repeat(1000);
    fs::write(&path, &text).unwrap();
    let error = refusal(&path, CREATE);
    assert!(matches!(error, OpenError::TooSmall { have: 12_000, wanted: CAPACITY, .. }), "{error}");
    // All of it that is whole blocks.
    let device = Device::open(&path, &EXISTING).unwrap();
    assert_eq!(device.geometry().capacity_bytes, 2 * PAGE);
    drop(device);
    // Only its front.
    let device = Device::open(&path, &FileOptions { size_bytes: Some(PAGE), ..EXISTING }).unwrap();
    let mut lane = lane(&device);
    let vector = vec![write(&mut lane, 0, 1, 1), write(&mut lane, PAGE, 1, 1)];
    assert_eq!(results(&run(&mut lane, vector)), [(0, Ok(())), (PAGE, Err(Error::OutOfRange))]);
    let after = fs::read(&path).unwrap();
    assert!(after[..BLOCK].iter().all(|&byte| byte == 1) && after[BLOCK..] == text[BLOCK..]);
}

#[test]
fn an_empty_file_gets_its_size_only_if_asked() {
    let folder = folder();
    let path = folder.path().join("device");
    File::create(&path).unwrap();
    for options in [EXISTING, FileOptions { read_only: true, ..CREATE }] {
        let error = refusal(&path, options);
        assert!(matches!(error, OpenError::TooSmall { have: 0, .. }), "{error}");
    }
    let device = Device::open(&path, &CREATE).unwrap();
    assert!(device.geometry().capacity_bytes == CAPACITY && device.facts().was_created);
    drop(device);
    assert!(!Device::open(&path, &CREATE).unwrap().facts().was_created);
}

#[test]
fn a_file_system_without_room_leaves_no_new_file() {
    let folder = folder();
    let path = folder.path().join("device");
    let too_large = FileOptions { size_bytes: Some(1 << 60), ..CREATE };
    let error = refusal(&path, too_large);
    assert!(matches!(error, OpenError::System { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "the text has the reason already");
    assert!(!path.exists());
    // One that was there stays.
    File::create(&path).unwrap();
    assert!(matches!(refusal(&path, too_large), OpenError::System { .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn a_link_to_nowhere_is_refused_by_name() {
    let folder = folder();
    let (path, nowhere) = (folder.path().join("link"), folder.path().join("nowhere"));
    std::os::unix::fs::symlink(&nowhere, &path).unwrap();
    for options in [EXISTING, CREATE] {
        let error = refusal(&path, options);
        assert!(matches!(error, OpenError::DanglingLink { .. }), "{error}");
    }
    assert!(!nowhere.exists());
}

#[test]
fn other_kinds_of_files_and_block_sizes_are_refused() {
    let folder = folder();
    for path in [folder.path(), Path::new("/dev/null")] {
        assert!(matches!(refusal(path, CREATE), OpenError::NotADevice { .. }));
    }
    let path = folder.path().join("device");
    for block_bytes in [0, 256, 1000] {
        let error = refusal(&path, FileOptions { block_bytes, ..CREATE });
        assert!(matches!(error, OpenError::BlockSize { least: 512, .. }), "{error}");
    }
    assert!(!path.exists());
}

#[test]
fn a_device_to_read_only_refuses_writes() {
    let folder = folder();
    let path = folder.path().join("device");
    fs::write(&path, vec![7; BLOCK]).unwrap();
    for driver in [DriverChoice::Ring, DriverChoice::CooperativeRing, DriverChoice::Threads] {
        let options = FileOptions { read_only: true, driver, ..EXISTING };
        let device = Device::open(&path, &options).unwrap();
        let mut lane = lane(&device);
        let vector = vec![write(&mut lane, 0, 1, 1), minos_device::Request::flush(1)];
        assert_eq!(results(&run(&mut lane, vector)), [(0, Err(Error::ReadOnly)), (1, Err(Error::ReadOnly))]);
        let vector = vec![read(&mut lane, 0, 1)];
        assert_eq!(run(&mut lane, vector)[0].buffer.as_ref().unwrap()[..], [7; BLOCK]);
    }
    assert_eq!(fs::read(&path).unwrap(), vec![7; BLOCK]);
}

#[test]
fn a_file_that_became_short_is_told() {
    for driver in [DriverChoice::Ring, DriverChoice::CooperativeRing, DriverChoice::Threads] {
        let folder = folder();
        let path = folder.path().join("device");
        let device = open(&path, driver);
        let mut lane = lane(&device);
        File::options().write(true).open(&path).unwrap().set_len(PAGE + 100).unwrap();
        let vector = vec![read(&mut lane, 0, 1), read(&mut lane, PAGE, 1), read(&mut lane, 2 * PAGE, 1)];
        let expected = [
            (0, Ok(())),
            (PAGE, Err(Error::Short { bytes: 100 })),
            (2 * PAGE, Err(Error::Short { bytes: 0 })),
        ];
        assert_eq!(results(&run(&mut lane, vector)), expected);
    }
}

#[test]
fn the_driver_is_a_choice_and_told() {
    let folder = folder();
    let path = folder.path().join("device");
    let facts = open(&path, DriverChoice::Auto).facts();
    // Depends on the kernel.
    assert!(matches!(facts.driver, Driver::Ring | Driver::CooperativeRing) && facts.why_threads.is_none());
    let facts = open(&path, DriverChoice::CooperativeRing).facts();
    assert_eq!((facts.driver, facts.why_threads), (Driver::CooperativeRing, None));
    let facts = open(&path, DriverChoice::Threads).facts();
    assert_eq!(
        (facts.driver, facts.why_threads.as_deref()),
        (Driver::Threads, Some("threads were asked for"))
    );
}

#[test]
fn threads_take_over_where_io_uring_is_refused() {
    let folder = folder();
    let path = folder.path().join("device");
    // The filter holds for the thread that installs it and those that it spawns.
    let refused = thread::spawn(move || {
        refuse(libc::SYS_io_uring_setup, None, libc::EPERM);
        for driver in [DriverChoice::Ring, DriverChoice::CooperativeRing] {
            let error = refusal(&path, FileOptions { driver, ..CREATE });
            assert!(matches!(error, OpenError::NoRing { .. }), "{error}");
        }
        let device = open(&path, DriverChoice::Auto);
        let mut lane = lane(&device);
        let vector = vec![write(&mut lane, PAGE, 1, 3)];
        assert!(run(&mut lane, vector)[0].result.is_ok());
        device.facts()
    });
    let facts = refused.join().unwrap();
    assert_eq!(facts.driver, Driver::Threads);
    let reason = facts.why_threads.unwrap();
    assert!(reason.contains("Operation not permitted"), "{reason}");
}

#[test]
fn a_pool_that_is_not_registered_is_told_or_refused() {
    const REGISTER_BUFFERS: u32 = 0;
    let folder = folder();
    let path = folder.path().join("device");
    let refused = thread::spawn(move || {
        let device = open(&path, DriverChoice::Ring);
        assert_eq!(lane(&device).why_unregistered(), None);
        refuse(libc::SYS_io_uring_register, Some(REGISTER_BUFFERS), libc::ENOMEM);
        let must = LaneOptions { must_register: true, ..LaneOptions::default() };
        let error = device.lane(&must).unwrap_err().to_string();
        assert!(error.contains("does not register") && error.contains("allocate memory"), "{error}");
        let mut lane = lane(&device);
        let why = lane.why_unregistered().unwrap();
        assert!(why.contains("Cannot allocate memory"), "{why}");
        // It works all the same.
        let vector = vec![write(&mut lane, PAGE, 2, 3)];
        assert!(run(&mut lane, vector)[0].result.is_ok());
        let vector = vec![read(&mut lane, PAGE, 2)];
        assert!(run(&mut lane, vector)[0].buffer.as_ref().unwrap().iter().all(|&byte| byte == 3));
        drop(lane);
        // Threads need no registration.
        drop(device);
        assert!(open(&path, DriverChoice::Threads).lane(&must).is_ok());
    });
    refused.join().unwrap();
}

/// Lets this thread's calls of `call`, or those with `operation` as their second argument, fail with `error`, as the
/// filters of containers do.
fn refuse(call: i64, operation: Option<u32>, error: i32) {
    const NUMBER_OFFSET: u32 = 0;
    const SECOND_ARGUMENT_OFFSET: u32 = 24;
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const END: u32 = libc::BPF_RET | libc::BPF_K;
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    // Compares a word with itself if any operation is meant.
    let (offset, wanted) = operation.map_or((NUMBER_OFFSET, call as u32), |it| (SECOND_ARGUMENT_OFFSET, it));
    let mut filter = [
        statement(LOAD, NUMBER_OFFSET, 0, 0),
        statement(EQUAL, call as u32, 0, 3),
        statement(LOAD, offset, 0, 0),
        statement(EQUAL, wanted, 0, 1),
        statement(END, libc::SECCOMP_RET_ERRNO | error as u32, 0, 0),
        statement(END, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program outlives the call, which copies it, and lets all other calls pass.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}
