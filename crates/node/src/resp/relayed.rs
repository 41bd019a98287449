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

use minos_base::SizeClass;
use minos_engine::{Mode, Pinned};
use minos_proto::resp::{Flag, Id, Parsed, Version, compose, parse};
use minos_sched::WorkerId;

use super::{
    call::{Call, Interrupt, read},
    execute::{Outcome, all_keys, run},
    scratch,
    serve::{CHECKED, request},
    session::{RespSession, Unique, Watched},
};
use crate::{
    ops::{Context, Next, Placement, Work},
    rack::{Holes, Intent, NOT_OWNER},
};

/// The byte that begins a frame; no command of memcached's protocol begins with it.
pub(crate) const MARK: u8 = 1;
const HEAD_BYTES: usize = 7;
/// The line ends behind a value that is sent from its item: that of the bulk string, and that of the value around it.
const LINE_ENDS: &[u8] = b"\r\n\r\n";
const MALFORMED: &[u8] = b"SERVER_ERROR a node of the rack has sent no command\r\n";
const TOO_LONG: &[u8] = b"SERVER_ERROR the reply is too long for a node of the rack\r\n";
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

/// Appends a key that a client watches.
pub(super) fn put_watched(key: &[u8], unique: Option<u64>, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.push(u8::from(unique.is_some()));
    bytes.extend_from_slice(&unique.unwrap_or(0).to_le_bytes());
}

/// Executes the frame at the front of `input`; returns its bytes.
pub(crate) fn serve<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    input: &[u8],
    has_changed: &mut bool,
    tx: &mut Vec<u8>,
) -> (usize, Next<M>) {
    let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() else {
        return (0, Next::NeedMore { wanted_bytes: HEAD_BYTES });
    };
    let [_, version, kind, bytes @ ..] = *head;
    let bytes = u32::from_le_bytes(bytes) as usize;
    let Some(body) = rest.get(..bytes) else {
        return (0, Next::NeedMore { wanted_bytes: HEAD_BYTES + bytes });
    };
    let mut session = RespSession::relayed(if version == 0 { Version::Two } else { Version::Three });
    let answer = match kind {
        0 => command(cx, &mut session, body),
        _ => transaction(cx, &mut session, body),
    };
    *has_changed |= session.has_changed;
    (HEAD_BYTES + bytes, answer.compose(tx))
}

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
            Self::Reply(reply) => {
                tx.extend_from_slice(format!("VA {}\r\n", reply.len()).as_bytes());
                tx.extend_from_slice(&reply);
                tx.extend_from_slice(compose::LINE_END);
            }
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

fn command<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    body: &[u8],
) -> Answer<M> {
    let Parsed::Command(command, _) = parse(body, &CHECKED) else { return Answer::Refused(MALFORMED) };
    let Some(call) = Call::of(command) else { return Answer::Refused(MALFORMED) };
    let is_write = call.spec.flags.has(Flag::WRITE);
    if !owns(cx, all_keys(&call), if is_write { Intent::Change } else { Intent::Read }) {
        return Answer::Refused(NOT_OWNER);
    }
    if call.spec.id == Id::Watch {
        return watch(cx, &call, session.version);
    }
    if is_write {
        return Answer::Reply(execute_whole(cx, session, body));
    }
    let (request, mut reply) = (request(cx, command), Vec::new());
    match run(cx, session, &request, &mut usize::MAX.clone(), &mut reply) {
        Outcome::Ended(Next::Away(Work::Send { item, .. })) => Answer::Value(reply, item),
        Outcome::Done | Outcome::Ended(_) => Answer::Reply(reply),
        // Nothing that is sent here pauses.
        Outcome::Paused(_) => Answer::Refused(MALFORMED),
    }
}

/// Answers with the CAS unique of the item of the key, of which there is one.
fn watch<M: Mode, P>(cx: &Context<'_, M, P>, call: &Call<'_>, version: Version) -> Answer<M> {
    let key = call.argument(1);
    let mut reply = Vec::new();
    match read(cx, (cx.store.hash(key), key), |item| item.cas()) {
        Ok(Some(unique)) => compose::bulk(&mut reply, unique.to_string().as_bytes()),
        Ok(None) => compose::null(&mut reply, version),
        Err(_) => return Answer::Refused(MALFORMED),
    }
    Answer::Reply(reply)
}

/// Executes a command at once, whatever the size of its values, and returns the reply.
pub(super) fn execute_whole<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut RespSession,
    body: &[u8],
) -> Vec<u8> {
    let mut placement = Whole(&mut *cx.placement);
    let mut inner = Context {
        store: cx.store,
        clock: cx.clock,
        now: cx.now,
        counters: cx.counters,
        placement: &mut placement,
        admin: cx.admin,
        prefixes: cx.prefixes,
        fetched: None,
        rack: cx.rack,
        probe: cx.probe,
        holes: Holes::default(),
    };
    let mut reply = Vec::new();
    let Parsed::Command(command, _) = parse(body, &CHECKED) else { return reply };
    let request = request(&inner, command);
    // It pauses between steps, of which there are as many as it has keys.
    while let Outcome::Paused(Next::Yield) =
        run(&mut inner, session, &request, &mut usize::MAX.clone(), &mut reply)
    {}
    reply
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
) -> Answer<M> {
    let Some((watched, queued)) = read_watched(cx, body) else { return Answer::Refused(MALFORMED) };
    let count = scratch::commands(queued).count();
    let keys = scratch::commands(queued).flat_map(|call| all_keys(&call));
    if !owns(cx, keys.chain(watched.iter().map(|watched| &*watched.key)), Intent::Change) {
        return Answer::Refused(NOT_OWNER);
    }
    let mut reply = Vec::new();
    match scratch::execute(cx, session, (queued, count), &watched, &mut reply) {
        Ok(scratch::Ended::Done) => session.has_changed = true,
        Ok(scratch::Ended::Changed) => compose::null_array(&mut reply, session.version),
        Err(interrupt) => match *interrupt {
            Interrupt::Error(text) => compose::error(&mut reply, &text),
            _ => return Answer::Refused(MALFORMED),
        },
    }
    Answer::Reply(reply)
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
