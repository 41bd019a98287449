//! The kernel's limit on open descriptors, of which each connection needs one.

use std::fs;

use minos_node::Operator;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that clients leave: for files, other nodes, and connections that are being refused.
const SPARE: usize = 64;
/// Those that a server is taken to have where the system does not tell.
const OWN_ASSUMED: usize = 256;

/// Raises the limit as far as it may be raised. It is low for programs that call `select`, which this one does not.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::debug!(%error, "the limit on open descriptors cannot be raised");
    }
}

/// Lets in fewer than `connections` clients if the limit has no room for them beside what is open and `reserved`: one more is
/// told so then, and whoever asks for the server's health is heard.
pub(super) fn fit_connections(
    operator: &Operator,
    connections: usize,
    reserved: usize,
) -> anyhow::Result<()> {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return Ok(()) };
    let own = fs::read_dir("/proc/self/fd").map_or(OWN_ASSUMED, Iterator::count);
    let room = (limit as usize).saturating_sub(own + reserved + SPARE).max(1);
    if room < connections {
        tracing::warn!(
            max_connections = room,
            "the hard limit on open descriptors, {limit}, has no room for --max-connections {connections}"
        );
        operator.change(&[("max-connections", &room.to_string())])?;
    }
    Ok(())
}
