//! Commands for keys that another node of the rack owns.

use minos_base::{Exptime, SizeClass, StoreKind};
use minos_engine::Mode;
use minos_proto::memcache::{Command, Reply, Request, Store, Value, text};

use super::{
    meta_get,
    session::{Executed, MemcacheSession, Unread},
};
use crate::{
    ops::{Context, Next, Placement, Work},
    rack::{Forward, Owner},
};

/// The reply to a node that takes this one for the owner of a key.
const NOT_OWNER: &[u8] = b"SERVER_ERROR this node of the rack does not own the key\r\n";

/// Bytes of the line end behind a value.
const END_BYTES: usize = text::LINE_END.len();

/// True if a command is answered from the memory of the key's owner where that is possible.
#[inline]
pub(super) fn is_read(command: &Command<'_>) -> bool {
    match (&command.request, command.reply) {
        (Request::Get(get), Reply::Classic { .. }) => get.touch.is_none(),
        (Request::Get(get), Reply::Meta { flags, .. }) => {
            get.touch.is_none() && !meta_get::needs_entry(flags)
        }
        _ => false,
    }
}

/// Refuses a command that another node has forwarded by mistake.
pub(super) fn refuse<M: Mode, P>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    cx.rack.inspect(|rack| rack.counters.not_owner.count());
    if let Request::Store(Store { value, .. }) = &command.request
        && !matches!(value, Value::Whole(_))
    {
        session.swallow_bytes = value.bytes() + END_BYTES as u64;
    }
    tx.extend_from_slice(NOT_OWNER);
    Executed::DONE
}

/// Forwards a command to the owner of its key.
pub(super) fn forward<M: Mode, P: Placement>(
    cx: &Context<'_, M, P>,
    session: &mut MemcacheSession,
    (command, bytes): (&Command<'_>, &[u8]),
    owner: Owner,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let is_silent = command.reply.is_silent();
    let mut forward = Forward { is_silent, ..Forward::to(owner) };
    let Request::Store(store) = &command.request else { return Executed::forward(forward) };
    let class = SizeClass::of(store.value.bytes());
    forward.is_large = !cx.placement.serves(class);
    match store.value {
        Value::Whole(_) => Executed::forward(forward),
        Value::Pending { bytes } if !forward.is_large => Executed {
            next: Next::NeedMore { wanted_bytes: bytes as usize + END_BYTES },
            unread: Unread::All,
        },
        Value::Pending { bytes: value_bytes } => {
            let Some(permit) = cx.admin.admit(value_bytes) else {
                session.swallow_bytes = value_bytes + END_BYTES as u64;
                if !is_silent {
                    tx.extend_from_slice(text::NO_MEMORY_STORING);
                }
                return Executed::DONE;
            };
            let at = bytes.len();
            forward.permit = Some(permit);
            forward.bytes = bytes.to_vec();
            forward.bytes.resize(at + value_bytes as usize + END_BYTES, 0);
            Executed::then(Next::Away(Work::Collect { forward: Box::new(forward), at }))
        }
        Value::TooLarge { bytes } => {
            session.swallow_bytes = bytes + END_BYTES as u64;
            if !is_silent {
                tx.extend_from_slice(text::TOO_LARGE);
            }
            if store.kind != StoreKind::Set && matches!(command.reply, Reply::Classic { .. }) {
                return Executed::DONE;
            }
            // The old value must not stay, as with a key of this node.
            forward.bytes = without_value(store);
            Executed::forward(forward)
        }
    }
}

/// The command that removes the item whose new value is too large.
fn without_value(store: &Store<'_>) -> Vec<u8> {
    let mut bytes = b"md ".to_vec();
    bytes.extend_from_slice(store.key.text());
    bytes.extend_from_slice(if store.key.is_base64() { b" b q\r\n" } else { b" q\r\n" });
    bytes
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
    Forward { bytes, is_large: true, is_part: true, ..Forward::to(owner) }
}
