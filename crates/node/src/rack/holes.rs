//! Gaps in the replies to a connection, which other nodes fill.

use minos_base::KeyHash;
use minos_engine::Mode;

use super::Forward;
use crate::ops::Next;

/// A command that other nodes execute.
pub(crate) struct Hole {
    /// Where its reply belongs, in bytes of the replies that are there.
    pub(crate) at: usize,
    /// Its key; `None` if it has none.
    hash: Option<KeyHash>,
    /// Where the reply to its line of keys begins, if it stands for one of them.
    pub(crate) line: Option<usize>,
    pub(crate) forward: Forward,
}

/// Commands of one burst that other nodes execute at the same time, in the order of their replies.
///
/// The commands for one key keep their order: those for its owner are on one link, and a read in the owner's memory
/// waits for them.
#[derive(Default)]
pub(crate) struct Holes(Vec<Hole>);

impl Holes {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if nothing that is under way concerns this key.
    #[inline]
    pub(crate) fn may_read(&self, hash: KeyHash) -> bool {
        self.0.iter().all(|hole| hole.hash != Some(hash))
    }

    /// True if a command for this key would come behind those before it.
    pub(crate) fn may_forward(&self, hash: KeyHash, is_large: bool) -> bool {
        self.0.iter().all(|hole| hole.hash != Some(hash) || hole.forward.is_large == is_large)
    }

    /// Adds a command whose reply belongs at `at`.
    pub(crate) fn push(&mut self, at: usize, hash: Option<KeyHash>, forward: Forward) {
        self.0.push(Hole { at, hash, line: None, forward });
    }

    /// Adds one for a key of a line, whose reply begins at `line`. The line is the last command of its burst.
    pub(crate) fn push_key(&mut self, (at, line): (usize, usize), hash: KeyHash, forward: Forward) {
        self.0.push(Hole { at, hash: Some(hash), line: Some(line), forward });
    }

    /// Lets replies come at `end` at the latest: those around them are dropped.
    pub(crate) fn close_up(&mut self, end: usize) {
        self.0.iter_mut().for_each(|hole| hole.at = hole.at.min(end));
    }

    /// Forwards the last command as its client sent it, unless it has bytes of its own.
    pub(crate) fn fill(&mut self, command: &[u8]) {
        if let Some(Hole { forward, .. }) = self.0.last_mut().filter(|hole| hole.forward.bytes.is_empty()) {
            forward.bytes = command.to_vec();
        }
    }

    /// All of them; none are left.
    pub(crate) fn take(&mut self) -> Vec<Hole> {
        std::mem::take(&mut self.0)
    }
}

/// Commands of one connection that other nodes execute, and how it goes on when they have.
pub(crate) struct Forwards<M: Mode> {
    pub(crate) holes: Vec<Hole>,
    pub(crate) then: Next<M>,
}

impl<M: Mode> Forwards<M> {
    /// One command, behind no other replies.
    pub(crate) fn one(forward: Forward) -> Self {
        Self { holes: vec![Hole { at: 0, hash: None, line: None, forward }], then: Next::Continue }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Owner, *};

    #[test]
    fn commands_for_a_key_keep_their_order() {
        let (mut holes, [one, other]) = (Holes::default(), [KeyHash(1), KeyHash(2)]);
        let forward = |is_large| Forward { is_large, ..Forward::to(Owner { node: 1, micro_shard: 0 }) };
        assert!(holes.may_read(one) && holes.may_forward(one, true));
        holes.push(0, Some(one), forward(false));
        assert!(!holes.may_read(one) && holes.may_read(other));
        assert!(
            holes.may_forward(one, false) && !holes.may_forward(one, true) && holes.may_forward(other, true)
        );
        holes.fill(b"get a\r\n");
        holes.fill(b"get b\r\n");
        assert_eq!(holes.take()[0].forward.bytes, b"get a\r\n");
        assert!(holes.is_empty());
    }
}
