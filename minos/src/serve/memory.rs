//! The table that is served, and what of it outlives the process.

use std::sync::Arc;

use anyhow::Context;
use minos_base::{Clock, SizeText};
use minos_engine::{Engine, Mode, StoreConfig};

use super::{ServeOptions, available::Available};

/// Makes a table, or goes on with what an earlier server has left in the region that `options` name; and the
/// clock by which its items expire.
///
/// # Errors
/// It cannot be had.
pub(super) fn open<M: Mode>(
    options: &ServeOptions,
    config: &StoreConfig,
) -> anyhow::Result<(Arc<Engine<M>>, Clock)> {
    let available = Available::read();
    if let Some(excess) = available.and_then(|available| available.excess(SizeText(config.memory_bytes))) {
        tracing::warn!("{excess}: the server may be killed when it has filled that");
    }
    let store = match &options.region {
        Some(path) => {
            let opened = Engine::<M>::open(config);
            // How it came about was logged.
            opened.with_context(|| format!("--region {}", path.display()))?.0
        }
        None => Engine::create(config).with_context(|| format!("cannot make the {}", M::NAME))?,
    };
    tracing::info!(engine = M::NAME, memory = %SizeText(config.memory_bytes), backing = %store.backing_text(), "memory");
    let clock = clock_of(&store);
    Ok((Arc::new(store), clock))
}

/// The clock that goes on where that of an earlier server was, so that what is to expire does so in time.
fn clock_of<M: Mode>(store: &Engine<M>) -> Clock {
    match store.clock_base() {
        0 => {
            let clock = Clock::new();
            store.set_clock_base(clock.zero_unix_s());
            clock
        }
        zero_unix_s => Clock::with_zero_at(zero_unix_s),
    }
}

/// Leaves the table in its region for the next server, if it has one.
///
/// # Errors
/// It cannot be written, or is in use: the next server has to repair it then.
pub(super) fn close<M: Mode>(options: &ServeOptions, store: Arc<Engine<M>>) -> anyhow::Result<()> {
    let Some(path) = &options.region else { return Ok(()) };
    store.close_shared().with_context(|| format!("--region {}: cannot be closed", path.display()))?;
    tracing::info!(region = %path.display(), "region: closed");
    Ok(())
}
