//! Commands for keys that another node of the rack owns. Nodes speak the text protocol with each other.

use minos_base::{Exptime, KeyHash, SizeClass};
use minos_engine::Mode;
use minos_proto::memcache::{Command, Key, Request, Store, Value, base64, text};

use super::{
    answer::Answer,
    session::{Executed, MemcacheSession, Unread},
};
use crate::{
    ops::{Context, Next, Placement, Work},
    rack::{Forward, Intent, NOT_OWNER, Owner},
};

/// What a command does with its key. A read is answered from the memory of the key's owner where that is possible, or from
/// a copy, unless another node asks for the owner's answer.
#[inline]
pub(super) fn intent<R: Answer>(command: &Command<'_, R>, is_peer: bool) -> Intent {
    match command.reply.is_read(&command.request) {
        true if is_peer => Intent::Read,
        true => Intent::ReadCopy,
        false => Intent::Change,
    }
}

/// Executes a command for a key of another node; `None` if the caller is to read it there, or each key of its line.
pub(super) fn execute<M: Mode, P: Placement, R: Answer>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, bytes): (&Command<'_, R>, &[u8]),
    (hash, owner): (KeyHash, Owner),
    tx: &mut Vec<u8>,
) -> Option<Executed<M>> {
    if matches!(command.request, Request::GetMany(_)) {
        return None;
    }
    if session.is_peer {
        return Some(refuse(cx, session, command, tx));
    }
    if intent(command, false) == Intent::Change {
        return Some(forward(cx, session, (command, bytes), (hash, owner), tx));
    }
    (!cx.holes.may_read(hash)).then_some(Executed::BEHIND_HOLES)
}

/// Refuses a command that another node has forwarded by mistake.
fn refuse<M: Mode, P, R: Answer>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_, R>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    cx.rack.inspect(|rack| rack.counters.not_owner.count());
    swallow_value::<R>(session, &command.request);
    tx.extend_from_slice(NOT_OWNER);
    Executed::DONE
}

/// Discards the value of a refused store, if it has still to come.
fn swallow_value<R: Answer>(session: &mut MemcacheSession, request: &Request<'_>) {
    if let Request::Store(Store { value, .. }) = request
        && !matches!(value, Value::Whole(_))
    {
        session.swallow_bytes = value.bytes() + R::END_BYTES as u64;
    }
}

/// Forwards a command to the owner of its key.
fn forward<M: Mode, P: Placement, R: Answer>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, bytes): (&Command<'_, R>, &[u8]),
    (hash, owner): (KeyHash, Owner),
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let mut forward = Forward::to(owner);
    if let Err(line) = R::forward(command, &mut forward) {
        swallow_value::<R>(session, &command.request);
        command.reply.refused(line, tx);
        return Executed::DONE;
    }
    let Request::Store(store) = &command.request else { return leave(cx, hash, forward, tx) };
    let class = SizeClass::of(store.value.bytes());
    forward.is_large = !cx.placement.serves(class);
    match store.value {
        Value::Whole(value) => {
            if !forward.bytes.is_empty() {
                forward.bytes.extend_from_slice(value);
            }
            leave(cx, hash, forward, tx)
        }
        Value::Pending { bytes } if !forward.is_large => Executed {
            next: Next::NeedMore { wanted_bytes: bytes as usize + R::END_BYTES },
            unread: Unread::All,
        },
        _ if !cx.holes.may_read(hash) => Executed::BEHIND_HOLES,
        Value::Pending { bytes: value_bytes } => {
            let Some(permit) = cx.admin.admit(value_bytes) else {
                swallow_value::<R>(session, &command.request);
                command.reply.refused(text::NO_MEMORY_STORING, tx);
                return Executed::DONE;
            };
            if forward.bytes.is_empty() {
                forward.bytes = bytes.to_vec();
            }
            let at = forward.bytes.len();
            forward.permit = Some(permit);
            forward.bytes.resize(at + value_bytes as usize + R::END_BYTES, 0);
            Executed::then(Next::Away(Work::Collect { forward: Box::new(forward), at }))
        }
        Value::TooLarge { .. } => {
            swallow_value::<R>(session, &command.request);
            command.reply.too_large(tx);
            if !command.reply.drops_too_large(store.kind) {
                return Executed::DONE;
            }
            // The old value must not stay, as with a key of this node.
            forward.bytes = without_value(store);
            forward.tail = text::NOTHING;
            forward.is_silent = true;
            forward.translate = Some(Box::new(|_| Vec::new()));
            leave(cx, hash, forward, tx)
        }
    }
}

/// Leaves a hole in the replies for a command, unless it could overtake an earlier one for its key.
fn leave<M: Mode, P>(cx: &mut Context<'_, M, P>, hash: KeyHash, forward: Forward, tx: &[u8]) -> Executed<M> {
    // One that finds its micro-shard on the move is sent again, and a read may end later than what follows it.
    let may_overtake = cx.rack.is_some_and(|rack| rack.may_overtake());
    if !cx.holes.may_forward(hash, forward.is_large) || may_overtake && !cx.holes.may_read(hash) {
        return Executed::BEHIND_HOLES;
    }
    cx.holes.push(tx.len(), Some(hash), forward);
    Executed::DONE
}

/// The command that removes the item whose new value is too large.
fn without_value(store: &Store<'_>) -> Vec<u8> {
    let mut bytes = b"md ".to_vec();
    let is_encoded = say_key(store.key, &mut bytes);
    bytes.extend_from_slice(if is_encoded { b" b q\r\n" } else { b" q\r\n" });
    bytes
}

/// Appends a key as a word of a line; true if that is in base64, as it must be if its bytes are no word.
pub(super) fn say_key(key: Key<'_>, words: &mut Vec<u8>) -> bool {
    let is_word = key.text().iter().all(|&byte| byte > b' ');
    if is_word {
        words.extend_from_slice(key.text());
    } else {
        base64::encode(key.text(), words);
    }
    !is_word || key.is_base64()
}

/// The part of a line of keys that asks for one of them.
pub(super) fn one_of_many(owner: Owner, key: &[u8], touch: Option<Exptime>, with_cas: bool) -> Forward {
    let mut bytes = match (touch, with_cas) {
        (None, false) => b"get ".to_vec(),
        (None, true) => b"gets ".to_vec(),
        (Some(exptime), false) => format!("gat {} ", exptime.0).into_bytes(),
        (Some(exptime), true) => format!("gats {} ", exptime.0).into_bytes(),
    };
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(text::LINE_END);
    // Its owner may have been asked because the value is large.
    Forward { bytes, is_large: true, is_part: true, is_read: touch.is_none(), ..Forward::to(owner) }
}
