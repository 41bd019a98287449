//! The address of a server.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use crate::Error;

/// The port of an address that names none.
pub const DEFAULT_PORT: u16 = 11311;

/// The optional scheme of an address.
const SCHEME: &str = "minos://";

/// A server's address: `minos://HOST:PORT`, or without the scheme, or without the port
/// ([`DEFAULT_PORT`]). An IPv6 address with a port stands in brackets.
///
/// ```
/// use minos_client::Address;
///
/// let address: Address = "minos://127.0.0.1:4000".parse()?;
/// assert_eq!(address.resolve()?.port(), 4000);
/// assert_eq!("localhost".parse::<Address>()?.to_string(), "minos://localhost:11311");
/// # Ok::<(), minos_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The socket address of the host's name: the first IPv4 address that the system finds, else the first
    /// address. By default servers listen on IPv4, and with datagrams a client cannot tell at once that no
    /// server listens at an address.
    ///
    /// # Errors
    /// [`Error::Address`]: there is no such host.
    pub fn resolve(&self) -> Result<SocketAddr, Error> {
        let fault = |reason: String| Error::Address { address: self.to_string(), reason };
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> = found.map_err(|error| fault(error.to_string()))?.collect();
        let preferred = found.iter().find(|address| address.is_ipv4()).or(found.first());
        preferred.copied().ok_or_else(|| fault("no such host".to_owned()))
    }
}

/// Addresses with commas between them.
pub(crate) fn parse_all(text: &str) -> Result<Vec<Address>, Error> {
    text.split(',').map(|address| address.trim().parse()).collect()
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fault = |reason: &str| Error::Address { address: text.to_owned(), reason: reason.to_owned() };
        let place = text.strip_prefix(SCHEME).unwrap_or(text);
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains("://") {
            return Err(fault("expected minos://HOST:PORT or HOST:PORT"));
        }
        let (host, port) = split(place);
        let port = port.map_or(Ok(DEFAULT_PORT), str::parse).map_err(|_| fault("the port is no number"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(fault("it names no host"));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Host and port. The last colon ends the host, unless it belongs to an IPv6 address without brackets.
fn split(place: &str) -> (&str, Option<&str>) {
    match place.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (place, None),
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "{SCHEME}[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{SCHEME}{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_scheme_and_port() {
        for (text, shown) in [
            ("minos://10.0.0.1:4000", "minos://10.0.0.1:4000"),
            ("10.0.0.1:4000", "minos://10.0.0.1:4000"),
            ("example.com", "minos://example.com:11311"),
            ("minos://[::1]:7/", "minos://[::1]:7"),
            ("::1", "minos://[::1]:11311"),
            ("[::1]", "minos://[::1]:11311"),
        ] {
            assert_eq!(text.parse::<Address>().map(|it| it.to_string()).as_deref(), Ok(shown), "{text}");
        }
        assert_eq!("localhost:7".parse::<Address>().unwrap().resolve(), Ok("127.0.0.1:7".parse().unwrap()));
        assert_eq!("[::1]:7".parse::<Address>().unwrap().resolve(), Ok("[::1]:7".parse().unwrap()));
    }

    #[test]
    fn several_addresses_stand_behind_each_other() {
        let shown = |text| parse_all(text).map(|all| all.iter().map(Address::to_string).collect::<Vec<_>>());
        assert_eq!(shown("a:1, [::1]:2"), Ok(vec!["minos://a:1".to_owned(), "minos://[::1]:2".to_owned()]));
        assert!(shown("a:1,").is_err());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":4000", "redis://a:1", "a:port", "a:70000", "minos://"] {
            assert!(matches!(text.parse::<Address>(), Err(Error::Address { .. })), "{text}");
        }
    }
}
