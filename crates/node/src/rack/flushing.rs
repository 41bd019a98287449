//! A flush of all nodes.

use std::sync::{Arc, OnceLock};

use minos_base::Exptime;
use minos_engine::Mode;

use super::{Forward, Holes, RackView};

/// What the client is told of a flush that some node may not have executed: the others have.
const IN_PART: &[u8] = b"; the command may be done in part\r\n";
/// The same where this node has no lease, and so may not know all nodes.
const NO_LEASE: &[u8] =
    b"SERVER_ERROR this node of the rack has no lease; the command may be done in part\r\n";

/// A flush that is executed in rounds, first here and then at all other nodes. One that cannot be asked keeps no other one
/// from it.
pub(crate) struct Flushing {
    rounds_left: usize,
    /// What the client is told, of the node that failed first.
    failure: Arc<OnceLock<Vec<u8>>>,
}

impl Flushing {
    /// One that begins. Items may be on their way to a node that was emptied before the one that has them: a second round
    /// meets those.
    pub(crate) fn new<M: Mode>(rack: &RackView<M>) -> Self {
        Self { rounds_left: if rack.is_managed() { 2 } else { 1 }, failure: Arc::default() }
    }

    /// Lets the other nodes execute it, whose replies come into holes that leave nothing at `at`.
    pub(crate) fn go_round<M: Mode>(
        &mut self,
        rack: &RackView<M>,
        delay: Exptime,
        (holes, at): (&mut Holes, usize),
    ) {
        self.rounds_left -= 1;
        let Some(nodes) = rack.others_now() else {
            self.rounds_left = 0;
            let _ = self.failure.set(NO_LEASE.to_vec());
            return;
        };
        for node in nodes {
            let failure = Arc::clone(&self.failure);
            let note = move |said: &[u8]| {
                if let Some(failed) = failure_of(said) {
                    // The first one stays.
                    let _ = failure.set(failed);
                }
                Vec::new()
            };
            let bytes = format!("flush_all {}\r\n", delay.0).into_bytes();
            let forward = Forward { bytes, translate: Some(Box::new(note)), ..Forward::to_node(Some(node)) };
            holes.push(at, None, forward);
        }
    }

    /// True if no other round follows the one whose replies are there.
    pub(crate) fn is_over(&self) -> bool {
        self.rounds_left == 0
    }

    /// The line of the text protocol that says which node has failed, if one has.
    pub(crate) fn failure(&self) -> Option<&[u8]> {
        self.failure.get().map(Vec::as_slice)
    }
}

fn failure_of(said: &[u8]) -> Option<Vec<u8>> {
    if said == b"OK\r\n" {
        return None;
    }
    let words = said.trim_ascii_end().split(|&byte| byte == b';').next().unwrap_or_default();
    Some([words, IN_PART].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told() {
        assert_eq!(failure_of(b"OK\r\n"), None);
        for (said, expected) in [
            (
                "SERVER_ERROR node 1 cannot be reached\r\n",
                "SERVER_ERROR node 1 cannot be reached; the command may be done in part\r\n",
            ),
            (
                "SERVER_ERROR node 1 is late; the command may be done\r\n",
                "SERVER_ERROR node 1 is late; the command may be done in part\r\n",
            ),
        ] {
            assert_eq!(failure_of(said.as_bytes()).as_deref(), Some(expected.as_bytes()));
        }
    }
}
