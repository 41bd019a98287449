//! What goes where partitions belong to workers, in EREW and CREW (MICA §4.1.2).

use minos_engine::{Access, Engine, Mode};
use minos_sched::Design;

use super::config::{InvalidOption, ServerConfig};

/// Checks that a server of this mode can do all that its options ask.
///
/// # Errors
/// The first thing that it cannot.
pub(super) fn check<M: Mode>(config: &ServerConfig, store: &Engine<M>) -> Result<(), InvalidOption> {
    if !M::Access::IS_BY_THREAD {
        return Ok(());
    }
    check_design::<M>(config.dispatch)?;
    let missing = [
        (
            !config.resp.is_empty(),
            "--resp: a command with keys of several workers has no one to execute it; use --access crcw",
        ),
        (
            config.rack.is_some(),
            "--rack: other threads than workers change a node's items; use --access crcw",
        ),
        (
            store.partitions() < config.control.workers,
            "each worker owns a partition, and there are fewer; use fewer --workers, or more --partitions or --memory",
        ),
        (store.owners() != config.control.workers, "the store was made for another number of workers"),
    ];
    missing.iter().find(|(asked, _)| *asked).map_or(Ok(()), |(_, text)| Err(InvalidOption::Owned(text)))
}

/// Checks that a design lets the owner of a partition execute requests.
///
/// # Errors
/// It does not.
pub(super) fn check_design<M: Mode>(design: Design) -> Result<(), InvalidOption> {
    if M::Access::IS_BY_THREAD && design != Design::KeyHash {
        return Err(InvalidOption::Owned(
            "other designs let any worker execute a request; use --dispatch keyhash, or --access crcw",
        ));
    }
    Ok(())
}
