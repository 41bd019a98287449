//! `incr`, `decr` and `ma`.

use minos_base::{KeyHash, Seconds};
use minos_engine::{Entry, Mode};
use minos_proto::memcache::{Arithmetic, MetaFlags, OPAQUE_BYTES_MAX, Reply, compose, text};

use super::session::{Executed, meta_facts};
use crate::ops::{self, Context, CountOperation, Counted, Facts, Failure};

fn failure_text(failure: Failure) -> &'static [u8] {
    match failure {
        Failure::NotANumber => text::NON_NUMERIC,
        Failure::NoMemory => text::NO_MEMORY,
        Failure::NoMemoryVivifying => text::NO_MEMORY_VIVIFYING,
    }
}

/// What a request asks of its item.
pub(super) fn operation(request: &Arithmetic<'_>) -> CountOperation {
    CountOperation {
        decrement: request.decrement,
        delta: request.delta,
        unique: request.unique,
        initial: request.vivify.map(|wanted| wanted.initial),
        flags: 0,
    }
}

/// Counts up or down.
pub(super) fn execute<M: Mode, P>(
    cx: &Context<'_, M, P>,
    request: &Arithmetic<'_>,
    hash: KeyHash,
    key: &[u8],
    reply: Reply<'_>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let mut entry = match ops::entry(cx, hash, key) {
        Ok(entry) => entry,
        Err(cold) => return Executed::cold(cold, (hash, key), reply, tx),
    };
    let counted = ops::count(cx, &operation(request), &mut entry);
    if matches!(counted, Counted::NoRoomYet) {
        return Executed::wait(cx);
    }
    match reply {
        Reply::Meta { flags, quiet } => {
            let response = Response { cx, request, key, flags, quiet };
            response.compose(counted, &mut entry, tx);
        }
        Reply::Classic { quiet, .. } => {
            drop(entry);
            if !quiet {
                respond_classic(&counted, tx);
            }
        }
    }
    Executed::DONE
}

fn respond_classic(counted: &Counted, tx: &mut Vec<u8>) {
    match counted {
        Counted::Value(value, _) | Counted::Vivified(value, _) => compose::number_line(tx, *value),
        Counted::NotFound | Counted::OtherCas => tx.extend_from_slice(text::NOT_FOUND),
        Counted::Failed(failure) => tx.extend_from_slice(failure_text(*failure)),
        // It is executed again.
        Counted::NoRoomYet => {}
    }
}

/// The reply to an `ma`.
struct Response<'a, 'c, M: Mode, P> {
    cx: &'a Context<'c, M, P>,
    request: &'a Arithmetic<'a>,
    key: &'a [u8],
    flags: MetaFlags<'a>,
    quiet: bool,
}

impl<M: Mode, P> Response<'_, '_, M, P> {
    /// Appends the reply. The flags act in their order: a flag that returns a value before another changes it
    /// shows the old one, so this needs the item's `entry`.
    fn compose(&self, counted: Counted, entry: &mut Entry<'_, M>, tx: &mut Vec<u8>) {
        let start = tx.len();
        let complete = match counted {
            Counted::Value(value, facts) => self.compose_item(value, facts, false, entry, tx),
            Counted::Vivified(value, facts) => self.compose_item(value, facts, true, entry, tx),
            Counted::NotFound => self.compose_missing(b"NF", tx),
            Counted::OtherCas => self.compose_missing(b"EX", tx),
            Counted::Failed(failure) => return tx.extend_from_slice(failure_text(failure)),
            Counted::NoRoomYet => return,
        };
        if !complete {
            tx.truncate(start);
            tx.extend_from_slice(text::META_OPAQUE_TOO_LONG);
        } else if self.quiet && matches!(counted, Counted::Value(..)) {
            tx.truncate(start);
        } else {
            tx.extend_from_slice(text::LINE_END);
        }
    }

    fn compose_item(
        &self,
        value: u64,
        mut facts: Facts,
        vivified: bool,
        entry: &mut Entry<'_, M>,
        tx: &mut Vec<u8>,
    ) -> bool {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(value).as_bytes();
        // Here memcached answers with the spelling of the request, in a read with the item's.
        facts.key_is_base64 = self.request.key.is_base64();
        let wants_value = self.flags.iter().any(|flag| flag[0] == b'v');
        if wants_value {
            compose::meta_value_head(tx, digits.len() as u64);
        } else {
            tx.extend_from_slice(b"HD");
        }
        for flag in self.flags.iter() {
            if is_opaque_too_long(flag) {
                return false;
            }
            match self.expiry_of(flag, vivified) {
                Some(expiry) => {
                    facts.expiry = expiry;
                    entry.set_expiry(expiry);
                }
                None => {
                    let meta = meta_facts(&facts, self.key, self.cx.now);
                    compose::meta_change_flag(tx, flag, &meta);
                }
            }
        }
        if wants_value {
            tx.extend_from_slice(text::LINE_END);
            tx.extend_from_slice(digits);
        }
        true
    }

    /// The expiry that `flag` gives to the item.
    fn expiry_of(&self, flag: &[u8], vivified: bool) -> Option<Seconds> {
        let exptime = match flag[0] {
            b'T' => self.request.touch,
            b'N' if vivified => self.request.vivify.map(|wanted| wanted.exptime),
            _ => None,
        };
        exptime.map(|exptime| exptime.on(self.cx.clock, self.cx.now))
    }

    fn compose_missing(&self, code: &[u8], tx: &mut Vec<u8>) -> bool {
        tx.extend_from_slice(code);
        for flag in self.flags.iter() {
            if is_opaque_too_long(flag) {
                return false;
            }
            compose::meta_echo_flag(tx, flag, self.key, self.request.key.is_base64());
        }
        true
    }
}

/// True if `flag` is an opaque token that is too long; it ends even a composed reply with an error.
fn is_opaque_too_long(flag: &[u8]) -> bool {
    flag[0] == b'O' && flag.len() > OPAQUE_BYTES_MAX
}
