//! A memcached connection: one thread sends the script's requests, another checks each byte of the replies.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use minos_base::seeded_stream;
use minos_testkit::history::{Call, CasOutcome, Event, Ticks};
use rand::{RngExt, rngs::StdRng};

use crate::{
    PATIENCE,
    items::Shape,
    progress::Progress,
    script::{Burst, Part, Reply, Script, SharedCall, Step, Uniques},
    value::{Piece, bytes_of},
};

/// Bursts that may be sent before an earlier one is answered.
const BURSTS_AHEAD: usize = 3;
/// Bytes of a wrong reply that are shown.
const SHOWN_BYTES: usize = 80;
/// Steps of other clients for which a slow reader waits before it reads on.
const LATE_STEPS: u64 = 150;
/// Time for which a client that is about to break its connection tries to send.
const BREAKER_PATIENCE: Duration = Duration::from_millis(20);
/// Streams of random numbers. The script uses the stream of the client's own name.
const CUTS_STREAM: u64 = 1000;
const WAITS_STREAM: u64 = 2000;

#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub(crate) server: SocketAddr,
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) ticks: &'a Ticks,
    pub(crate) progress: &'a Progress,
}

/// Runs a dialogue of `bursts` bursts; returns the calls on shared keys. A slow client often leaves replies
/// unread for a while.
///
/// # Panics
/// If a reply is wrong, comes twice, or does not come.
pub(crate) fn hold(setting: Setting<'_>, name: u32, bursts: usize, is_slow: bool) -> Vec<Event> {
    let _counted = setting.progress.take_part();
    let stream = TcpStream::connect(setting.server).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let uniques = Uniques::default();
    thread::scope(|scope| {
        // Created here, so that the sender does not wait for a listener that has failed.
        let (sender, receiver) = sync_channel(BURSTS_AHEAD);
        let (writing, uniques) = (stream.try_clone().unwrap(), &uniques);
        scope.spawn(move || {
            let random = |stream| seeded_stream(setting.seed, u64::from(name) + stream);
            let script = Script::new(name, random(0), uniques, setting);
            say_all(writing, script, random(CUTS_STREAM), bursts, &sender);
        });
        let random = seeded_stream(setting.seed, u64::from(name) + WAITS_STREAM);
        let mut listener = Listener::new(stream, name, uniques, setting, random);
        listener.hear_all(&receiver, is_slow);
        std::mem::take(&mut listener.events)
    })
}

/// Sends all bursts, split at random places.
fn say_all(
    mut stream: TcpStream,
    mut script: Script<'_>,
    mut random: StdRng,
    bursts: usize,
    heard_of: &SyncSender<Vec<Step>>,
) {
    let filling = script.filling();
    let usual = (0..=bursts).map(|number| if number < bursts { script.burst() } else { Script::goodbye() });
    for burst in filling.into_iter().chain(usual) {
        // The expected replies are announced before any reply can come. After a failure there is no listener
        // left.
        if heard_of.send(burst.steps).is_err() {
            return;
        }
        let cut = random.random_range(0..=burst.bytes.len());
        for part in [&burst.bytes[..cut], &burst.bytes[cut..]] {
            if stream.write_all(part).is_err() {
                // The listener reports the missing replies.
                return;
            }
            thread::yield_now();
        }
    }
}

/// Sends the beginning of some bursts, may read a little, and breaks the connection.
pub(crate) fn break_off(setting: Setting<'_>, name: u32) {
    let mut random = seeded_stream(setting.seed, u64::from(name) + CUTS_STREAM);
    let uniques = Uniques::default();
    let random_words = seeded_stream(setting.seed, u64::from(name));
    let mut script = Script::new(name, random_words, &uniques, setting).aside();
    let mut stream = TcpStream::connect(setting.server).unwrap();
    stream.set_write_timeout(Some(BREAKER_PATIENCE)).unwrap();
    stream.set_read_timeout(Some(BREAKER_PATIENCE)).unwrap();
    let Burst { mut bytes, .. } = script.burst();
    bytes.extend(script.burst().bytes);
    let cut = random.random_range(0..=bytes.len());
    // It may get any distance.
    let _ = stream.write_all(&bytes[..cut]);
    let mut some = vec![0; random.random_range(0..100_000)];
    let _ = stream.read(&mut some);
}

struct Listener<'a> {
    reader: BufReader<TcpStream>,
    name: u32,
    random: StdRng,
    uniques: &'a Uniques,
    setting: Setting<'a>,
    heard: usize,
    events: Vec<Event>,
}

/// A listener that failed must not keep its sender waiting.
impl Drop for Listener<'_> {
    fn drop(&mut self) {
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }
}

impl<'a> Listener<'a> {
    fn new(stream: TcpStream, name: u32, uniques: &'a Uniques, setting: Setting<'a>, random: StdRng) -> Self {
        let reader = BufReader::with_capacity(64 << 10, stream);
        Self { reader, name, random, uniques, setting, heard: 0, events: Vec::new() }
    }

    fn hear_all(&mut self, steps: &Receiver<Vec<Step>>, is_slow: bool) {
        for burst in steps {
            if is_slow && self.random.random_ratio(1, 4) {
                self.setting.progress.await_others(LATE_STEPS);
            }
            for step in burst {
                if let Err(wrong) = self.hear(&step) {
                    panic!(
                        "connection {}, reply {} to {:?}: {wrong}; expected {:?}",
                        self.name, self.heard, step.request, step.reply
                    );
                }
                self.heard += 1;
                self.setting.progress.step();
            }
        }
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "connection {}: a reply too many: {}", self.name, excerpt(&rest));
    }

    fn hear(&mut self, step: &Step) -> Result<(), String> {
        match &step.reply {
            Reply::Exactly(parts) => parts.iter().try_for_each(|part| match part {
                Part::Text(text) => self.expect(text.as_bytes()),
                Part::Value(pieces) => self.expect(&bytes_of(pieces)),
                Part::Unique { key, version } => self.learn(key, *version),
            }),
            &Reply::Shared { key, called, call } => {
                let call = self.hear_shared(key, call)?;
                let returned = self.setting.ticks.next();
                self.events.push(Event { client: self.name, key, called, returned, call });
                Ok(())
            }
        }
    }

    /// Reads exactly these bytes; stops at the first difference.
    fn expect(&mut self, mut expected: &[u8]) -> Result<(), String> {
        while !expected.is_empty() {
            let come = self.reader.fill_buf().map_err(|error| error.to_string())?;
            if come.is_empty() {
                return Err("the server closed the connection".into());
            }
            let length = come.len().min(expected.len());
            if come[..length] != expected[..length] {
                let at = come.iter().zip(expected).take_while(|(one, other)| one == other).count();
                return Err(format!("{} came instead of {}", excerpt(&come[at..]), excerpt(&expected[at..])));
            }
            expected = &expected[length..];
            self.reader.consume(length);
        }
        Ok(())
    }

    fn learn(&mut self, key: &str, version: u64) -> Result<(), String> {
        let mut unique = 0_u64;
        loop {
            match self.reader.fill_buf().map_err(|error| error.to_string())?.first() {
                Some(&digit @ b'0'..=b'9') => unique = unique * 10 + u64::from(digit - b'0'),
                Some(_) => break,
                None => return Err("the server closed the connection".into()),
            }
            self.reader.consume(1);
        }
        self.uniques.lock().unwrap().insert(key.to_owned(), (version, unique));
        Ok(())
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        self.reader.by_ref().take(2048).read_until(b'\n', &mut line).map_err(|error| error.to_string())?;
        let text = line.strip_suffix(b"\r\n").and_then(|line| String::from_utf8(line.to_vec()).ok());
        text.ok_or_else(|| format!("{} came", excerpt(&line)))
    }

    /// Reads the reply to a call on a shared key.
    fn hear_shared(&mut self, key: u32, call: SharedCall) -> Result<Call, String> {
        let line = self.line()?;
        match (call, line.as_str()) {
            (SharedCall::Get, "END") => Ok(Call::Get(None)),
            (SharedCall::Get, found) => {
                self.hear_shared_value(key, found).map(|write| Call::Get(Some(write)))
            }
            (SharedCall::Set(new), "STORED") => Ok(Call::Set(new)),
            (SharedCall::Delete, "DELETED") => Ok(Call::Delete(true)),
            (SharedCall::Delete, "NOT_FOUND") => Ok(Call::Delete(false)),
            (SharedCall::Cas { expected, new }, outcome) => {
                let outcome = match outcome {
                    "STORED" => CasOutcome::Stored,
                    "EXISTS" => CasOutcome::Exists,
                    "NOT_FOUND" => CasOutcome::NotFound,
                    other => return Err(format!("{other:?} came")),
                };
                Ok(Call::Cas { expected, new, outcome })
            }
            (_, other) => Err(format!("{other:?} came")),
        }
    }

    /// Reads the value behind `line`; returns the write that wrote it.
    fn hear_shared_value(&mut self, key: u32, line: &str) -> Result<u64, String> {
        let name = format!("shared-{key}");
        let wrong = || format!("{line:?} came");
        let rest = line.strip_prefix(&format!("VALUE {name} 0 ")).ok_or_else(wrong)?;
        let (bytes, unique) = rest.split_once(' ').ok_or_else(wrong)?;
        let (bytes, unique): (usize, u64) = bytes.parse().ok().zip(unique.parse().ok()).ok_or_else(wrong)?;
        let mut value = vec![0; bytes];
        self.reader.read_exact(&mut value).map_err(|error| error.to_string())?;
        let piece = Piece::of(&value).ok_or("a value that nobody wrote as it is")?;
        self.uniques.lock().unwrap().insert(name, (piece.write, unique));
        self.expect(b"\r\nEND\r\n")?;
        Ok(piece.write)
    }
}

fn excerpt(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii())
}
