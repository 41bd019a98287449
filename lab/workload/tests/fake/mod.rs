//! A server of memcached's text protocol in the test's process, with faults on demand.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// A fault of the server, in one of `one_in` GETs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// It stops answering on that connection.
    Silent,
    /// One byte of the value is wrong.
    Altered,
    /// It answers that it is out of memory.
    Refused,
    Closed,
    /// It answers with bytes that are no reply.
    Nonsense,
}

/// A running server. Its threads end with the test's process.
pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    items: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    fault: Fault,
    one_in: u64,
    gets: AtomicU64,
}

impl FakeServer {
    /// Starts a server that shows `fault` in every `one_in`th GET.
    pub(crate) fn start(fault: Fault, one_in: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let items = Mutex::default();
        let state = Arc::new(State { items, fault, one_in, gets: AtomicU64::new(0) });
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                thread::spawn(move || state.serve(&stream));
            }
        });
        Self { address, state }
    }

    /// Items stored so far.
    pub(crate) fn item_count(&self) -> usize {
        self.state.items.lock().unwrap().len()
    }
}

impl State {
    /// Serves one connection until it ends.
    fn serve(&self, stream: &TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut input = BufReader::with_capacity(1 << 16, stream);
        let mut line = Vec::new();
        let mut out = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                return;
            }
            let words: Vec<&[u8]> = line.trim_ascii_end().split(|&byte| byte == b' ').collect();
            let goes_on = match words[0] {
                b"get" => self.get(&words[1..], &mut out),
                b"set" => self.set(&words, &mut input, &mut out),
                _ => panic!("unexpected request {:?}", String::from_utf8_lossy(&line)),
            };
            // Requests that arrived together are answered together.
            if !goes_on || input.buffer().is_empty() {
                let sent = (&*stream).write_all(&out);
                out.clear();
                if sent.is_err() || !goes_on {
                    return;
                }
            }
        }
    }

    fn get(&self, keys: &[&[u8]], out: &mut Vec<u8>) -> bool {
        let number = self.gets.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = if number.is_multiple_of(self.one_in) { self.fault } else { Fault::None };
        match fault {
            Fault::Silent => loop {
                thread::park();
            },
            Fault::Refused => out.extend_from_slice(b"SERVER_ERROR out of memory\r\n"),
            Fault::Closed => return false,
            Fault::Nonsense => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
            Fault::None | Fault::Altered => self.values(keys, fault == Fault::Altered, out),
        }
        true
    }

    fn values(&self, keys: &[&[u8]], is_altered: bool, out: &mut Vec<u8>) {
        let items = self.items.lock().unwrap();
        for key in keys {
            let Some(value) = items.get(*key) else { continue };
            write!(out, "VALUE {} 0 {}\r\n", String::from_utf8_lossy(key), value.len()).unwrap();
            out.extend_from_slice(value);
            if let (true, Some(last)) = (is_altered && !value.is_empty(), out.last_mut()) {
                *last ^= 1;
            }
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"END\r\n");
    }

    fn set(&self, words: &[&[u8]], input: &mut impl Read, out: &mut Vec<u8>) -> bool {
        let value_bytes: usize = String::from_utf8_lossy(words[4]).parse().unwrap();
        let mut value = vec![0; value_bytes + 2];
        if input.read_exact(&mut value).is_err() {
            return false;
        }
        assert!(value.ends_with(b"\r\n"), "the value must be as long as was said");
        value.truncate(value_bytes);
        self.items.lock().unwrap().insert(words[1].to_vec(), value);
        out.extend_from_slice(b"STORED\r\n");
        true
    }
}
