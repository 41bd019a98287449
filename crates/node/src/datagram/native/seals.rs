//! The secrets of a server, as keys.

use minos_proto::native::{Header, SealKey, SealKeys, Secret};

/// The keys of a server's secrets: two while one is being replaced.
#[derive(Debug)]
pub(crate) struct Seals(Box<[SealKeys]>);

impl Seals {
    /// The keys of these secrets; `None` if there are none, and so nothing is sealed.
    pub(crate) fn of(secrets: &[Secret]) -> Option<Self> {
        (!secrets.is_empty()).then(|| Self(secrets.iter().map(SealKeys::of).collect()))
    }

    /// Whether a client that knows one of the secrets has written `datagram`.
    pub(crate) fn verify(&self, header: &Header, datagram: &[u8]) -> bool {
        self.find(header.secret).is_some_and(|keys| keys.to_server.verify(datagram))
    }

    /// What an answer with this header is sealed with: the secret that the client has used.
    pub(crate) fn answer_key(&self, header: &Header) -> Option<&SealKey> {
        let keys = self.find(header.secret).filter(|_| header.is_sealed())?;
        Some(&keys.to_client)
    }

    fn find(&self, id: u8) -> Option<&SealKeys> {
        self.0.iter().find(|keys| keys.to_server.id() == id)
    }
}
