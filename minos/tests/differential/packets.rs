//! Random packets of the binary protocol, sent to two servers that must give the same packets back.
//!
//! CAS uniques agree by the order in which they appear, the version not at all. Excluded are an unknown opcode with
//! extras or key, behind which memcached 1.6.18 skips too many bytes, bodies of more than a gibibyte, and statistics,
//! whose values are the server's.

use std::{collections::HashMap, fmt, net::SocketAddr};

use minos_base::seeded;
use minos_testkit::{Answer, Packet, PacketClient, Server};
use rand::{RngExt, rngs::StdRng, seq::IndexedRandom};

use crate::excuses::{Excuse, Excuses};

/// Keys of a sequence; few, so that packets hit the same items.
const KEYS: u8 = 5;

/// A change to a reply before it is compared.
pub(crate) type Alteration = fn(&mut Answer);

/// A packet, or bytes that are none.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    packet: Packet,
    /// The key is one of the sequence's, with the prefix of the run.
    key: Option<u8>,
    /// The CAS unique is the one that the key has now, plus this.
    compares: Option<u64>,
    /// A byte of the header that is changed.
    twist: Option<(usize, u8)>,
    /// The server closes the connection behind it.
    closes: bool,
}

impl Request {
    /// True if all earlier replies must have been read before it is sent: it needs a CAS unique, it ends the connection,
    /// with which memcached drops replies, or is a count, which it does in another way to an item that it still sends.
    fn begins_batch(&self) -> bool {
        self.compares.is_some() || self.closes || matches!(self.packet.opcode, 0x05 | 0x06 | 0x15 | 0x16)
    }

    fn bytes(&self, prefix: &str, (opaque, cas): (u32, u64)) -> Vec<u8> {
        let mut packet = Packet { opaque, ..self.packet.clone() };
        if let Some(key) = self.key {
            packet.key = key_bytes(prefix, key);
        }
        if let Some(more) = self.compares {
            packet.cas = cas.wrapping_add(more);
        }
        let mut bytes = packet.bytes();
        if let Some((at, byte)) = self.twist {
            bytes[at] = byte;
            // memcached waits for extras and key before it looks at their lengths.
            let head_bytes = 24 + usize::from(bytes[2]) * 256 + usize::from(bytes[3]) + usize::from(bytes[4]);
            bytes.resize(bytes.len().max(head_bytes), 0);
        }
        bytes
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packet, key, compares, twist, .. } = self;
        let Packet { opcode, extras, value, cas, .. } = packet;
        let shown = value[..value.len().min(40)].escape_ascii();
        write!(f, "  {opcode:#04x} key {key:?} extras {extras:?} cas {cas} {compares:?} twist {twist:?} ")?;
        write!(f, "{} bytes {shown}", value.len())
    }
}

/// A key with bytes that no line can have, and one of the greatest length, among others.
fn key_bytes(prefix: &str, key: u8) -> Vec<u8> {
    match key {
        0 => format!("{prefix}\r\n \u{0}").into_bytes(),
        1 => format!("{prefix:k<250}").into_bytes(),
        key => format!("{prefix}{key}").into_bytes(),
    }
}

pub(crate) fn sequence(seed: u64) -> Vec<Request> {
    let mut random = seeded(seed);
    let length = random.random_range(5..80);
    let mut sequence: Vec<Request> = (0..length).map(|_| any(&mut random)).collect();
    match random.random_range(0..10) {
        0 => sequence.push(closing(Packet::new(*[0x07, 0x17].choose(&mut random).unwrap()), None)),
        1..6 => sequence.push(broken(&mut random)),
        _ => {}
    }
    sequence
}

fn plain(packet: Packet, key: Option<u8>) -> Request {
    Request { packet, key, compares: None, twist: None, closes: false }
}

fn closing(packet: Packet, key: Option<u8>) -> Request {
    Request { closes: true, ..plain(packet, key) }
}

fn any(random: &mut StdRng) -> Request {
    let key = random.random_range(0..KEYS);
    let mut pick = |opcodes: &[u8]| *opcodes.choose(random).unwrap();
    let kind = pick(&[0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8]);
    let packet = match kind {
        0 => Packet::new(pick(&[0x00, 0x09, 0x0c, 0x0d])),
        1 => {
            let opcode = pick(&[0x01, 0x01, 0x02, 0x03, 0x11, 0x12, 0x13]);
            let expiry = expiry(random);
            Packet::store(opcode, "", value(random), random.random(), expiry)
        }
        2 => {
            Packet { value: value(random), ..Packet::new(*[0x0e, 0x0f, 0x19, 0x1a].choose(random).unwrap()) }
        }
        3 => Packet::new(pick(&[0x04, 0x14])),
        4 => {
            let opcode = pick(&[0x05, 0x06, 0x15, 0x16]);
            let delta = *[0, 1, 7, 1 << 40, u64::MAX].choose(random).unwrap();
            let expiry = *[0, 0, 1000, u32::MAX, u32::MAX].choose(random).unwrap();
            Packet::count(opcode, "", delta, random.random_range(0..200), expiry)
        }
        5 => Packet::touch(0x1c, "", expiry(random)),
        6 => Packet::touch(*[0x1d, 0x1e, 0x23, 0x24].choose(random).unwrap(), "", expiry(random)),
        7 => return plain(Packet::new(pick(&[0x0a, 0x0b, 0x20, 0x1f, 0x30, 0xff])), None),
        _ => return other(random),
    };
    let compares = match random.random_range(0..10) {
        0 => Some(0),
        1 => Some(1),
        _ => None,
    };
    Request { compares, ..plain(packet, Some(key)) }
}

fn other(random: &mut StdRng) -> Request {
    let packet = match random.random_range(0..8) {
        0 => Packet::new(0x08),
        1 => Packet { extras: vec![0; 4], ..Packet::new(0x18) },
        2 => Packet { value: b"\0user\0secret".to_vec(), ..Packet::of(0x21, "PLAIN") },
        3 => Packet { value: b"more".to_vec(), ..Packet::of(0x22, "PLAIN") },
        4 => Packet::of(0x10, "detail off"),
        5 => Packet::of(0x10, "nonsense"),
        6 => Packet::of(0x10, "detail perhaps"),
        _ => Packet::new(0x0a),
    };
    plain(packet, None)
}

fn expiry(random: &mut StdRng) -> u32 {
    *[0, 0, 0, 1000, 3_000_000, 2_000_000_000, u32::MAX].choose(random).unwrap()
}

fn value(random: &mut StdRng) -> Vec<u8> {
    let bytes = match random.random_range(0..12) {
        0..5 => return random.random_range(0..1000_u32).to_string().into_bytes(),
        5 => return b"18446744073709551615".to_vec(),
        6 => 0,
        7 => random.random_range(3000..6000),
        8 => random.random_range(20_000..300_000),
        9 if random.random_ratio(1, 4) => 1_500_000,
        _ => random.random_range(1..300),
    };
    (0..bytes).map(|at| b'a' + (at % 23) as u8).collect()
}

/// A packet whose parts do not fit, or that is none.
fn broken(random: &mut StdRng) -> Request {
    let packet = any(random);
    let twisted = |twist| Request { twist: Some(twist), closes: true, ..plain(Packet::new(0), Some(2)) };
    match random.random_range(0..9) {
        0 => twisted((0, random.random_range(0..0x80))),
        // Longer ones than memcached's buffer end without an answer.
        1 => twisted((2, random.random_range(1..32))),
        2 => twisted((4, random.random_range(1..=u8::MAX))),
        3 => closing(Packet { extras: vec![1, 2, 3], ..packet.packet }, Some(2)),
        4 => closing(Packet::of(0x01, "no extras"), None),
        5 => closing(Packet { extras: vec![0; 8], ..Packet::new(0x01) }, None),
        6 => closing(Packet::of(*[0x0a, 0x0b, 0x07, 0x08, 0x20].choose(random).unwrap(), "key"), None),
        7 => closing(Packet::of(0x00, [b'k'; 251]), None),
        _ => closing(Packet { value: b"a value".to_vec(), ..Packet::new(0x04) }, Some(2)),
    }
}

/// The status of a count of what is no number.
const NON_NUMERIC: u16 = 6;

/// Two servers, and the change to the replies of the second.
pub(crate) struct Packets {
    servers: [SocketAddr; 2],
    alter: Alteration,
    excuses: Excuses,
}

/// The replies to one packet: a quiet one may have none.
type Answers = Vec<Answer>;

impl Packets {
    pub(crate) fn new(left: &Server, right: &Server, alter: Alteration) -> Self {
        Self { servers: [left.address(), right.address()], alter, excuses: Excuses::default() }
    }

    /// Sends `sequence` to both, split by `seed`, on new connections and with new keys.
    ///
    /// # Errors
    /// The first difference, in words.
    pub(crate) fn run(&mut self, seed: u64, sequence: &[Request]) -> Result<(), String> {
        let prefix = format!("b{}_", self.excuses.begin());
        let [left, mut right] = self.servers.map(|server| exchange(server, &prefix, seed, sequence));
        right.iter_mut().flatten().for_each(self.alter);
        let mut uniques = [HashMap::new(), HashMap::new()];
        for (at, request) in sequence.iter().enumerate() {
            let sides = [left.get(at), right.get(at)];
            let [left, right] = [0, 1].map(|side| normal(sides[side], &mut uniques[side]));
            if left != right {
                let is_confused = left.iter().flatten().any(|answer| answer.status == NON_NUMERIC);
                if is_confused && self.excuses.accept(Excuse::Confused) {
                    return Ok(());
                }
                return Err(format!("{request}\n{}\nagainst\n{}", shown(&left), shown(&right)));
            }
        }
        Ok(())
    }
}

fn shown(answers: &Option<Answers>) -> String {
    format!("{answers:?}").chars().take(1000).collect()
}

/// The replies without what is private to a server.
fn normal(answers: Option<&Answers>, uniques: &mut HashMap<u64, u64>) -> Option<Answers> {
    let mut answers = answers?.clone();
    for answer in &mut answers {
        if answer.cas != 0 {
            let next = uniques.len() as u64 + 1;
            answer.cas = *uniques.entry(answer.cas).or_insert(next);
        }
        if answer.opcode == 0x0b && answer.status == 0 {
            answer.value.clear();
        }
    }
    Some(answers)
}

/// The replies to each request; fewer if the connection ends.
fn exchange(server: SocketAddr, prefix: &str, seed: u64, sequence: &[Request]) -> Vec<Answers> {
    let mut random = seeded(seed);
    let mut client = PacketClient::connect(server).unwrap_or_else(|error| panic!("{server}: {error}"));
    let (mut answers, mut bytes) = (vec![Vec::new(); sequence.len()], Vec::new());
    for (at, request) in sequence.iter().enumerate() {
        let cas = if request.begins_batch() {
            // All that comes before has its effect, and its replies are read.
            send_in_pieces(&mut client, &bytes, &mut random);
            bytes.clear();
            cas_of(&mut client, &key_bytes(prefix, request.key.unwrap_or(0)), &mut answers)
        } else {
            0
        };
        bytes.extend(request.bytes(prefix, (at as u32, cas)));
    }
    let closes = sequence.last().is_some_and(|last| last.closes);
    if !closes {
        bytes.extend(Packet { opaque: u32::MAX, ..Packet::new(0x0a) }.bytes());
    }
    send_in_pieces(&mut client, &bytes, &mut random);
    while let Some(answer) =
        client.answer().unwrap_or_else(|error| panic!("{server}: {error} after {sequence:?}"))
    {
        if answer.opaque == u32::MAX {
            return answers;
        }
        answers[answer.opaque as usize].push(answer);
    }
    assert!(closes, "the connection has ended");
    answers
}

fn send_in_pieces(client: &mut PacketClient, mut bytes: &[u8], random: &mut StdRng) {
    let longest = *[7, 100, 100_000, usize::MAX].choose(random).unwrap();
    // Many tiny writes of a long value would only take time.
    let longest = longest.max(bytes.len() / 200);
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(random.random_range(1..=longest.min(bytes.len())));
        // The replies show if the server has closed the connection.
        if client.send(piece).is_err() {
            return;
        }
        bytes = rest;
    }
}

/// The CAS unique of a key; if there is no such item, a value that no item has. Replies to earlier requests are kept.
fn cas_of(client: &mut PacketClient, key: &[u8], answers: &mut [Answers]) -> u64 {
    let ends = [Packet::of(0x00, key), Packet::new(0x0a)];
    for packet in ends {
        client.send(Packet { opaque: u32::MAX, ..packet }.bytes()).unwrap();
    }
    let mut cas = 0;
    loop {
        let answer = client.answer().unwrap().expect("the connection is open");
        match (answer.opaque, answer.opcode) {
            (u32::MAX, 0x0a) => return cas,
            (u32::MAX, _) => cas = if answer.status == 0 { answer.cas } else { u64::from(u32::MAX) },
            (opaque, _) => answers[opaque as usize].push(answer),
        }
    }
}
