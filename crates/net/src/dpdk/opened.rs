//! The devices of this process, which are never closed: who opens one again gets the same.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use super::{DpdkOptions, device::Device, sys::Wanted};
use crate::socket_file::SocketFile;

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

struct Opened {
    options: DpdkOptions,
    shape: Wanted,
    device: Arc<Device>,
}

/// The device, if it was opened alike and nobody uses it any more; else what `open` gives, which is remembered.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if it is in use, or was opened otherwise; and those of `open`.
pub(super) fn take_or(
    options: &DpdkOptions,
    shape: &Wanted,
    open: impl FnOnce() -> io::Result<(Device, Option<SocketFile>)>,
) -> io::Result<(Arc<Device>, Option<SocketFile>)> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_same =
        |other: &&Opened| (&other.options.device, other.options.side) == (&options.device, options.side);
    if let Some(found) = opened.iter().find(is_same) {
        // A server's socket went with its ports.
        let is_free = Arc::strong_count(&found.device) == 1 && !options.has_socket();
        return match is_free && found.shape == *shape {
            true => Ok((Arc::clone(&found.device), None)),
            false => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "DPDK: the device is in use, or was opened otherwise",
            )),
        };
    }
    let (device, socket) = open()?;
    let device = Arc::new(device);
    opened.push(Opened { options: options.clone(), shape: shape.clone(), device: Arc::clone(&device) });
    Ok((device, socket))
}
