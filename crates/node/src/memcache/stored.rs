//! Replies to stores in the text protocol.

use minos_proto::memcache::{MetaFlags, Reply, compose, text};

use super::answer::failed_text;
use crate::{
    ops::{AnswerStore, Cold, LargeStored, StoreOperation, Stored},
    rack::NOT_OWNER,
};

/// The reply to a large store, as a function of its result. It owns the flags that `reply` borrows.
pub(super) fn answer_later(reply: Reply<'_>) -> AnswerStore {
    match reply {
        Reply::Classic { quiet, with_cas } => Box::new(move |stored, operation, key, tx| {
            respond_large(&stored, operation, key, Reply::Classic { quiet, with_cas }, tx);
        }),
        Reply::Meta { flags, quiet } => {
            let flags = Box::<[u8]>::from(flags.as_bytes());
            Box::new(move |stored, operation, key, tx| {
                let flags = MetaFlags::checked(&flags);
                respond_large(&stored, operation, key, Reply::Meta { flags, quiet }, tx);
            })
        }
    }
}

fn respond_large(
    stored: &LargeStored,
    operation: &StoreOperation,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) {
    match stored {
        LargeStored::Ended(stored, _) => respond(stored, operation, key, reply, tx),
        LargeStored::NoLineEnd if reply.is_silent() => {}
        LargeStored::NoLineEnd => tx.extend_from_slice(text::BAD_CHUNK),
    }
}

/// Appends the reply to a store.
#[inline]
pub(super) fn respond(
    stored: &Stored,
    operation: &StoreOperation,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) {
    let Reply::Meta { flags, quiet } = reply else {
        if !reply.is_silent() {
            tx.extend_from_slice(classic_text(stored));
        }
        return;
    };
    let (code, cas): (&[u8], u64) = match stored {
        Stored::Done(_) if quiet => return,
        Stored::Done(cas) => (b"HD", *cas),
        Stored::Unmet => (b"NS", 0),
        Stored::OtherCas => (b"EX", 0),
        Stored::Missing => (b"NF", 0),
        Stored::NoMemory => return tx.extend_from_slice(text::NO_MEMORY_STORING),
        Stored::Cold(cold) => return tx.extend_from_slice(cold_text(*cold)),
        Stored::NotHere => return tx.extend_from_slice(NOT_OWNER),
    };
    tx.extend_from_slice(code);
    for flag in flags.iter() {
        compose::meta_store_flag(tx, flag, cas, key, operation.key_is_base64);
    }
    tx.extend_from_slice(text::LINE_END);
}

/// The reply to a large store whose item was not in memory when it ended.
fn cold_text(cold: Cold) -> &'static [u8] {
    match cold {
        Cold::Failed(failed) => failed_text(failed),
        Cold::Unknown(..) => text::NO_MEMORY_FETCHING,
    }
}

fn classic_text(stored: &Stored) -> &'static [u8] {
    match stored {
        Stored::Done(_) => text::STORED,
        Stored::Unmet => text::NOT_STORED,
        Stored::OtherCas => text::EXISTS,
        Stored::Missing => text::NOT_FOUND,
        Stored::NoMemory => text::NO_MEMORY_STORING,
        Stored::Cold(cold) => cold_text(*cold),
        Stored::NotHere => NOT_OWNER,
    }
}
