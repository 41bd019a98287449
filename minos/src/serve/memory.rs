//! The table of a server, and its region across restarts.

use std::sync::Arc;

use anyhow::{Context, bail};
use minos_base::{Clock, SizeText};
use minos_engine::{Engine, Mode, StoreConfig};

use super::{ServeOptions, available::Available};

/// Creates a table, or recovers the one that an earlier server left in the region of `options`. Also returns
/// the clock by which items expire.
pub(super) fn open<M: Mode>(
    options: &ServeOptions,
    config: &StoreConfig,
) -> anyhow::Result<(Arc<Engine<M>>, Clock)> {
    let available = Available::read();
    if let Some(excess) = available.and_then(|available| available.excess(SizeText(config.memory_bytes))) {
        tracing::warn!("{excess}: the server may be killed when it has filled that");
    }
    let store = match &options.region {
        Some(place) => {
            let name = || format!("--region {place}");
            let (store, _) = Engine::<M>::open(config).with_context(name)?;
            if options.given_seed().is_some_and(|seed| seed != store.hash_seed()) {
                // Its own server finds it as it was.
                store.close().with_context(name)?;
                bail!("{}: its table hashes keys otherwise (--hash-seed): it is another server's", name());
            }
            store
        }
        None => Engine::create(config).with_context(|| format!("cannot make the {}", M::NAME))?,
    };
    tracing::info!(engine = M::NAME, memory = %SizeText(config.memory_bytes), backing = %store.backing_text(), "memory");
    let clock = clock_of(&store);
    Ok((Arc::new(store), clock))
}

/// The clock that continues an earlier server's, so that items expire on time.
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

/// Leaves the table in its region, if it has one, for the next server.
///
/// # Errors
/// It cannot be written, or is still in use: the next server then has to repair it.
pub(super) fn close<M: Mode>(options: &ServeOptions, store: Arc<Engine<M>>) -> anyhow::Result<()> {
    let Some(place) = &options.region else { return Ok(()) };
    let is_lasting = store.is_lasting();
    store.close_shared().with_context(|| format!("--region {place}: cannot be closed"))?;
    if is_lasting {
        tracing::info!(region = %place, "region: closed");
    } else if options.keeps_on_flash() {
        // The server has told what is not there.
        tracing::info!(region = %place, "region: gone with its keeper; the next server has what is on flash");
    } else {
        tracing::warn!(region = %place, "region: lost, because its keeper has ended");
    }
    Ok(())
}
