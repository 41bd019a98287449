//! Sockets on a port of this machine, as the kernel lists them.

use std::{fs, io, path::Path};

/// The state of a TCP socket that listens.
const LISTENING: &str = "0A";

/// True if nobody listens on `port` and nobody takes datagrams there, at any address.
///
/// Nothing is bound to find that out: a process that another thread forks just then would keep the socket until it
/// executes its program.
///
/// # Errors
/// The kernel's tables cannot be read.
pub fn is_free(port: u16) -> io::Result<bool> {
    Ok(listeners(port)?.is_empty() && on_port(["udp", "udp6"], port, |_| true)?.is_empty())
}

/// True if process `pid` lives and listens on `port`.
pub(crate) fn listens(pid: u32, port: u16) -> bool {
    let Ok(wanted) = listeners(port) else { return false };
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut sockets = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    sockets.any(|socket| wanted.iter().any(|number| socket == Path::new(&format!("socket:[{number}]"))))
}

/// The numbers of the sockets that listen on `port`.
fn listeners(port: u16) -> io::Result<Vec<String>> {
    on_port(["tcp", "tcp6"], port, |state| state == LISTENING)
}

/// The numbers of the sockets of these tables on `port` in such a state.
fn on_port(tables: [&str; 2], port: u16, state: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut numbers = Vec::new();
    for table in tables {
        let lines = match fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => continue,
            lines => lines?,
        };
        let on_port = format!(":{port:04X}");
        for line in lines.lines() {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            // The number of the line, both addresses, the state; then what does not matter; then the socket's number.
            if let [_, local, _, found, _, _, _, _, _, number, ..] = columns[..]
                && local.ends_with(&on_port)
                && state(found)
            {
                numbers.push(number.to_owned());
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_is_free_when_nobody_listens_or_takes_datagrams() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port).unwrap());
        assert!(listens(std::process::id(), port));
        // The process that started this one does not.
        assert!(!listens(std::os::unix::process::parent_id(), port));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!is_free(socket.local_addr().unwrap().port()).unwrap());
        // Port 1 is reserved.
        assert!(is_free(1).unwrap());
    }
}
