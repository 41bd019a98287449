//! A memcached client's requests, and the replies that must come.

use std::{collections::HashMap, sync::Mutex};

use rand::{RngExt, rngs::StdRng};

use crate::{
    dialogue::Setting,
    items::{Item, Items, Sizes},
    value::{Piece, length_of},
};

/// Keys that all clients read and write.
const SHARED_KEYS: u32 = 3;
const LINE_KEYS_MAX: usize = 6;

/// CAS uniques that a client has read, by key, with the write they belong to.
pub(crate) type Uniques = Mutex<HashMap<String, (u64, u64)>>;

#[derive(Debug)]
pub(crate) enum Part {
    /// Exactly these bytes.
    Text(String),
    Value(Vec<Piece>),
    /// A CAS unique, to be kept with the write it belongs to.
    Unique {
        key: String,
        version: u64,
    },
}

/// A call on a key that other clients write too.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SharedCall {
    Get,
    Set(u64),
    Delete,
    Cas { expected: u64, new: u64 },
}

/// The reply that must come for a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Exactly(Vec<Part>),
    /// Any reply that the calls of other clients explain.
    Shared {
        key: u32,
        called: u64,
        call: SharedCall,
    },
}

/// A request with a reply.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its line.
    pub(crate) request: String,
    pub(crate) reply: Reply,
}

/// Requests sent at once.
#[derive(Default)]
pub(crate) struct Burst {
    pub(crate) bytes: Vec<u8>,
    pub(crate) steps: Vec<Step>,
}

/// One client's requests, and their effects on its keys.
pub(crate) struct Script<'a> {
    name: u32,
    random: StdRng,
    items: Items,
    /// The client's number, once it exists.
    number: Option<u64>,
    uniques: &'a Uniques,
    setting: Setting<'a>,
    tokens: u64,
    /// True if it may write shared keys.
    shares: bool,
}

impl<'a> Script<'a> {
    /// The kinds of requests; each is as likely as its number of entries.
    const KINDS: [fn(&mut Self, &mut Burst); 26] = [
        Self::get,
        Self::get,
        Self::get,
        Self::get_many,
        Self::get_many,
        Self::store,
        Self::store,
        Self::store,
        Self::store,
        Self::cas,
        Self::cas,
        Self::join,
        Self::join,
        Self::delete,
        Self::touch,
        Self::count,
        Self::meta_get,
        Self::meta_get,
        Self::meta_store,
        Self::meta_store,
        Self::meta_delete,
        Self::meta_count,
        Self::refused,
        Self::shared,
        Self::shared,
        Self::shared,
    ];

    pub(crate) fn new(name: u32, random: StdRng, uniques: &'a Uniques, setting: Setting<'a>) -> Self {
        Self {
            name,
            random,
            items: Items::new(name, setting.shape),
            number: None,
            uniques,
            setting,
            tokens: 0,
            shares: true,
        }
    }

    /// The same script without writes that other clients see.
    pub(crate) fn aside(self) -> Self {
        Self { shares: false, ..self }
    }

    /// The first requests: stores of all keys, where there is to be more than memory holds.
    pub(crate) fn filling(&mut self) -> Vec<Burst> {
        let filled = self.items.shape.filled();
        let fill = |keys: std::ops::Range<usize>| {
            let mut burst = Burst::default();
            for key in keys {
                let piece = self.items.first_piece(key, &mut self.random);
                self.items.put(key, piece);
                let request = format!("set {} 0 0 {}", self.key_name(key), piece.bytes);
                burst.say(&request, "STORED\r\n");
                burst.value(piece);
            }
            burst
        };
        filled.map(fill).collect()
    }

    pub(crate) fn burst(&mut self) -> Burst {
        self.items.sizes = Sizes::draw(&mut self.random, self.setting.progress.tide());
        let mut burst = Burst::default();
        for _ in 0..self.random.random_range(1..=self.items.sizes.requests_max()) {
            let kind = Self::KINDS[self.random.random_range(0..Self::KINDS.len())];
            kind(self, &mut burst);
        }
        // A request that always has a reply, so that the end of the burst is seen.
        burst.say("mn", "MN\r\n");
        burst
    }

    pub(crate) fn goodbye() -> Burst {
        let mut burst = Burst::default();
        burst.say("mn", "MN\r\n");
        burst.line("quit");
        burst
    }

    fn draw_key(&mut self) -> (usize, String) {
        let key = self.items.key(&mut self.random);
        (key, self.key_name(key))
    }

    fn key_name(&self, key: usize) -> String {
        format!("own-{}-{key}", self.name)
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_ratio(1, count)
    }

    fn token(&mut self) -> String {
        self.tokens += 1;
        format!("O{}-{}", self.name, self.tokens)
    }

    fn get(&mut self, burst: &mut Burst) {
        let (key, name) = self.draw_key();
        self.read(burst, &[(key, name)]);
    }

    fn get_many(&mut self, burst: &mut Burst) {
        let count = self.random.random_range(2..=LINE_KEYS_MAX);
        let keys: Vec<_> = (0..count).map(|_| self.draw_key()).collect();
        self.read(burst, &keys);
    }

    fn read(&mut self, burst: &mut Burst, keys: &[(usize, String)]) {
        let (command, with_unique) = [("get", false), ("gets", true), ("gat 0", false), ("gats 0", true)]
            [self.random.random_range(0..4)];
        let names: Vec<&str> = keys.iter().map(|(_, name)| name.as_str()).collect();
        let request = format!("{command} {}", names.join(" "));
        let found = keys.iter().filter_map(|(key, name)| Some((self.items.get(*key)?, name)));
        let mut parts: Vec<Part> =
            found.flat_map(|(item, name)| value_parts(item, name, with_unique)).collect();
        parts.push(Part::Text("END\r\n".into()));
        burst.ask(request, parts);
    }

    fn store(&mut self, burst: &mut Burst) {
        let ((key, name), piece) = (self.draw_key(), self.items.piece(&mut self.random));
        let (command, wants) = [("set", None), ("set", None), ("add", Some(false)), ("replace", Some(true))]
            [self.random.random_range(0..4)];
        let is_stored = wants.is_none_or(|wanted| wanted == self.items.get(key).is_some());
        if is_stored {
            self.items.put(key, piece);
        }
        self.say_store(burst, command, &name, piece, if is_stored { "STORED\r\n" } else { "NOT_STORED\r\n" });
    }

    fn join(&mut self, burst: &mut Burst) {
        let ((key, name), piece) = (self.draw_key(), self.items.piece(&mut self.random));
        if !self.items.has_room(key, piece.bytes) {
            return;
        }
        let append = self.one_in(2);
        let is_stored = self.items.get(key).is_some();
        self.items.join(key, piece, append);
        let command = if append { "append" } else { "prepend" };
        self.say_store(burst, command, &name, piece, if is_stored { "STORED\r\n" } else { "NOT_STORED\r\n" });
    }

    /// A store; one in four asks for no reply.
    fn say_store(&mut self, burst: &mut Burst, command: &str, name: &str, piece: Piece, reply: &str) {
        let request = format!("{command} {name} 0 0 {}", piece.bytes);
        if self.one_in(4) {
            burst.line(&format!("{request} noreply"));
        } else {
            burst.say(&request, reply);
        }
        burst.value(piece);
    }

    /// A CAS store with a unique that was read earlier.
    fn cas(&mut self, burst: &mut Burst) {
        let ((key, name), piece) = (self.draw_key(), self.items.piece(&mut self.random));
        let Some((seen, unique)) = known(self.uniques, &name) else { return self.get(burst) };
        let reply = match self.items.get(key) {
            None => "NOT_FOUND\r\n",
            Some(item) if item.version == seen => "STORED\r\n",
            Some(_) => "EXISTS\r\n",
        };
        if reply == "STORED\r\n" {
            self.items.put(key, piece);
        }
        burst.say(&format!("cas {name} 0 0 {} {unique}", piece.bytes), reply);
        burst.value(piece);
    }

    fn delete(&mut self, burst: &mut Burst) {
        let (key, name) = self.draw_key();
        let reply = if self.items.get(key).is_some() { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
        self.items.delete(key);
        if self.one_in(3) {
            burst.line(&format!("delete {name} noreply"));
        } else {
            burst.say(&format!("delete {name}"), reply);
        }
    }

    fn touch(&mut self, burst: &mut Burst) {
        let (key, name) = self.draw_key();
        let reply = if self.items.get(key).is_some() { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" };
        burst.say(&format!("touch {name} 0"), reply);
    }

    fn count(&mut self, burst: &mut Burst) {
        let by = self.random.random_range(0..1000);
        self.number = self.number.map(|number| number + by);
        let reply = self.number.map_or("NOT_FOUND\r\n".into(), |number| format!("{number}\r\n"));
        burst.say(&format!("incr number-{} {by}", self.name), &reply);
    }

    fn meta_count(&mut self, burst: &mut Burst) {
        let token = self.token();
        let number = self.number.map_or(100, |number| number + 1);
        self.number = Some(number);
        let text = number.to_string();
        let reply = format!("VA {} {token}\r\n{text}\r\n", text.len());
        burst.say(&format!("ma number-{} N0 J100 {token} v", self.name), &reply);
    }

    fn meta_get(&mut self, burst: &mut Burst) {
        let ((key, name), token, quiet) = (self.draw_key(), self.token(), self.one_in(3));
        let request = format!("mg {name} v {token} k{}", if quiet { " q" } else { "" });
        match self.items.get(key) {
            Some(item) => {
                let head = format!("VA {} {token} k{name}\r\n", length_of(&item.pieces));
                let end = Part::Text("\r\n".into());
                burst.ask(request, vec![Part::Text(head), Part::Value(item.pieces.clone()), end]);
            }
            None if quiet => burst.line(&request),
            None => burst.say(&request, &format!("EN {token} k{name}\r\n")),
        }
    }

    fn meta_store(&mut self, burst: &mut Burst) {
        let ((key, name), token) = (self.draw_key(), self.token());
        let piece = self.items.piece(&mut self.random);
        self.items.put(key, piece);
        let request = format!("ms {name} {} {token}", piece.bytes);
        if self.one_in(3) {
            burst.line(&format!("{request} q"));
        } else {
            burst.say(&request, &format!("HD {token}\r\n"));
        }
        burst.value(piece);
    }

    fn meta_delete(&mut self, burst: &mut Burst) {
        let ((key, name), token) = (self.draw_key(), self.token());
        let was_there = self.items.get(key).is_some();
        self.items.delete(key);
        if was_there && self.one_in(2) {
            burst.line(&format!("md {name} {token} q"));
        } else {
            burst.say(
                &format!("md {name} {token}"),
                &format!("{} {token}\r\n", if was_there { "HD" } else { "NF" }),
            );
        }
    }

    /// A request that is refused with a line and whose value is discarded.
    fn refused(&mut self, burst: &mut Burst) {
        if !self.one_in(8) {
            return burst.say("nonsense", "ERROR\r\n");
        }
        let (key, name) = self.draw_key();
        // As in memcached: a client that cannot store the new value must not find the old one.
        self.items.delete(key);
        let piece = Piece { write: self.items.next_write(), bytes: self.items.shape.value_bytes_max + 1 };
        let reply = "SERVER_ERROR object too large for cache\r\n";
        burst.say(&format!("set {name} 0 0 {}", piece.bytes), reply);
        burst.value(piece);
    }

    /// A call on a shared key.
    fn shared(&mut self, burst: &mut Burst) {
        let key = self.random.random_range(0..SHARED_KEYS);
        let name = format!("shared-{key}");
        let mut piece = self.items.piece(&mut self.random);
        piece.bytes = piece.bytes.max(8);
        let kind = self.random.random_range(0..8);
        let seen = known(self.uniques, &name);
        let (call, request) = match (kind, seen) {
            _ if !self.shares => (SharedCall::Get, format!("gets {name}")),
            (0..3, _) => (SharedCall::Get, format!("gets {name}")),
            (3, _) => (SharedCall::Delete, format!("delete {name}")),
            (4..6, Some((expected, unique))) => (
                SharedCall::Cas { expected, new: piece.write },
                format!("cas {name} 0 0 {} {unique}", piece.bytes),
            ),
            _ => (SharedCall::Set(piece.write), format!("set {name} 0 0 {}", piece.bytes)),
        };
        burst.line(&request);
        if matches!(call, SharedCall::Set(_) | SharedCall::Cas { .. }) {
            burst.value(piece);
        }
        let reply = Reply::Shared { key, called: self.setting.ticks.next(), call };
        burst.steps.push(Step { request, reply });
    }
}

impl Burst {
    /// Adds a request with a reply of these parts.
    fn ask(&mut self, request: String, parts: Vec<Part>) {
        self.line(&request);
        self.steps.push(Step { request, reply: Reply::Exactly(parts) });
    }

    fn say(&mut self, request: &str, reply: &str) {
        self.ask(request.to_owned(), vec![Part::Text(reply.to_owned())]);
    }

    /// Adds a request, or the beginning of one, that has no reply.
    fn line(&mut self, request: &str) {
        self.bytes.extend_from_slice(request.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds the value of a request whose line was the last.
    fn value(&mut self, piece: Piece) {
        piece.append_to(&mut self.bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// The last known CAS unique of a key: its write and the unique.
fn known(uniques: &Uniques, name: &str) -> Option<(u64, u64)> {
    uniques.lock().unwrap().get(name).copied()
}

/// The item's part of the reply to a `get` or `gets`.
fn value_parts(item: &Item, name: &str, with_unique: bool) -> Vec<Part> {
    let bytes = length_of(&item.pieces);
    let text = |text: &str| Part::Text(text.to_owned());
    let mut parts = vec![Part::Text(format!("VALUE {name} 0 {bytes}{}", if with_unique { " " } else { "" }))];
    if with_unique {
        parts.push(Part::Unique { key: name.to_owned(), version: item.version });
    }
    parts.extend([text("\r\n"), Part::Value(item.pieces.clone()), text("\r\n")]);
    parts
}
