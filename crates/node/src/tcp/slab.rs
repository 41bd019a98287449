//! The connections of one RX queue, by token.

use minos_net::Token;

use super::connection::Connection;

/// Connections by token. A token is an index and a generation, so that a late event matches no connection
/// instead of the wrong one.
#[derive(Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    state: State,
    /// True if it is in the backlog of its queue.
    is_left_over: bool,
    /// True if the poller reported an event while it was away.
    has_missed: bool,
}

enum State {
    Free,
    Here(Box<Connection>),
    /// Handed to another worker.
    Away,
}

impl Slab {
    /// Adds a connection and gives it a token.
    pub(crate) fn insert(&mut self, mut connection: Box<Connection>) -> &mut Connection {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                state: State::Free,
                is_left_over: false,
                has_missed: false,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        connection.token = Token(u64::from(slot.generation) << 32 | u64::from(index));
        slot.state = State::Here(connection);
        match &mut slot.state {
            State::Here(connection) => connection,
            State::Free | State::Away => unreachable!("it was put here one line above"),
        }
    }

    /// True if there are no connections, here or away.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The connection of `token`, unless it is closed or away.
    pub(crate) fn here(&mut self, token: Token) -> Option<&mut Connection> {
        match &mut self.slot(token)?.state {
            State::Here(connection) => Some(connection),
            State::Free | State::Away => None,
        }
    }

    /// Takes out a connection for another worker; its token stays valid.
    pub(crate) fn lend(&mut self, token: Token) -> Option<Box<Connection>> {
        let state = &mut self.slot(token)?.state;
        match std::mem::replace(state, State::Away) {
            State::Here(connection) => Some(connection),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Notes that the poller reported an event of a connection that is away.
    pub(crate) fn note_missed(&mut self, token: Token) {
        if let Some(slot) = self.slot(token) {
            slot.has_missed = true;
        }
    }

    /// Puts a lent connection back; true if an event was missed meanwhile.
    pub(crate) fn take_back(&mut self, connection: Box<Connection>) -> bool {
        let Some(slot) = self.slot(connection.token) else { return false };
        debug_assert!(matches!(slot.state, State::Away));
        slot.state = State::Here(connection);
        std::mem::take(&mut slot.has_missed)
    }

    /// Frees a token, whether its connection is here or away, and returns the connection if it is here.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<Connection>> {
        let slot = self.slot(token)?;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.is_left_over, slot.has_missed) = (false, false);
        let state = std::mem::replace(&mut slot.state, State::Free);
        self.free.push(token.0 as u32);
        match state {
            State::Here(connection) => Some(connection),
            State::Free | State::Away => None,
        }
    }

    /// Notes whether a connection, here or away, is in the backlog; true if that changed.
    pub(crate) fn mark_left_over(&mut self, token: Token, is_left_over: bool) -> bool {
        self.slot(token)
            .is_some_and(|slot| std::mem::replace(&mut slot.is_left_over, is_left_over) != is_left_over)
    }

    /// Every connection that is here.
    pub(crate) fn all_here(&self) -> impl Iterator<Item = &Connection> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            State::Here(connection) => Some(&**connection),
            State::Free | State::Away => None,
        })
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.0 as u32 as usize)?;
        (slot.generation == (token.0 >> 32) as u32 && !matches!(slot.state, State::Free)).then_some(slot)
    }
}
