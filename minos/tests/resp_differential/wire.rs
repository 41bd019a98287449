//! Redis' protocol as a test sees it: commands to bytes, bytes to replies.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Silence of a server after which its replies count as missing.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Arrays within arrays, at most.
const NESTED_MAX: usize = 16;

/// A reply of any kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    /// Elements of an array, a set or a map, and the byte that says which.
    Elements(u8, Vec<Reply>),
    /// Others of RESP3, with the byte that says which.
    Other(u8, Vec<u8>),
}

/// A command as an array of bulk strings.
pub(crate) fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A connection to a server.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    at: usize,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SILENCE_MAX)).unwrap();
        stream.set_write_timeout(Some(SILENCE_MAX)).unwrap();
        Self { stream, received: Vec::new(), at: 0 }
    }

    /// Sends bytes in pieces of at most `piece_bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8], piece_bytes: usize) {
        for piece in bytes.chunks(piece_bytes.max(bytes.len() / 100).max(1)) {
            // The replies show if the server has closed the connection.
            if self.stream.write_all(piece).is_err() {
                return;
            }
        }
    }

    pub(crate) fn say(&mut self, words: &[&str]) -> Reply {
        self.ask(words).unwrap_or_else(|| panic!("no reply to {words:?}"))
    }

    /// The reply to a command; `None` if the connection ends, or nothing comes.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Option<Reply> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.send(&array(&words), usize::MAX);
        self.reply()
    }

    /// The next reply; `None` if the connection ends, or nothing comes.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        self.reply_within(NESTED_MAX)
    }

    fn reply_within(&mut self, nested_max: usize) -> Option<Reply> {
        let line = self.line()?;
        let (kind, text) = (*line.first()?, String::from_utf8_lossy(&line[1..]).into_owned());
        Some(match kind {
            b'+' => Reply::Simple(text),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(text.parse().ok()?),
            b'_' => Reply::Null,
            b'$' | b'*' if text == "-1" => Reply::Null,
            b'$' => Reply::Bulk(self.bytes(text.parse().ok()?)?),
            b'*' | b'~' | b'%' | b'>' => {
                let count: usize = text.parse().ok()?;
                let count = if kind == b'%' { 2 * count } else { count };
                let nested_max = nested_max.checked_sub(1).expect("a reply is nested too deeply");
                let element = |_| self.reply_within(nested_max);
                Reply::Elements(kind, (0..count).map(element).collect::<Option<_>>()?)
            }
            b'=' => Reply::Other(kind, self.bytes(text.parse().ok()?)?),
            _ => Reply::Other(kind, text.into_bytes()),
        })
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.received[self.at..].windows(2).position(|two| two == b"\r\n") {
                let line = self.received[self.at..self.at + end].to_vec();
                self.at += end + 2;
                return Some(line);
            }
            self.receive()?;
        }
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.received.len() < self.at + count + 2 {
            self.receive()?;
        }
        let bytes = self.received[self.at..self.at + count].to_vec();
        assert_eq!(&self.received[self.at + count..][..2], b"\r\n", "a value has another length");
        self.at += count + 2;
        Some(bytes)
    }

    fn receive(&mut self) -> Option<()> {
        self.received.drain(..std::mem::take(&mut self.at));
        let mut buffer = [0; 64 << 10];
        let count = loop {
            match self.stream.read(&mut buffer) {
                // This process was stopped and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.ok().filter(|&count| count > 0)?,
            }
        };
        self.received.extend_from_slice(&buffer[..count]);
        Some(())
    }
}
