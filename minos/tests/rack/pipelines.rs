//! Pipelined commands at a node of a rack are answered byte for byte as by a server of its own.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use minos_base::seeded_stream;
use minos_testkit::Server;
use rand::{RngExt as _, rngs::StdRng};

use crate::up::Rack;

const BURSTS: u32 = 300;
const COMMANDS_MAX: u32 = 40;
const KEYS: u32 = 12;

fn value(random: &mut StdRng) -> String {
    let bytes = match random.random_range(0..20) {
        0 => random.random_range(4000..200_000),
        1..4 => 0,
        _ => random.random_range(0..40),
    };
    let digit = random.random_range(0..10u32).to_string();
    digit.repeat(if bytes < 20 { bytes.min(9) } else { bytes })
}

/// A command, whose replies hold nothing that differs between servers, such as CAS uniques.
fn command(random: &mut StdRng) -> String {
    let mut key = || format!("p{}", random.random_range(0..KEYS));
    let (key, others) = (key(), [key(), key(), key()]);
    let value = value(random);
    let bytes = value.len();
    let quiet = if random.random_ratio(1, 6) { " noreply" } else { "" };
    match random.random_range(0..24) {
        0..5 => format!("set {key} 3 0 {bytes}{quiet}\r\n{value}\r\n"),
        5 => format!("add {key} 4 0 {bytes}{quiet}\r\n{value}\r\n"),
        6 => format!("replace {key} 5 0 {bytes}{quiet}\r\n{value}\r\n"),
        7 => format!("append {key} 0 0 {bytes}{quiet}\r\n{value}\r\n"),
        8 => format!("prepend {key} 0 0 {bytes}{quiet}\r\n{value}\r\n"),
        9 => format!("delete {key}{quiet}\r\n"),
        10 => format!("incr {key} 7{quiet}\r\n"),
        11 => format!("touch {key} 0{quiet}\r\n"),
        12 => format!("gat 0 {key}\r\n"),
        13 => format!("gat 0 {key} {}\r\n", others.join(" ")),
        14..16 => format!("get {key} {} nothing\r\n", others.join(" ")),
        16 => format!("mg {key} v s f k Oq1 q\r\n"),
        17 => format!("mg {key} v t N0 s\r\n"),
        18 => format!("ms {key} {bytes} F9 Oabc q\r\n{value}\r\n"),
        19 => format!("md {key} q\r\n"),
        20 => "mn\r\nbad command\r\n".to_owned(),
        _ => format!("get {key}\r\n"),
    }
}

/// What a server replies to a burst.
fn replies(stream: &mut TcpStream, burst: &str) -> String {
    const LAST: &str = "VERSION";
    stream.write_all(burst.as_bytes()).unwrap();
    stream.write_all(b"version\r\n").unwrap();
    let (mut all, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let count = match stream.read(&mut buffer) {
            // This process was stopped and goes on.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        assert!(count > 0, "closed after {burst}");
        all.extend_from_slice(&buffer[..count]);
        // No value has such letters.
        if let Some(at) = all.windows(LAST.len()).position(|window| window == LAST.as_bytes())
            && all.ends_with(b"\r\n")
        {
            return String::from_utf8_lossy(&all[..at]).into_owned();
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

pub(crate) fn compare(nodes: &[SocketAddr], seed: u64) {
    let alone = Server::minos(Path::new(env!("CARGO_BIN_EXE_minos")), &["--memory", "64m", "--workers", "1"])
        .unwrap();
    let mut random = seeded_stream(seed, 0);
    let mut own = connect(alone.address());
    let mut nodes: Vec<_> = nodes.iter().map(|address| connect(*address)).collect();
    for burst in 0..BURSTS {
        let commands: String =
            (0..random.random_range(1..COMMANDS_MAX)).map(|_| command(&mut random)).collect();
        let node = random.random_range(0..nodes.len());
        let (expected, said) = (replies(&mut own, &commands), replies(&mut nodes[node], &commands));
        let at = expected.bytes().zip(said.bytes()).position(|(one, other)| one != other);
        let at = at.unwrap_or(expected.len().min(said.len()));
        let around = |text: &str| text[at.saturating_sub(60)..(at + 60).min(text.len())].to_owned();
        assert!(
            expected == said,
            "burst {burst}: {:?}, not {:?}\n{commands:.2000}",
            around(&said),
            around(&expected)
        );
    }
}

#[test]
fn pipelined_commands_are_answered_as_by_one_server() {
    let addresses = |rack: &Rack| rack.nodes.iter().map(|(address, _)| *address).collect::<Vec<_>>();
    compare(&addresses(&Rack::up(3, &[])), 1);
    // Every other node is asked.
    compare(&addresses(&Rack::up(3, &["--unit-size", "1"])), 2);
}
