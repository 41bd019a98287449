//! A door for the fuzz targets, which are built with `--cfg fuzzing`.

use super::harness::Session;

/// Says `pieces` one after the other on one connection to an empty store, whose values above
/// `here_bytes_max` are moved without being copied. Returns all replies.
///
/// # Panics
/// If the store is not sound afterwards, or does not serve the next connection.
pub fn dialogue(here_bytes_max: u64, pieces: &[&[u8]]) -> Vec<u8> {
    let mut session = Session::new(here_bytes_max);
    session.limits.value_bytes_max = 2000;
    let replies = pieces.iter().flat_map(|piece| session.send(piece)).collect();
    assert_eq!(session.store.check(), Ok(()));
    session.reopen();
    assert_eq!(session.say("mn\r\n"), "MN\r\n");
    replies
}
