//! A blocking client of the memcache text protocol, one request at a time.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longest time that a read may take before the test fails.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The item that a GET found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Client flags.
    pub flags: u32,
    /// CAS unique; zero if the request did not ask for it.
    pub cas: u64,
    /// The value.
    pub value: Vec<u8>,
}

/// A connection to a server that speaks the memcache text protocol.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects. Reads fail when nothing comes for half a minute.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_WITHIN))?;
        stream.set_write_timeout(Some(READ_WITHIN))?;
        Ok(Self { stream: BufReader::with_capacity(64 * 1024, stream) })
    }

    /// The socket. Bytes that the client has buffered cannot be read from it.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Writes `bytes` as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes.as_ref())
    }

    /// Reads up to the next newline. Returns the line without its `\r\n`.
    pub fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.stream.read_until(b'\n', &mut line)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        let text = String::from_utf8_lossy(&line);
        Ok(text.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Reads `length` bytes.
    pub fn exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads until the server closes the connection. Returns the bytes.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            // A server that closes with our bytes unread resets the connection.
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(bytes),
        }
    }

    /// Sends one line and reads one back.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.send(format!("{line}\r\n"))?;
        self.line()
    }

    /// Sends `set` and returns the server's line.
    pub fn set(&mut self, key: &str, value: &[u8]) -> io::Result<String> {
        self.store(&format!("set {key} 0 0 {}", value.len()), value)
    }

    /// Sends `cas` with the CAS unique `cas` and returns the server's line.
    pub fn cas(&mut self, key: &str, value: &[u8], cas: u64) -> io::Result<String> {
        self.store(&format!("cas {key} 0 0 {} {cas}", value.len()), value)
    }

    /// Sends a storage command in one write and returns the server's line.
    pub fn store(&mut self, line: &str, value: &[u8]) -> io::Result<String> {
        let mut request = Vec::with_capacity(line.len() + value.len() + 4);
        request.extend_from_slice(line.as_bytes());
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(request)?;
        self.line()
    }

    /// Sends `set` for all items in one write and returns the server's lines.
    pub fn set_many<V: AsRef<[u8]>>(&mut self, items: &[(String, V)]) -> io::Result<Vec<String>> {
        let mut requests = Vec::new();
        for (key, value) in items {
            let value = value.as_ref();
            requests.extend(format!("set {key} 0 0 {}\r\n", value.len()).into_bytes());
            requests.extend([value, b"\r\n"].concat());
        }
        self.send(requests)?;
        items.iter().map(|_| self.line()).collect()
    }

    /// Sends `gets` for each key, all in one write.
    pub fn get_many(&mut self, keys: &[String]) -> io::Result<Vec<Option<Found>>> {
        let requests: String = keys.iter().map(|key| format!("gets {key}\r\n")).collect();
        self.send(requests)?;
        keys.iter().map(|_| self.found()).collect()
    }

    /// `gets` of one key.
    pub fn get(&mut self, key: &str) -> io::Result<Option<Found>> {
        self.send(format!("gets {key}\r\n"))?;
        self.found()
    }

    /// Reads the reply to a `get` or `gets` of one key.
    pub fn found(&mut self) -> io::Result<Option<Found>> {
        let line = self.line()?;
        if line == "END" {
            return Ok(None);
        }
        let fields: Vec<&str> = line.split(' ').collect();
        let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("not a VALUE line: {line:?}"));
        let ["VALUE", _, flags, length, cas @ ..] = fields.as_slice() else { return Err(bad()) };
        let flags = flags.parse().map_err(|_| bad())?;
        let length: usize = length.parse().map_err(|_| bad())?;
        let cas = cas.first().map_or(Ok(0), |cas| cas.parse()).map_err(|_| bad())?;
        let mut value = self.exact(length + 2)?;
        if !value.ends_with(b"\r\n") || self.line()? != "END" {
            return Err(bad());
        }
        value.truncate(length);
        Ok(Some(Found { flags, cas, value }))
    }

    /// All lines of a `stats` reply as names and values.
    pub fn stats(&mut self, group: &str) -> io::Result<Vec<(String, String)>> {
        self.send(format!("stats {group}").trim_end().to_owned() + "\r\n")?;
        let mut stats = Vec::new();
        loop {
            let line = self.line()?;
            match line.splitn(3, ' ').collect::<Vec<_>>().as_slice() {
                ["END"] => return Ok(stats),
                ["STAT", name, value] => stats.push(((*name).to_owned(), (*value).to_owned())),
                _ => return Err(io::Error::other(format!("not a STAT line: {line:?}"))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    #[test]
    fn speaks_with_memcached() {
        let server = Server::memcached(&[]).unwrap_or_else(|error| panic!("{error}"));
        let mut client = Client::connect(server.address()).unwrap();
        assert_eq!(client.get("a").unwrap(), None);
        assert_eq!(client.set("a", b"one\r\ntwo").unwrap(), "STORED");
        let found = client.get("a").unwrap().unwrap();
        assert_eq!(found.value, b"one\r\ntwo");
        assert_eq!(client.cas("a", b"three", found.cas).unwrap(), "STORED");
        assert_eq!(client.cas("a", b"four", found.cas).unwrap(), "EXISTS");
        assert_eq!(client.ask("delete a").unwrap(), "DELETED");
        let stats = client.stats("").unwrap();
        assert!(stats.iter().any(|(name, value)| name == "pid" && *value == server.pid().to_string()));
        assert_eq!(client.ask("nonsense").unwrap(), "ERROR");
        assert!(client.get("too many keys").is_ok());
        client.send("quit\r\n").unwrap();
        assert_eq!(client.rest().unwrap(), b"");
    }
}
