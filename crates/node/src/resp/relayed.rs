//! Commands of Redis' clients that another node of the rack has sent here.
//!
//! A frame on a link between nodes is a command, or a transaction with the keys that its client watches. The reply is a
//! value of memcached's protocol, so that a link finds its end as that of any other.
//!
//! ```text
//! mark u8 = 1 | version u8 | kind u8 | bytes of the body u32 | body
//! body of a transaction: watched keys u32 | each: bytes u32, key, has an item u8, CAS unique u64 | commands
//! ```
//!
//! Numbers are little-endian, commands arrays of bulk strings.

use std::collections::{BTreeMap, HashMap};

use minos_base::{SizeClass, limits::BURST_MAX};
use minos_engine::{Mode, Pinned};
use minos_proto::resp::{Flag, Id, Parsed, Version, compose, parse};
use minos_sched::WorkerId;

use super::{
    call::{Call, Interrupt, read},
    elsewhere::ON_THE_MOVE,
    execute::{Outcome, all_keys, keys_left, run},
    scratch,
    serve::{CHECKED, request},
    session::{RespSession, Unique, Watched},
};
use crate::{
    ops::{Context, Fetch, Next, Placement, Work},
    rack::{END_OF_FORWARD, Holes, Intent, NOT_OWNER},
};

/// The byte that begins a frame; no command of memcached's protocol begins with it.
pub(crate) const MARK: u8 = 1;
const HEAD_BYTES: usize = 7;
/// The line ends behind a value that is sent from its item: that of the bulk string, and that of the value around it.
const LINE_ENDS: &[u8] = b"\r\n\r\n";
const MALFORMED: &[u8] = b"SERVER_ERROR a node of the rack has sent no command\r\n";
const TOO_LONG: &[u8] = b"SERVER_ERROR the reply is too long for a node of the rack\r\n";
/// Keys of a command for many that are served before other connections are.
pub(super) const PART_KEYS: usize = 512;
/// Longest reply to a command, some of whose bytes stand around it.
const REPLY_BYTES_MAX: usize = minos_base::VALUE_BYTES_MAX as usize;

/// What a frame asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Command = 0,
    Transaction = 1,
}

/// Makes a frame with the body that `fill` appends.
pub(super) fn frame(version: Version, kind: Kind, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![MARK, version as u8, kind as u8, 0, 0, 0, 0];
    fill(&mut bytes);
    let body = (bytes.len() - HEAD_BYTES) as u32;
    bytes[3..HEAD_BYTES].copy_from_slice(&body.to_le_bytes());
    bytes
}

/// Appends a command of these words.
pub(super) fn array<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, bytes: &mut Vec<u8>) {
    compose::array(bytes, words.len());
    words.for_each(|word| compose::bulk(bytes, word));
}

/// Divides the frame of a command for many keys by their nodes. A node gets several if it has more than [`PART_KEYS`].
pub(super) fn divide(bytes: &[u8], node_of: &dyn Fn(&[u8]) -> u16) -> Vec<(u16, Vec<u8>)> {
    let whole = Frame::of(bytes).ok().and_then(|Frame { version, body, .. }| match parse(body, &CHECKED) {
        Parsed::Command(command, _) => Some((version, Call::of(command)?)),
        _ => None,
    });
    let Some((version, call)) = whole else { unreachable!("this node has made it") };
    let arguments: Vec<&[u8]> = call.command.arguments(1).collect();
    let step = usize::from(call.spec.keys.step.max(1));
    // The last value of a key holds, whichever part comes first.
    let has_values = step > 1;
    let last: HashMap<&[u8], usize> =
        arguments.chunks(step).enumerate().filter(|_| has_values).map(|(at, words)| (words[0], at)).collect();
    let mut of_nodes: BTreeMap<u16, Vec<&[u8]>> = BTreeMap::new();
    for (at, words) in arguments.chunks(step).enumerate() {
        if !has_values || last[words[0]] == at {
            of_nodes.entry(node_of(words[0])).or_default().extend(words);
        }
    }
    let frame_of = |words: &[&[u8]]| {
        let words: Vec<&[u8]> = std::iter::once(call.argument(0)).chain(words.iter().copied()).collect();
        frame(version, Kind::Command, |bytes| array(words.into_iter(), bytes))
    };
    let parts = of_nodes
        .iter()
        .flat_map(|(node, words)| words.chunks(step * PART_KEYS).map(|words| (*node, frame_of(words))));
    parts.collect()
}

/// Appends a key that a client watches.
pub(super) fn put_watched(key: &[u8], unique: Option<u64>, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.push(u8::from(unique.is_some()));
    bytes.extend_from_slice(&unique.unwrap_or(0).to_le_bytes());
}

/// How far a command has come that waits for flash.
pub(crate) struct Midway {
    session: RespSession,
    pub(super) reply: Vec<u8>,
}

/// Executes the frame at the front of `input`, from where it has paused; returns its bytes, none if it pauses. Each of its
/// keys is one of the requests left.
pub(crate) fn serve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    input: &[u8],
    (midway, has_changed): (&mut Option<Box<Midway>>, &mut bool),
    requests_left: &mut usize,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let Frame { version, kind, body } = match Frame::of(input) {
        Ok(frame) => frame,
        Err(wanted_bytes) => return (0, Next::NeedMore { wanted_bytes }),
    };
    let bytes = HEAD_BYTES + body.len();
    let mut command = midway.take().map_or_else(|| Midway::of(version), |midway| *midway);
    let answer = match kind {
        0 => command.answer(cx, body, requests_left),
        _ => transaction(cx, &mut command.session, body),
    };
    *has_changed |= command.session.has_changed;
    match answer {
        Err(fetch) => {
            *midway = Some(Box::new(command));
            (0, Next::Fetch(Box::new(along(cx, *fetch, &input[bytes..]))))
        }
        Ok(answer) => (bytes, answer.compose(tx)),
    }
}

/// A frame that has come.
struct Frame<'a> {
    version: Version,
    kind: u8,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the front of `input`.
    ///
    /// # Errors
    /// Bytes that are wanted before more is known of it.
    fn of(input: &'a [u8]) -> Result<Self, usize> {
        let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else { return Err(HEAD_BYTES) };
        let [_, version, kind, bytes @ ..] = *head;
        let bytes = u32::from_le_bytes(bytes) as usize;
        let body = rest.get(..bytes).ok_or(HEAD_BYTES + bytes)?;
        Ok(Self { version: if version == 0 { Version::Two } else { Version::Three }, kind, body })
    }

    /// The key of a GET.
    fn key_of_get(&self) -> Option<&'a [u8]> {
        let Parsed::Command(command, _) = parse(self.body, &CHECKED) else { return None };
        if command.name().eq_ignore_ascii_case(b"get") { command.argument(1) } else { None }
    }
}

/// The key of the GET that a frame is; `None` if it is something else.
#[cfg(any(test, feature = "ucx"))]
pub(crate) fn key_of_get(frame: &[u8]) -> Option<&[u8]> {
    Frame::of(frame).ok().filter(|it| frame[0] == MARK && it.kind == Kind::Command as u8)?.key_of_get()
}

/// The reply to that GET.
#[cfg(any(test, feature = "ucx"))]
pub(crate) fn reply_to_get(frame: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let version = Frame::of(frame).map_or(Version::Two, |frame| frame.version);
    let (mut reply, mut tx) = (Vec::new(), Vec::new());
    match value {
        Some(value) => compose::bulk(&mut reply, value),
        None => compose::null(&mut reply, version),
    }
    wrap(&reply, &mut tx);
    tx
}

/// Fetches the keys that the frames behind one read along with its own.
#[cold]
fn along<M: Mode, P>(cx: &Context<'_, M, P>, fetch: Fetch<M>, behind: &[u8]) -> Fetch<M> {
    fetch.with(cx, keys_of_gets(behind).map(|key| (cx.store.hash(key), key)))
}

/// The keys of the GETs among the frames at the front of `input`, as a link sends them.
fn keys_of_gets(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let frames = std::iter::from_fn(move || {
        input = input.strip_prefix(END_OF_FORWARD).unwrap_or(input);
        let frame = Frame::of(input).ok().filter(|_| input[0] == MARK)?;
        input = &input[HEAD_BYTES + frame.body.len()..];
        Some(frame)
    });
    frames.take(BURST_MAX).filter_map(|frame| frame.key_of_get())
}

/// The answer to a frame, or what it pauses for.
type Answered<M> = Result<Answer<M>, Box<Fetch<M>>>;

/// What is answered to a frame.
enum Answer<M: Mode> {
    /// A reply of Redis' protocol.
    Reply(Vec<u8>),
    /// One whose value is sent from its item.
    Value(Vec<u8>, Pinned<M>),
    /// A line of memcached's protocol.
    Refused(&'static [u8]),
}

impl<M: Mode> Answer<M> {
    fn compose(self, tx: &mut Vec<u8>) -> Next<M> {
        match self {
            Self::Reply(reply) if reply.len() > REPLY_BYTES_MAX => tx.extend_from_slice(TOO_LONG),
            Self::Reply(reply) => wrap(&reply, tx),
            Self::Value(head, item) => {
                let bytes = head.len() + item.value().len() + compose::LINE_END.len();
                tx.extend_from_slice(format!("VA {bytes}\r\n").as_bytes());
                tx.extend_from_slice(&head);
                return Next::Away(Work::send(item, LINE_ENDS));
            }
            Self::Refused(line) => tx.extend_from_slice(line),
        }
        Next::Continue
    }
}

/// Appends a reply of Redis' protocol as a value of memcached's.
fn wrap(reply: &[u8], tx: &mut Vec<u8>) {
    tx.extend_from_slice(format!("VA {}\r\n", reply.len()).as_bytes());
    tx.extend_from_slice(reply);
    tx.extend_from_slice(compose::LINE_END);
}

/// True if this node may do with these keys what a command does with them.
fn owns<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    mut keys: impl Iterator<Item = &'a [u8]>,
    intent: Intent,
) -> bool {
    let owns = cx.rack.is_none_or(|rack| keys.all(|key| rack.elsewhere(key, || intent).is_none()));
    if !owns {
        cx.rack.inspect(|rack| rack.counters.not_owner.count());
    }
    owns
}

impl Midway {
    /// A command that begins.
    pub(super) fn of(version: Version) -> Self {
        Self { session: RespSession::relayed(version), reply: Vec::new() }
    }

    fn answer<M: Mode, P: Placement>(
        &mut self,
        cx: &mut Context<'_, M, P>,
        body: &[u8],
        requests_left: &mut usize,
    ) -> Answered<M> {
        let Parsed::Command(command, _) = parse(body, &CHECKED) else {
            return Ok(Answer::Refused(MALFORMED));
        };
        let Some(call) = Call::of(command) else { return Ok(Answer::Refused(MALFORMED)) };
        if !call.spec.keys.is_single() {
            *requests_left = requests_left.saturating_sub(all_keys(&call).count());
        }
        let is_write = call.spec.flags.has(Flag::WRITE);
        let (done, intent) =
            (self.session.progress.done, if is_write { Intent::Change } else { Intent::Read });
        // Those that are done may have moved since.
        if !owns(cx, keys_left(&call, done), intent) {
            if done == 0 {
                return Ok(Answer::Refused(NOT_OWNER));
            }
            // For some of its keys it is done, and must not be done again.
            compose::error(&mut self.reply, ON_THE_MOVE.as_bytes());
            return Ok(self.replied());
        }
        if call.spec.id == Id::Watch {
            return watch(cx, &call, self.session.version);
        }
        if is_write {
            return self.execute(cx, body).map_or_else(|| Ok(self.replied()), Err);
        }
        let request = request(cx, command);
        match run(cx, &mut self.session, &request, &mut usize::MAX.clone(), &mut self.reply) {
            Outcome::Ended(Next::Away(Work::Send { item, .. })) => {
                Ok(Answer::Value(std::mem::take(&mut self.reply), item))
            }
            Outcome::Done | Outcome::Ended(_) => Ok(self.replied()),
            Outcome::Paused(Next::Fetch(fetch)) => Err(fetch),
            // Nothing that is sent here pauses for anything else.
            Outcome::Paused(_) => Ok(Answer::Refused(MALFORMED)),
        }
    }

    fn replied<M: Mode>(&mut self) -> Answer<M> {
        Answer::Reply(std::mem::take(&mut self.reply))
    }

    /// Executes a command here, whatever the size of its values, and makes the reply. It pauses for flash only.
    pub(super) fn execute<M: Mode, P: Placement>(
        &mut self,
        cx: &mut Context<'_, M, P>,
        body: &[u8],
    ) -> Option<Box<Fetch<M>>> {
        let mut placement = Whole(&mut *cx.placement);
        let mut inner = Context {
            store: cx.store,
            clock: cx.clock,
            now: cx.now,
            counters: cx.counters,
            placement: &mut placement,
            admin: cx.admin,
            prefixes: cx.prefixes,
            fetched: cx.fetched,
            rack: cx.rack,
            probe: cx.probe,
            holes: Holes::default(),
        };
        let Parsed::Command(command, _) = parse(body, &CHECKED) else { return None };
        let request = request(&inner, command);
        loop {
            match run(&mut inner, &mut self.session, &request, &mut usize::MAX.clone(), &mut self.reply) {
                // It pauses between steps, of which there are as many as it has keys.
                Outcome::Paused(Next::Yield) => {}
                Outcome::Paused(Next::Fetch(fetch)) => return Some(fetch),
                _ => return None,
            }
        }
    }
}

/// Answers with the CAS unique of the item of the key, of which there is one.
fn watch<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>, version: Version) -> Answered<M> {
    let key = call.argument(1);
    let mut reply = Vec::new();
    match read(cx, (cx.store.hash(key), key), |item| item.cas()) {
        Ok(Some(unique)) => compose::bulk(&mut reply, unique.to_string().as_bytes()),
        Ok(None) => compose::null(&mut reply, version),
        Err(interrupt) => return interrupted(*interrupt, reply),
    }
    Ok(Answer::Reply(reply))
}

/// The answer to what has no result.
fn interrupted<M: Mode>(interrupt: Interrupt<M>, mut reply: Vec<u8>) -> Answered<M> {
    match interrupt {
        Interrupt::Error(text) => compose::error(&mut reply, &text),
        Interrupt::Paused(Next::Fetch(fetch)) => return Err(fetch),
        _ => return Ok(Answer::Refused(MALFORMED)),
    }
    Ok(Answer::Reply(reply))
}

/// Counts values by their size, and serves all of them here.
struct Whole<'a>(&'a mut dyn Placement);

impl Placement for Whole<'_> {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.0.is_here(class);
        true
    }

    fn serves(&self, _class: SizeClass) -> bool {
        true
    }

    fn home(&self, _class: SizeClass) -> Option<WorkerId> {
        None
    }
}

fn transaction<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    body: &[u8],
) -> Answered<M> {
    let Some((watched, queued)) = read_watched(cx, body) else { return Ok(Answer::Refused(MALFORMED)) };
    let count = scratch::commands(queued).count();
    let keys = scratch::commands(queued).flat_map(|call| all_keys(&call));
    if !owns(cx, keys.chain(watched.iter().map(|watched| &*watched.key)), Intent::Change) {
        return Ok(Answer::Refused(NOT_OWNER));
    }
    let mut reply = Vec::new();
    match scratch::execute(cx, session, (queued, count), &watched, &mut reply) {
        Ok(scratch::Ended::Done) => session.has_changed = true,
        Ok(scratch::Ended::Changed) => compose::null_array(&mut reply, session.version),
        Err(interrupt) => return interrupted(*interrupt, reply),
    }
    Ok(Answer::Reply(reply))
}

/// The watched keys of a transaction, and its commands.
fn read_watched<'a, M: Mode, P>(
    cx: &Context<'_, M, P>,
    mut body: &'a [u8],
) -> Option<(Vec<Watched>, &'a [u8])> {
    let count = u32::from_le_bytes(take(&mut body)?);
    let mut watched = Vec::new();
    for _ in 0..count {
        let bytes = u32::from_le_bytes(take(&mut body)?) as usize;
        let (key, rest) = body.split_at_checked(bytes)?;
        body = rest;
        let [has_item] = take(&mut body)?;
        let unique = u64::from_le_bytes(take(&mut body)?);
        let unique = Unique::Known((has_item != 0).then_some(unique));
        watched.push(Watched { hash: cx.store.hash(key), key: key.into(), unique });
    }
    Some((watched, body))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*front)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::in_rack_of_two, *};

    #[test]
    fn a_command_is_divided_by_the_nodes_of_its_keys() {
        let frame_of = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            frame(Version::Three, Kind::Command, |bytes| array(words.into_iter(), bytes))
        };
        let node_of = |key: &[u8]| u16::from(key[0] - b'a');
        let parts = divide(&frame_of("MSET a 1 c 2 a 3 b c"), &node_of);
        // The parts may come in any order: the last value of a key is the only one.
        let expected = [(0, "MSET a 3"), (1, "MSET b c"), (2, "MSET c 2")];
        assert_eq!(parts, expected.map(|(node, line)| (node, frame_of(line))));
        let whole = frame_of("del b2 b1");
        assert_eq!(divide(&whole, &node_of), [(1, whole)]);
        let many =
            |keys| frame_of(&["TOUCH"].into_iter().chain(vec!["c"; keys]).collect::<Vec<_>>().join(" "));
        assert_eq!(divide(&many(PART_KEYS + 3), &node_of), [(2, many(PART_KEYS)), (2, many(3))]);
    }

    #[test]
    fn the_gets_behind_a_frame_are_found() {
        let link = |words: &[&str]| {
            let mut bytes = frame(Version::Two, Kind::Command, |bytes| {
                compose::array(bytes, words.len());
                words.iter().for_each(|word| compose::bulk(bytes, word.as_bytes()));
            });
            bytes.extend_from_slice(END_OF_FORWARD);
            bytes
        };
        let mut input = END_OF_FORWARD.to_vec();
        for words in [&["GET", "a"][..], &["DEL", "b"], &["get", "c"]] {
            input.extend(link(words));
        }
        assert_eq!(keys_of_gets(&input).collect::<Vec<_>>(), [b"a", b"c"]);
        // Others, and what has not come whole, end it.
        let end = input.len();
        input.extend(b"get d\r\n");
        input.extend(link(&["get", "e"]));
        assert_eq!(keys_of_gets(&input).count(), 2);
        assert_eq!(keys_of_gets(&input[..end - END_OF_FORWARD.len() - 1]).collect::<Vec<_>>(), [b"a"]);
    }

    #[test]
    fn a_command_that_has_begun_does_not_begin_at_another_node() {
        in_rack_of_two(|cx, _, [own, other]| {
            let mut answer = |key: &str, done| {
                let del = frame(Version::Two, Kind::Command, |bytes| {
                    compose::array(bytes, 2);
                    ["DEL", key].iter().for_each(|word| compose::bulk(bytes, word.as_bytes()));
                });
                let mut midway = Midway::of(Version::Two);
                midway.session.progress.done = done;
                let (mut midway, mut tx) = (Some(Box::new(midway)), Vec::new());
                let (used, _) = serve(cx, &del, (&mut midway, &mut false), &mut 64, &mut tx);
                assert_eq!((used, midway.is_some()), (del.len(), false));
                tx
            };
            assert_eq!(answer(own, 0), b"VA 4\r\n:0\r\n\r\n");
            // The one that has sent it sends it to its owner.
            assert_eq!(answer(other, 0), NOT_OWNER);
            let said = answer(other, 1);
            assert!(said.windows(9).any(|word| word == b"-TRYAGAIN"), "{}", String::from_utf8_lossy(&said));
        });
    }
}
