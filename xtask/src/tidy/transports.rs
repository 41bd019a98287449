//! Checks that the server names no transport where it is generic over them.

use super::SourceFile;

/// The server's sources.
const SERVER: &str = "crates/node/src/";

/// Transports, and the files of the server that may name them.
const NAMED_IN: [(&str, &[&str]); 3] = [
    (
        "Socket",
        &[
            "crates/node/src/tcp/connection.rs",
            "crates/node/src/rack/attach.rs",
            "crates/node/src/rack/coordinator/mod.rs",
            "crates/node/src/rack/fabric.rs",
            "crates/node/src/rack/links/tests.rs",
            "crates/node/src/rack/stream.rs",
        ],
    ),
    ("UdpPort", &[]),
    ("Epoll", &["crates/node/src/rack/links/tests.rs"]),
];

/// A line for each place that names a transport and may not.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    sources.iter().filter(|file| file.path.starts_with(SERVER)).flat_map(faults_of).collect()
}

fn faults_of(file: &SourceFile) -> Vec<String> {
    let forbidden = || NAMED_IN.iter().filter(|(_, files)| !files.contains(&file.path.as_str()));
    let fault = |(at, line): (usize, &str)| {
        let (name, _) = forbidden().find(|(name, _)| names(line, name))?;
        Some(format!("{}:{}: {name} is named only where it is chosen", file.path, at + 1))
    };
    file.text.lines().enumerate().filter_map(fault).collect()
}

/// True if `name` stands in `line` as a word of its own.
fn names(line: &str, name: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_transport_is_named_where_it_is_chosen_only() {
        let socket = "use std::net::SocketAddr;\nuse minos_net::{Progress, Socket};\n";
        assert_eq!(faults("crates/node/src/tcp/visit.rs", socket), 1);
        assert_eq!(faults("crates/node/src/tcp/connection.rs", socket), 0);
        assert_eq!(faults("crates/client/src/wire.rs", socket), 0);
        assert_eq!(faults("crates/node/src/tcp/connection.rs", "fn port(port: &udp::UdpPort) {}\n"), 1);
        assert_eq!(faults("crates/node/src/tcp/connection.rs", "use std::net::SocketAddr;\n"), 0);
    }
}
