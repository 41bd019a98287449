//! Connections, which are answered in order: requests behind a large request wait until it is served.

use std::collections::VecDeque;

use super::workload::Request;

/// All connections of all clients; none, if no request waits for another one.
#[derive(Debug)]
pub(super) struct Connections(Vec<Connection>);

#[derive(Clone, Debug, Default)]
struct Connection {
    /// True if a large request of it is in a ring, or is being served from one.
    is_away: bool,
    held: VecDeque<Request>,
}

impl Connections {
    pub(super) fn new(count: usize) -> Self {
        Self(vec![Connection::default(); count])
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Holds `request` if it has to wait; otherwise returns it.
    pub(super) fn hold(&mut self, request: Request) -> Option<Request> {
        match self.0.get_mut(request.connection as usize) {
            Some(connection) if connection.is_away => {
                connection.held.push_back(request);
                None
            }
            _ => Some(request),
        }
    }

    /// `request` is put in a ring.
    pub(super) fn leaves(&mut self, request: &Request) {
        if let Some(connection) = self.0.get_mut(request.connection as usize) {
            connection.is_away = true;
        }
    }

    /// `request` is served. Returns the requests that waited for it, in order.
    pub(super) fn returns(&mut self, request: &Request) -> VecDeque<Request> {
        let connection = self.0.get_mut(request.connection as usize).filter(|connection| connection.is_away);
        connection.map(std::mem::take).unwrap_or_default().held
    }
}
