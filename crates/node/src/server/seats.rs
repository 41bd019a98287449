//! The processors of workers.

use std::{io, panic::resume_unwind, thread};

use minos_net::{allowed_cpus, bind_to};

use super::config::ServerConfig;

/// The processors of each worker; none if the kernel decides.
pub(super) fn cpus(config: &ServerConfig) -> Vec<Vec<usize>> {
    let (workers, placement) = (config.control.workers, &config.placement);
    let allowed = if config.pin && placement.is_empty() { allowed_cpus() } else { Vec::new() };
    let cpus = |worker| match allowed.get(worker) {
        // With fewer processors than workers, the kernel places the threads better.
        Some(&cpu) if allowed.len() >= workers => vec![cpu],
        _ => placement.cpus_of(worker, config.pin).to_vec(),
    };
    (0..workers).map(cpus).collect()
}

/// Binds this thread to `cpus`, if there are any.
pub(super) fn bind(cpus: &[usize]) {
    if !cpus.is_empty()
        && let Err(error) = bind_to(cpus)
    {
        tracing::info!(%error, ?cpus, "a worker is not bound to its processors");
    }
}

/// Runs `make` on the node of a worker, if it has one: memory comes from the node whose processor touches it first.
///
/// # Errors
/// Those of `make`, or the kernel refuses a thread.
pub(super) fn beside<T: Send>(
    config: &ServerConfig,
    worker: usize,
    make: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let cpus = config.placement.cpus_of(worker, false);
    if cpus.is_empty() {
        return make();
    }
    let there = move || {
        bind(cpus);
        make()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, there)?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
