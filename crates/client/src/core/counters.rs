//! The client's counters.

/// Counts since a client was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Operations submitted.
    pub submitted: u64,
    /// Operations that ended, well or not.
    pub completed: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received, ignored ones included.
    pub datagrams_received: u64,
    /// Requests that counted as lost.
    pub lost: u64,
    /// Datagrams that were malformed, not from the server, or answered no request.
    pub ignored: u64,
    /// Datagrams whose tag was missing or wrong.
    pub unsealed: u64,
    /// Refusals received.
    pub refused: u64,
    /// Hellos sent.
    pub hellos: u64,
    /// Restarts of the server that the client noticed.
    pub restarts: u64,
    /// Times a server said that it is stopping.
    pub drains: u64,
    /// Times the client moved to another server.
    pub failovers: u64,
    /// Large values that were replaced during their fetch, and fetched from the start.
    pub refetches: u64,
    /// Sessions that the server no longer knew.
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
