//! The text protocol, classic and meta.

use minos_engine::Mode;
use minos_proto::memcache::{Command, KeyBuffer, Parsed, Reply, Request, parse, parse_resumed};

use super::{
    administrate, arithmetic, debug, delete, get, get_many,
    meta_get::MetaGet,
    serve::Dialect,
    session::{Executed, MemcacheSession},
    store, touch,
};
use crate::ops::{Context, Lookup, Placement};

/// The text protocol.
pub(super) struct Text;

impl Dialect for Text {
    type Reply<'a> = Reply<'a>;
    type Refusal = &'static [u8];

    #[inline]
    fn parse<'a>(session: &mut MemcacheSession, input: &'a [u8]) -> Parsed<'a> {
        match session.resume.take() {
            None => parse(input, &session.limits),
            Some(resume) => parse_resumed(resume, input),
        }
    }

    fn refuse(refusal: &'static [u8], tx: &mut Vec<u8>) {
        tx.extend_from_slice(refusal);
    }

    #[inline]
    fn execute<M: Mode, P: Placement>(
        cx: &mut Context<'_, M, P>,
        session: &mut MemcacheSession,
        command: &Command<'_>,
        lookup: Option<Lookup<'_>>,
        requests_left: &mut usize,
        tx: &mut Vec<u8>,
    ) -> Executed<M> {
        let reply = command.reply;
        let mut buffer = KeyBuffer::default();
        match (&command.request, lookup) {
            (Request::Get(request), Some(lookup)) => {
                let key = request.key.bytes(&mut buffer);
                Executed::then(match reply {
                    Reply::Classic { with_cas, .. } => {
                        get::execute(cx, lookup, key, request.touch, with_cas, tx)
                    }
                    Reply::Meta { flags, quiet } => {
                        MetaGet::new(request, lookup, key, flags, quiet).execute(cx, tx)
                    }
                })
            }
            (Request::GetMany(request), _) => {
                get_many::execute(cx, session, *request, command, requests_left, tx)
            }
            (Request::Store(request), Some(Lookup { hash, .. })) => {
                store::execute(cx, session, request, hash, reply, request.key.bytes(&mut buffer), tx)
            }
            (Request::Arithmetic(request), Some(Lookup { hash, .. })) => {
                arithmetic::execute(cx, request, hash, request.key.bytes(&mut buffer), reply, tx)
            }
            (Request::Delete(request), Some(Lookup { hash, .. })) => {
                delete::execute(cx, request, hash, request.key.bytes(&mut buffer), reply, tx)
            }
            (Request::Touch(request), Some(Lookup { hash, .. })) => {
                touch::execute(cx, request, hash, request.key.bytes(&mut buffer), reply, tx)
            }
            (Request::Debug { key }, Some(Lookup { hash, .. })) => {
                debug::execute(cx, hash, key.bytes(&mut buffer), tx)
            }
            _ => administrate::execute(cx, session, command, tx),
        }
    }
}
