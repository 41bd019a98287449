//! Entry point of the fuzz targets, built with `--cfg fuzzing`.

use minos_base::limits::SLICE_BYTES;
use minos_engine::{CacheMode, Mode, StoreMode};
use minos_proto::resp::Limits;

use super::RespSession;
use crate::memcache::harness::Session;

/// Sends `pieces` in order on one connection to an empty store, whose values above `here_bytes_max` are moved without being
/// copied, and to an empty cache. Returns all replies of the store.
///
/// # Panics
/// If store or cache are inconsistent afterwards, or do not serve the next connection.
pub fn dialogue(here_bytes_max: u64, pieces: &[&[u8]]) -> Vec<u8> {
    dialogue_in::<CacheMode>(here_bytes_max, pieces);
    dialogue_in::<StoreMode>(here_bytes_max, pieces)
}

fn state() -> RespSession {
    RespSession::new(Limits { bulk_bytes_max: 2000, command_bytes_max: 4000 }, SLICE_BYTES, 1, None)
}

fn dialogue_in<M: Mode>(here_bytes_max: u64, pieces: &[&[u8]]) -> Vec<u8> {
    let mut session = Session::<M>::new(here_bytes_max);
    session.resp = Some(state());
    let replies = pieces.iter().flat_map(|piece| session.send(piece)).collect();
    assert_eq!(session.store.check(), Ok(()));
    session.reopen();
    session.resp = Some(state());
    assert_eq!(session.say("PING\r\n"), "+PONG\r\n");
    replies
}
