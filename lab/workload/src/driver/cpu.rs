//! Processor time of a server on this machine.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs,
    path::Path,
};

/// State of a TCP socket that listens, in the kernel's tables.
const LISTENING: &str = "0A";

/// State of a UDP socket without a peer.
const UNCONNECTED: &str = "07";

/// The process that listens on the TCP port `port` of this machine, if it may be seen.
pub fn server_pid(port: u16) -> Option<u32> {
    holder(["/proc/net/tcp", "/proc/net/tcp6"], LISTENING, port)
}

/// The process that takes datagrams on the UDP port `port` of this machine, if it may be seen.
pub(super) fn datagram_server_pid(port: u16) -> Option<u32> {
    holder(["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED, port)
}

/// The process that has a socket on `port` in `state` according to one of the tables.
fn holder(tables: [&str; 2], state: &str, port: u16) -> Option<u32> {
    let sockets: HashSet<u64> = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .flat_map(|table| table.lines().filter_map(|line| inode(line, state, port)).collect::<Vec<_>>())
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| holds_socket(*pid, &sockets))
}

/// The socket's number, if the line is about a socket on `port` in `wanted` state.
fn inode(line: &str, wanted: &str, port: u16) -> Option<u64> {
    let mut columns = line.split_ascii_whitespace();
    let local = columns.nth(1)?;
    let state = columns.nth(1)?;
    let inode = columns.nth(5)?;
    let (_, local_port) = local.rsplit_once(':')?;
    let matches = state == wanted && u16::from_str_radix(local_port, 16) == Ok(port);
    matches.then(|| inode.parse().ok()).flatten()
}

fn holds_socket(pid: u32, sockets: &HashSet<u64>) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|entry| {
        let Ok(link) = fs::read_link(entry.path()) else { return false };
        let number =
            link.to_str().and_then(|name| name.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        number.is_some_and(|number| sockets.contains(&number))
    })
}

/// Processor time of the threads of a process at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadTimes(HashMap<OsString, u64>);

impl ThreadTimes {
    /// Of process `pid` now. Empty when there is no such process.
    pub(super) fn of(pid: u32) -> Self {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Self::default() };
        let times = threads.flatten();
        Self(times.filter_map(|thread| Some((thread.file_name(), cpu_ns(&thread.path())?))).collect())
    }

    /// Nanoseconds run since `earlier`, in user and kernel mode. Threads that ended since are not counted.
    /// `None` if no thread is left.
    pub(super) fn since_ns(&self, earlier: &Self) -> Option<u64> {
        let spent = self
            .0
            .iter()
            .map(|(thread, time_ns)| time_ns.saturating_sub(earlier.0.get(thread).copied().unwrap_or(0)));
        (!self.0.is_empty()).then(|| spent.sum())
    }
}

/// The scheduler counts in nanoseconds, where the process's own times come in ticks.
fn cpu_ns(thread: &Path) -> Option<u64> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn finds_the_process_that_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(server_pid(port), Some(std::process::id()));
        drop(listener);
        assert_eq!(server_pid(port), None);
    }

    #[test]
    fn finds_the_process_that_takes_datagrams() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(datagram_server_pid(port), Some(std::process::id()));
        drop(socket);
        assert_eq!(datagram_server_pid(port), None);
    }

    #[test]
    fn counts_what_a_process_spends() {
        let begin = ThreadTimes::of(std::process::id());
        let mut sum = 0u64;
        while ThreadTimes::of(std::process::id()).since_ns(&begin) < Some(20_000_000) {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(ThreadTimes::of(u32::MAX).since_ns(&begin), None);
    }
}
