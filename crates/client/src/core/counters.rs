//! What a client counts.

/// Counts since a client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations submitted.
    pub submitted: u64,
    /// Operations that ended, well or not.
    pub completed: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received, whatever came of them.
    pub datagrams_received: u64,
    /// Requests that were taken for lost.
    pub lost: u64,
    /// Datagrams that made no sense, did not come from the server, or answered nothing that was asked.
    pub ignored: u64,
    /// Datagrams whose tag was missing or wrong.
    pub unsealed: u64,
    /// Refusals received.
    pub refused: u64,
    /// Hellos sent.
    pub hellos: u64,
    /// Times that the server turned out to have been started again.
    pub restarts: u64,
    /// Times that a server said that it is stopping.
    pub drains: u64,
    /// Times that the client went to another server.
    pub failovers: u64,
    /// Large values that were replaced while they were fetched, and fetched from the beginning.
    pub refetches: u64,
    /// Sessions that were lost.
    pub sessions_lost: u64,
}

impl Counters {
    /// All, with their names.
    pub const fn all(&self) -> [(&'static str, u64); 14] {
        [
            ("submitted", self.submitted),
            ("completed", self.completed),
            ("datagrams_sent", self.datagrams_sent),
            ("datagrams_received", self.datagrams_received),
            ("lost", self.lost),
            ("ignored", self.ignored),
            ("unsealed", self.unsealed),
            ("refused", self.refused),
            ("hellos", self.hellos),
            ("restarts", self.restarts),
            ("drains", self.drains),
            ("failovers", self.failovers),
            ("refetches", self.refetches),
            ("sessions_lost", self.sessions_lost),
        ]
    }
}
