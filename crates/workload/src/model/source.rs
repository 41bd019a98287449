//! The requests of one thread, in order.

use minos_base::seeded_stream;
use rand::{RngExt, rngs::StdRng};
use rand_distr::{Distribution, Exp1};

use super::{
    picker::Inserted,
    spec::Writes,
    workload::{Mix, Requests, Stream, Workload},
};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// GET.
    Get,
    /// SET.
    Set,
    /// SET of an item that is new.
    Insert,
    /// GET, and SET when the reply has come.
    ReadModifyWrite,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The item it is about.
    pub item: u64,
    /// Bytes to store, if not the item's own size.
    pub value_bytes: Option<u64>,
}

/// The requests that one thread makes of one stream, with the times they are meant to be sent at.
#[derive(Debug)]
pub(crate) enum OpSource<'a> {
    /// Drawn: Poisson arrivals (Minos §5.4).
    Drawn(Box<Drawn<'a>>),
    /// Recorded: every so-many-th request of the trace.
    Traced {
        /// The stream.
        stream: &'a Stream,
        /// Index of the next request.
        next: usize,
        /// Threads that share the trace.
        threads: usize,
    },
    /// Every so-many-th item is stored once.
    Load {
        /// The next item.
        next: u64,
        /// Threads that share the items.
        threads: u64,
        /// Number of items.
        end: u64,
    },
}

/// State of drawn requests.
#[derive(Debug)]
pub(crate) struct Drawn<'a> {
    mix: &'a Mix,
    rng: StdRng,
    gap_mean_ns: f64,
    next_ns: f64,
    inserted: Inserted,
    /// Items inserted, answered or not.
    inserts: u64,
    loaded: u64,
}

impl<'a> OpSource<'a> {
    /// The part of stream `stream` that thread `thread` of `threads` sends, at `rate` per second (which
    /// may be 0 where times do not matter).
    pub(crate) fn of_stream(
        workload: &'a Workload,
        stream: usize,
        thread: usize,
        threads: usize,
        rate: f64,
    ) -> Self {
        let Stream { requests, .. } = &workload.streams[stream];
        match requests {
            Requests::Traced(_) => Self::Traced { stream: &workload.streams[stream], next: thread, threads },
            Requests::Drawn(mix) => {
                let number = (stream * threads + thread) as u64;
                let mut drawn = Drawn {
                    mix,
                    rng: seeded_stream(workload.seed(), number),
                    gap_mean_ns: if rate > 0.0 { 1e9 / rate } else { 0.0 },
                    next_ns: 0.0,
                    inserted: Inserted { answered: 0, thread: thread as u64, threads: threads as u64 },
                    inserts: 0,
                    loaded: workload.item_count(),
                };
                drawn.advance();
                Self::Drawn(Box::new(drawn))
            }
        }
    }

    /// The part of the items that thread `thread` of `threads` stores.
    pub(crate) fn load(workload: &Workload, thread: usize, threads: usize) -> Self {
        Self::Load { next: thread as u64, threads: threads as u64, end: workload.item_count() }
    }

    /// When the next request is meant to be sent, in nanoseconds since the start; none when there is none.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        match self {
            Self::Drawn(drawn) => Some(drawn.next_ns as u64),
            Self::Traced { stream, next, .. } => stream.traced().get(*next).map(|op| op.at_ns),
            Self::Load { next, end, .. } => (next < end).then_some(0),
        }
    }

    /// Takes the next request.
    pub(crate) fn take(&mut self) -> Option<Op> {
        match self {
            Self::Drawn(drawn) => {
                drawn.advance();
                Some(drawn.draw())
            }
            Self::Traced { stream, next, threads } => {
                let traced = stream.traced().get(*next)?;
                *next += *threads;
                let kind = if traced.is_set { OpKind::Set } else { OpKind::Get };
                Some(Op { kind, item: traced.item, value_bytes: Some(traced.value_bytes) })
            }
            Self::Load { next, threads, end } => {
                let item = (*next < *end).then_some(*next)?;
                *next += *threads;
                Some(Op { kind: OpKind::Set, item, value_bytes: None })
            }
        }
    }

    /// Another item to ask for in the same multi-get.
    pub(crate) fn companion(&mut self, item: u64) -> u64 {
        match self {
            Self::Drawn(drawn) => drawn.pick(),
            Self::Traced { .. } | Self::Load { .. } => item,
        }
    }

    /// A number below `count`, for choices that are not the workload's.
    pub(crate) fn choose(&mut self, count: usize) -> usize {
        match self {
            Self::Drawn(drawn) => drawn.rng.random_range(0..count),
            Self::Traced { next, threads, .. } => (*next / *threads) % count,
            Self::Load { next, threads, .. } => ((*next / *threads) % count as u64) as usize,
        }
    }

    /// Says that the oldest insert without an answer has been answered.
    pub(crate) fn insert_answered(&mut self) {
        if let Self::Drawn(drawn) = self {
            drawn.inserted.answered += 1;
        }
    }
}

impl Drawn<'_> {
    fn advance(&mut self) {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.next_ns += gap * self.gap_mean_ns;
    }

    fn draw(&mut self) -> Op {
        let kind = if self.rng.random_bool(self.mix.get_ratio) {
            OpKind::Get
        } else {
            match self.mix.writes {
                Writes::Update => OpKind::Set,
                Writes::Insert => OpKind::Insert,
                Writes::ReadModifyWrite => OpKind::ReadModifyWrite,
            }
        };
        let item = if kind == OpKind::Insert { self.insert() } else { self.pick() };
        Op { kind, item, value_bytes: None }
    }

    fn pick(&mut self) -> u64 {
        let at: f64 = self.rng.random();
        let found = self.mix.choices.iter().find(|(end, ..)| at < *end).or(self.mix.choices.last());
        let Some((_, first, picker)) = found else { return 0 };
        first + picker.pick(&mut self.rng, self.inserted)
    }

    fn insert(&mut self) -> u64 {
        let item = self.loaded + self.inserted.thread + self.inserted.threads * self.inserts;
        self.inserts += 1;
        item
    }
}

impl Stream {
    fn traced(&self) -> &[super::trace::TracedOp] {
        match &self.requests {
            Requests::Traced(ops) => ops,
            Requests::Drawn(_) => &[],
        }
    }

    /// When the recorded requests end, in nanoseconds; none for drawn ones, which do not.
    pub(crate) fn recorded_ns(&self) -> Option<u64> {
        self.traced().last().map(|op| op.at_ns)
    }
}
