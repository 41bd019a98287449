//! memcached's binary protocol: the same commands as in the text protocol, with other words around them.

mod change;
mod elsewhere;

use minos_base::{StatsGroup, StoreKind};
use minos_engine::Mode;
use minos_proto::memcache::{
    Command, Get, KeyBuffer, Request, StatsDetail,
    binary::{Parsed, Refusal, Reply, Status, compose, parse},
    compose::prefix,
    text,
};

use super::{
    administrate,
    answer::{Answer, failed_text},
    serve::Dialect,
    session::{Executed, MemcacheSession, next_of},
    store,
};
use crate::{
    ops::{
        self, AnswerStore, Cold, Context, Facts, Failed, Found, Head, LargeStored, Lookup, Next, Placement,
        StoreOperation, Stored, Work, find,
    },
    rack::{Forward, NOT_OWNER},
};

/// The binary protocol.
pub(super) struct Binary;

impl Dialect for Binary {
    type Reply<'a> = Reply;
    type Refusal = Refusal;

    fn parse<'a>(session: &mut MemcacheSession, input: &'a [u8]) -> Parsed<'a> {
        parse(input, &session.limits)
    }

    fn refuse(refusal: Refusal, tx: &mut Vec<u8>) {
        if let Some((reply, status)) = refusal {
            compose::error(tx, reply, status);
        }
    }

    fn execute<M: Mode, P: Placement>(
        cx: &mut Context<'_, M, P>,
        session: &mut MemcacheSession,
        command: &Command<'_, Reply>,
        lookup: Option<Lookup<'_>>,
        _requests_left: &mut usize,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        let mut buffer = KeyBuffer::default();
        let key = command.request.key().map_or(&[][..], |key| key.bytes(&mut buffer));
        let reply = command.reply;
        match (&command.request, lookup) {
            (Request::Get(request), Some(lookup)) => {
                Executed::then(read(cx, command, (request, lookup, key), tx))
            }
            (Request::Store(request), Some(Lookup { hash, .. })) => {
                store::execute(cx, session, request, hash, reply, key, tx)
            }
            (Request::Arithmetic(request), Some(Lookup { hash, .. })) => {
                change::count(cx, request, (hash, key), reply, tx)
            }
            (Request::Delete(request), Some(Lookup { hash, .. })) => {
                change::delete(cx, request, (hash, key), reply, tx)
            }
            (Request::Touch(request), Some(Lookup { hash, .. })) => {
                change::touch(cx, request, (hash, key), reply, tx)
            }
            _ => without_key(cx, session, command, tx),
        }
    }
}

impl Head for Reply {
    #[inline]
    fn compose(self, key: &[u8], item: &Facts, tx: &mut Vec<u8>) {
        compose::value_head(tx, self, key, item.flags, item.value_bytes, item.cas);
    }
}

/// Answers a read, with or without a touch.
fn read<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    command: &Command<'_, Reply>,
    (request, lookup, key): (&Get<'_>, Lookup<'_>, &[u8]),
    tx: &mut Vec<u8>,
) -> Next<M> {
    let reply = command.reply;
    match find(cx, lookup, key, request.touch, reply, tx) {
        Found::Missing => compose::miss(tx, reply, key),
        Found::Copied => {}
        Found::Pinned(item) => return Next::Away(Work::send(item, text::NOTHING)),
        Found::Cold(cold) => return next_of(cold, (lookup.hash, key), reply, tx),
        Found::AskOwner(owner) => {
            // Its value may be large.
            let mut forward = Forward { is_large: true, is_read: true, ..Forward::to(owner) };
            match Reply::forward(command, &mut forward) {
                Ok(()) => cx.holes.push(tx.len(), Some(lookup.hash), forward),
                Err(line) => reply.refused(line, tx),
            }
        }
    }
    Next::Continue
}

/// Executes commands without a key.
fn without_key<M: Mode, P: Placement>(
    cx: &mut Context<'_, M, P>,
    session: &mut MemcacheSession,
    command: &Command<'_, Reply>,
    tx: &mut Vec<u8>,
) -> Executed<M> {
    let reply = command.reply;
    match command.request {
        Request::FlushAll { delay } => {
            if let Some(executed) = administrate::flush(cx, session, (command, delay), tx) {
                return executed;
            }
            compose::done(tx, reply, 0, &[]);
        }
        Request::Stats(group) => {
            let mut emit = |name: &str, value: &dyn std::fmt::Display| {
                if group != StatsGroup::Reset {
                    compose::stat(tx, reply, name, value);
                }
            };
            ops::report(cx.store, cx.admin, group, &mut emit);
            compose::done(tx, reply, 0, &[]);
        }
        Request::StatsDetail(detail) => stats_detail(cx, detail, reply, tx),
        Request::Version => compose::done(tx, reply, 0, text::VERSION_NUMBER.as_bytes()),
        Request::Quit => {
            compose::done(tx, reply, 0, &[]);
            return Executed::then(Next::Close);
        }
        _ => compose::done(tx, reply, 0, &[]),
    }
    Executed::DONE
}

fn stats_detail<M: Mode, P>(cx: &mut Context<'_, M, P>, detail: StatsDetail, reply: Reply, tx: &mut Vec<u8>) {
    let Some(prefixes) = cx.admin.prefixes() else { return compose::error(tx, reply, Status::NotFound) };
    if detail == StatsDetail::Dump {
        let mut lines = Vec::new();
        prefixes.tell(|name, counts| {
            prefix(&mut lines, name, [counts.gets, counts.hits, counts.sets, counts.deletes]);
        });
        lines.extend_from_slice(text::END);
        compose::stat(tx, reply, "detailed", &String::from_utf8_lossy(&lines));
    } else {
        cx.turn_prefixes(detail == StatsDetail::On);
    }
    compose::done(tx, reply, 0, &[]);
}

impl Answer for Reply {
    const END_BYTES: usize = 0;

    fn is_read(self, request: &Request<'_>) -> bool {
        matches!(request, Request::Get(Get { touch: None, .. }))
    }

    fn stored(self, stored: &Stored, operation: &StoreOperation, _key: &[u8], tx: &mut Vec<u8>) {
        let status = match stored {
            Stored::Done(cas) => return compose::done(tx, self, *cas, &[]),
            Stored::Unmet => unmet(operation.kind),
            Stored::OtherCas => Status::Exists,
            Stored::Missing => Status::NotFound,
            Stored::NoMemory => return fail(self, text::NO_MEMORY_STORING, tx),
            Stored::Cold(Cold::Failed(failed)) => return self.failed(*failed, tx),
            Stored::Cold(Cold::Unknown(..)) => return self.failed(Failed::NoMemory, tx),
            Stored::NotHere => return fail(self, NOT_OWNER, tx),
        };
        compose::error(tx, self, status);
    }

    fn later(self) -> AnswerStore {
        Box::new(move |stored, operation, key, tx| match stored {
            LargeStored::Ended(stored, _) => self.stored(&stored, operation, key, tx),
            // No line end is received, so none can be missing.
            LargeStored::NoLineEnd => compose::error(tx, self, Status::Invalid),
        })
    }

    fn too_large(self, tx: &mut Vec<u8>) {
        compose::error(tx, self, Status::TooLarge);
    }

    fn drops_too_large(self, _kind: StoreKind) -> bool {
        self.is_set()
    }

    fn failed(self, failed: Failed, tx: &mut Vec<u8>) {
        fail(self, failed_text(failed), tx);
    }

    fn refused(self, line: &[u8], tx: &mut Vec<u8>) {
        fail(self, line, tx);
    }

    fn denied(self, reason: &str, tx: &mut Vec<u8>) {
        compose::error_with(tx, self, Status::Auth, reason.as_bytes());
    }

    fn forward(command: &Command<'_, Self>, forward: &mut Forward) -> Result<(), &'static [u8]> {
        elsewhere::translate(command, forward)
    }
}

/// The status of a store whose condition did not hold.
fn unmet(kind: StoreKind) -> Status {
    match kind {
        StoreKind::Add => Status::Exists,
        StoreKind::Replace => Status::NotFound,
        _ => Status::NotStored,
    }
}

/// Appends the error that `line` says in the text protocol.
pub(super) fn fail(reply: Reply, line: &[u8], tx: &mut Vec<u8>) {
    let words = line.strip_prefix(b"SERVER_ERROR ").unwrap_or(line).trim_ascii_end();
    if line == text::NO_MEMORY_STORING {
        return compose::error_with(tx, reply, Status::NoMemory, b"Out of memory allocating item");
    }
    let is_memory = words.to_ascii_lowercase().starts_with(b"out of memory");
    compose::error_with(tx, reply, if is_memory { Status::NoMemory } else { Status::Internal }, words);
}
