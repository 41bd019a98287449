//! The secrets of a server, as keys.

use minos_proto::native::{Header, SealKey, SealKeys, Secret};

/// The keys of a server's secrets: two while one is being replaced.
#[derive(Debug)]
pub(crate) struct Seals(Box<[SealKeys]>);

impl Seals {
    /// The keys of these secrets; `None` without secrets, and then nothing is sealed.
    pub(crate) fn of(secrets: &[Secret]) -> Option<Self> {
        (!secrets.is_empty()).then(|| Self(secrets.iter().map(SealKeys::of).collect()))
    }

    /// True if `datagram` was sealed by a client that knows one of the secrets.
    pub(crate) fn verify(&self, header: &Header, datagram: &[u8]) -> bool {
        self.find(header.secret).is_some_and(|keys| keys.to_server.verify(datagram))
    }

    /// The key that seals an answer with this header: that of the client's secret.
    pub(crate) fn answer_key(&self, header: &Header) -> Option<&SealKey> {
        let keys = self.find(header.secret).filter(|_| header.is_sealed())?;
        Some(&keys.to_client)
    }

    fn find(&self, id: u8) -> Option<&SealKeys> {
        self.0.iter().find(|keys| keys.to_server.id() == id)
    }
}
