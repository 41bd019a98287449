//! Runs side by side.

use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// The results of `run` for each of `specs`, in their order, as many at a time as there are cores. Calls `done` after
/// each.
pub(crate) fn map<S: Sync, R: Send + Sync, E: Send + Sync>(
    specs: &[S],
    done: impl Fn() + Sync,
    run: impl Fn(&S) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = specs.iter().map(|_| OnceLock::new()).collect();
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(specs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // Relaxed, because the number itself is all that is shared.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(spec) = specs.get(index) else { break };
                    let _ = results[index].set(run(spec));
                    done();
                }
            });
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}
