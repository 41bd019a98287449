//! DPDK within this process.

use std::{
    ffi::{CString, c_char, c_int},
    io,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use super::sys;
use crate::allowed_cpus;

/// The outcome of the start, of which there is one a process.
static STARTED: OnceLock<Result<(), String>> = OnceLock::new();

/// Starts DPDK with `arguments`, unless it was started before: then these arguments have no effect.
///
/// # Errors
/// DPDK refuses, now or then.
pub(super) fn start(arguments: &[String]) -> io::Result<()> {
    let started = STARTED.get_or_init(|| {
        let arguments = all(arguments);
        // It pins the thread that calls it, which shall do nothing else.
        let starter = thread::Builder::new().name("minos-dpdk".to_owned()).spawn(|| init(arguments));
        let starter = starter.map_err(|error| error.to_string())?;
        starter.join().map_err(|_| "the thread that starts DPDK panicked".to_owned())?
    });
    started.clone().map_err(io::Error::other)
}

/// Those and our own, of which later ones win.
fn all(arguments: &[String]) -> Vec<String> {
    // One thread of its own, which may run on any processor.
    let cpus: Vec<_> = allowed_cpus().iter().map(ToString::to_string).collect();
    let own = ["minos", "--no-telemetry", "--log-level=error"].map(str::to_owned);
    let threads = [format!("--lcores=0@({})", cpus.join(","))];
    own.into_iter().chain(threads).chain(arguments.iter().cloned()).collect()
}

/// The texts of the arguments, to which DPDK may refer for as long as the process lives.
static TEXTS: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn init(arguments: Vec<String>) -> Result<(), String> {
    let texts: Result<Vec<_>, _> = arguments.into_iter().map(CString::new).collect();
    let texts = texts.map_err(|_| "an argument of DPDK has a byte 0".to_owned())?;
    let mut kept = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    *kept = texts.into_iter().map(CString::into_bytes_with_nul).collect();
    let mut pointers: Vec<*mut c_char> = kept.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    // SAFETY: as many texts as said, that live on, and a null behind them; only this thread calls it, and once.
    let status = unsafe { sys::minos_dpdk_init(count, pointers.as_mut_ptr()) };
    if status == 0 { Ok(()) } else { Err(format!("DPDK cannot start: {}", sys::text(status))) }
}

/// A thread that has a cache of free packets.
struct Entered(bool);

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0 {
            sys::minos_dpdk_leave_thread();
        }
    }
}

thread_local! {
    // A thread too many works without a cache.
    static ENTERED: Entered = Entered(sys::minos_dpdk_enter_thread() == 0);
}

/// Gives this thread a cache of free packets, if it has none. DPDK is started.
pub(super) fn enter_thread() {
    // A thread that ends has none, and needs none.
    let _ = ENTERED.try_with(|_| ());
}
