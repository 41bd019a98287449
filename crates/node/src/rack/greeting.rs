//! The first line on a link, which says what its opener takes the other node for.

use super::config::RackConfig;

/// The first word of a link.
const HELLO: &str = "minos-peer ";

/// The first line on a link to `node`. Its number is raised also when micro-shards get other keys. It says by what owners are
/// known: nodes that differ in that would both own what a coordinator has moved.
pub(crate) fn hello(config: &RackConfig, node: usize) -> Vec<u8> {
    hello_by(config, node, config.is_managed())
}

fn hello_by(config: &RackConfig, node: usize, is_managed: bool) -> Vec<u8> {
    let by = if is_managed { "coordinator" } else { "ring" };
    format!("{HELLO}3 {} {node} {by}\r\n", config.name).into_bytes()
}

/// What a node makes of the first bytes on a link to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The first line is right, and has so many bytes.
    Right(usize),
    /// It has so many, and is yet to come.
    Begun(usize),
    /// It is not for this node.
    Wrong(&'static str),
}

impl Greeting {
    pub(crate) fn of(config: &RackConfig, input: &[u8]) -> Self {
        let [expected, other] =
            [false, true].map(|is_other| hello_by(config, config.node, config.is_managed() != is_other));
        if input.starts_with(&expected) {
            return Self::Right(expected.len());
        }
        let is_begun = |line: &&Vec<u8>| line.len() > input.len() && line.starts_with(input);
        if let Some(line) = [&expected, &other].into_iter().find(is_begun) {
            return Self::Begun(line.len());
        }
        Self::Wrong(if input.starts_with(&other) && config.is_managed() {
            "another node goes by no coordinator, and this one by one: give --coordinator to all nodes, or to none"
        } else if input.starts_with(&other) {
            "another node goes by a coordinator, and this one by none: give --coordinator to all nodes, or to none"
        } else if input.starts_with(HELLO.as_bytes()) {
            "another node takes this one for a node of another rack, or of another number, or is of another version"
        } else {
            "what calls here does not speak as a node without --rack-secret does"
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rack::config::{Acknowledge, Managed};

    #[test]
    fn a_node_takes_links_of_nodes_that_mean_it_and_know_owners_as_it_does() {
        let ring = RackConfig::of_units(1, &[0, 1], 4);
        let managed = Managed {
            coordinators: Vec::new(),
            lease: Duration::from_secs(1),
            acknowledge: Acknowledge::Owner,
            read_copies: None,
        };
        let coordinated = RackConfig { managed: Some(managed), ..ring.clone() };
        let why = |config: &RackConfig, line: &[u8]| match Greeting::of(config, line) {
            Greeting::Wrong(why) => why,
            other => panic!("{}: {other:?}", line.escape_ascii()),
        };
        for (config, other) in [(&ring, &coordinated), (&coordinated, &ring)] {
            let line = hello(config, 1);
            assert_eq!(Greeting::of(config, &[&*line, b"mn\r\n"].concat()), Greeting::Right(line.len()));
            let mut begun = (0..line.len()).map(|bytes| Greeting::of(config, &line[..bytes]));
            assert!(begun.all(|it| matches!(it, Greeting::Begun(bytes) if bytes > 15)));
            // Its last word has not come yet.
            let differs = hello(other, 1);
            assert_eq!(Greeting::of(config, &differs[..differs.len() - 3]), Greeting::Begun(differs.len()));
            for strange in [&hello(config, 0)[..], b"minos-peer 2 r 1\r\n"] {
                assert!(why(config, strange).contains("another rack"));
            }
            // A sealed call, and a client.
            for strange in [&b"MNS\x01\x07\x04"[..], b"get a\r\n"] {
                assert!(why(config, strange).contains("--rack-secret"));
            }
        }
        assert!(why(&ring, &hello(&coordinated, 1)).starts_with("another node goes by a coordinator,"));
        assert!(why(&coordinated, &hello(&ring, 1)).starts_with("another node goes by no coordinator,"));
    }
}
