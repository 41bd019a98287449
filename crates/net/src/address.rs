//! Where a server listens or a client connects.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

/// A TCP address or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `127.0.0.1:11211` or `[::1]:11211`.
    Tcp(SocketAddr),
    /// `unix:/path/to/socket`, or a path that starts with a slash.
    Unix(PathBuf),
}

/// Why an address could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected IP:PORT such as 127.0.0.1:11211 or [::1]:11211, or unix:/path")]
pub struct ParseAddressError;

impl Address {
    /// True if only processes on this machine can connect to it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        if let Some(path) = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text)) {
            return if path.is_empty() { Err(ParseAddressError) } else { Ok(Self::Unix(path.into())) };
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return format!("127.0.0.1:{port}").parse().map(Self::Tcp).map_err(|_| ParseAddressError);
        }
        text.parse().map(Self::Tcp).map_err(|_| ParseAddressError)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for text in ["127.0.0.1:11211", "[::1]:0", "unix:/tmp/minos.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("/a".parse(), Ok(Address::Unix("/a".into())));
        assert_eq!("localhost:1".parse::<Address>().unwrap().to_string(), "127.0.0.1:1");
    }

    #[test]
    fn strangers_reach_what_is_not_loopback() {
        let is_local = |text: &str| text.parse::<Address>().unwrap().is_local();
        assert!(
            ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/x"]
                .iter()
                .all(|a| is_local(a))
        );
        assert!(!["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"].iter().any(|a| is_local(a)));
    }

    #[test]
    fn rejects_what_is_no_address() {
        for text in ["", "unix:", "11211", "host:1", "127.0.0.1", "127.0.0.1:70000"] {
            assert_eq!(text.parse::<Address>(), Err(ParseAddressError), "{text}");
        }
    }
}
