//! A visit to a connection that speaks memcached's protocol: parse a burst, execute it, say why it stopped.

mod rare;

use arrayvec::ArrayVec;
use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Io;
use minos_proto::memcache::{Command, Malformed, Parsed, Request, Resume, Value, parse, parse_resumed};

use super::{Stopped, Why};
use crate::{
    memcache::{self, Executed, LargeStore, Lookup, MemcacheSession, Outcome},
    ops::Context,
    tcp::{stream::Stream, transfer::Work},
    worker::{Worker, placement::WorkerPlacement},
};

/// A parsed command of a burst, the lookup of its key, and its end in the input.
struct Pending<'a> {
    command: Command<'a>,
    lookup: Option<Lookup<'a>>,
    end: usize,
}

/// The input behind the commands of a burst.
enum Tail {
    /// Possibly more commands.
    Unknown,
    /// An incomplete command.
    NeedMore,
    /// An invalid command.
    Malformed(Malformed),
}

impl<'s, M: Mode, I: Io> Worker<'s, M, I> {
    /// Parses and executes requests at the front of `input`; replies go to the transmit buffer.
    pub(super) fn process_memcache(
        &mut self,
        session: &mut MemcacheSession,
        stream: &Stream,
        input: &[u8],
        requests_max: &mut usize,
    ) -> Stopped<M> {
        if !session.has_spoken && !self.is_understood(session, stream, input) {
            return Stopped { consumed: input.len(), why: Why::Close };
        }
        let mut consumed = session.swallow(input);
        while consumed < input.len() {
            if *requests_max == 0 || self.has_composed_enough() {
                return Stopped { consumed, why: Why::Budget };
            }
            let (used, why) = self.process_burst(session, &input[consumed..], requests_max);
            consumed += used;
            if let Some(why) = why {
                return Stopped { consumed, why };
            }
            consumed += session.swallow(&input[consumed..]);
        }
        Stopped { consumed, why: Why::NeedMore { wanted_bytes: 1 } }
    }

    /// True if the composed replies must be sent before another request is executed.
    #[inline]
    fn has_composed_enough(&self) -> bool {
        self.transmit_buffer.len() >= self.replies_bytes_max
    }

    /// Parses a burst of requests while their index buckets are fetched, then executes it. Returns the bytes
    /// of `input` consumed and, unless the caller is to look at the rest, the reason to stop.
    fn process_burst(
        &mut self,
        session: &mut MemcacheSession,
        input: &[u8],
        requests_max: &mut usize,
    ) -> (usize, Option<Why<M>>) {
        let mut burst = ArrayVec::new();
        let tail = self.parse_burst(session.resume.take(), input, &mut burst, *requests_max);
        self.stage(&mut burst);
        let mut consumed = 0;
        for pending in &burst {
            *requests_max = requests_max.saturating_sub(1);
            let executed = self.execute(pending, requests_max);
            let before = consumed;
            consumed = pending.end - executed.unread_bytes;
            let why = match executed.outcome {
                Outcome::Done if self.has_composed_enough() => return (consumed, None),
                Outcome::Done => continue,
                Outcome::ListConnections if self.list_connections(session) => continue,
                Outcome::ListConnections => {
                    consumed = before;
                    Why::Budget
                }
                Outcome::Refused { swallow } => {
                    session.swallow_bytes = swallow;
                    return (consumed, None);
                }
                Outcome::Paused(resume) => {
                    session.resume = Some(resume);
                    Why::Budget
                }
                Outcome::NeedMore { body_bytes } => {
                    consumed = before;
                    Why::NeedMore { wanted_bytes: pending.end - before + body_bytes as usize }
                }
                other => self.leave(other),
            };
            return (consumed, Some(why));
        }
        match tail {
            Tail::Unknown => (consumed, None),
            Tail::NeedMore => (consumed, Some(Why::NeedMore { wanted_bytes: input.len() - consumed + 1 })),
            Tail::Malformed(malformed) => {
                *requests_max = requests_max.saturating_sub(1);
                (consumed + malformed.consumed, self.refuse(session, &malformed))
            }
        }
    }

    /// Looks the keys of a burst up in their buckets, which are cached by now, and prefetches their items.
    fn stage<'a>(&self, burst: &mut [Pending<'a>])
    where
        's: 'a,
    {
        if burst.len() < 2 {
            return;
        }
        let store = &self.shared.store;
        for pending in burst {
            let Some(lookup) = &mut pending.lookup else { continue };
            match pending.command.request {
                Request::Get(_) => lookup.staged = Some(store.stage(lookup.hash)),
                _ => store.prefetch_item(lookup.hash),
            }
        }
    }

    /// Parses commands at the front of `input` and prefetches their index buckets.
    fn parse_burst<'a>(
        &self,
        mut resume: Option<Resume>,
        input: &'a [u8],
        burst: &mut ArrayVec<Pending<'a>, BURST_MAX>,
        requests_max: usize,
    ) -> Tail {
        let (store, limits) = (&self.shared.store, &self.limits);
        let mut end = 0;
        while burst.len() < BURST_MAX.min(requests_max) && end < input.len() {
            let rest = &input[end..];
            let parsed = match resume.take() {
                None => parse(rest, limits),
                Some(resume) => parse_resumed(resume, rest),
            };
            match parsed {
                Parsed::Request { command, consumed } => {
                    end += consumed;
                    let lookup = Lookup::of(store, &command);
                    if let Some(lookup) = &lookup {
                        store.prefetch_bucket(lookup.hash);
                    }
                    let is_last = match command.request {
                        // The value follows.
                        Request::Store(store) => !matches!(store.value, Value::Whole(_)),
                        // It may pause, and then the commands behind it would be parsed again each time.
                        Request::GetMany(_) => true,
                        _ => false,
                    };
                    burst.push(Pending { command, lookup, end });
                    if is_last {
                        return Tail::Unknown;
                    }
                }
                Parsed::NeedMore => return Tail::NeedMore,
                Parsed::Malformed(malformed) => return Tail::Malformed(malformed),
            }
        }
        Tail::Unknown
    }

    fn execute(&mut self, pending: &Pending<'_>, requests_left: &mut usize) -> Executed<M> {
        let (mut context, tx) = self.context();
        memcache::execute(&mut context, &pending.command, pending.lookup, requests_left, tx)
    }

    /// The execution context of this worker, and its buffer for replies.
    fn context(&mut self) -> (Context<'_, M, WorkerPlacement>, &mut Vec<u8>) {
        let shared = self.shared;
        let context = Context {
            store: &shared.store,
            clock: &shared.clock,
            now: self.now_s,
            counters: &shared.workers[self.id.index()].counters,
            placement: &mut self.placement,
            admin: shared,
            prefixes: shared.prefixes.enabled(),
        };
        (context, &mut self.transmit_buffer)
    }

    /// The reason for which an outcome ends the visit.
    fn leave(&self, outcome: Outcome<M>) -> Why<M> {
        match outcome {
            Outcome::SendLarge(reply) => {
                let class = reply.class();
                Why::Large(Work::Send { reply, sent_bytes: 0 }, class)
            }
            Outcome::ReceiveLarge(store) => {
                let class = store.class();
                Why::Large(Work::Receive { store, received_bytes: 0 }, class)
            }
            Outcome::FinishLarge(store) => {
                let class = store.class();
                Why::Large(Work::Finish { store }, class)
            }
            Outcome::Shutdown { graceful } => {
                tracing::info!(graceful, "a client asked the server to stop");
                if graceful {
                    self.shared.stop.request()
                } else {
                    self.shared.stop.request_at_once()
                }
                Why::Close
            }
            Outcome::Quit
            | Outcome::Done
            | Outcome::ListConnections
            | Outcome::Paused(_)
            | Outcome::NeedMore { .. }
            | Outcome::Refused { .. } => Why::Close,
        }
    }

    /// Ends a large store whose bytes have all arrived: the reply goes to the transmit buffer. Returns the
    /// store if bytes still have to be copied.
    pub(crate) fn finish_store(&mut self, store: Box<LargeStore<M>>) -> Option<Box<LargeStore<M>>> {
        let (context, tx) = self.context();
        store.finish(&context, tx)
    }
}
