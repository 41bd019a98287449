//! The requests of one thread, in order.

use std::collections::VecDeque;

use minos_base::seeded_stream;
use rand::{RngExt, rngs::StdRng};
use rand_distr::{Distribution, Exp1};

use super::{
    picker::Inserted,
    spec::Writes,
    trace::TracedOp,
    workload::{Mix, Requests, Stream, Workload},
};

/// The kind of a request.
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
    /// The kind.
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
    /// Recorded: every `threads`-th request of the trace.
    Traced {
        stream: &'a Stream,
        /// Index of the next request.
        next: usize,
        /// Threads that share the trace.
        threads: usize,
        /// True if the first request follows the last one.
        repeats: bool,
    },
    /// Stores every `threads`-th item once.
    Load {
        next: u64,
        /// Threads that share the items.
        threads: u64,
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
    /// Inserts since the oldest unanswered one, true if answered.
    inserts: VecDeque<bool>,
    loaded: u64,
}

impl<'a> OpSource<'a> {
    /// The part of stream `stream` that thread `thread` of `threads` sends, at `rate` per second. It is 0 where
    /// times do not matter: in a closed loop, in which a trace begins again at its end.
    pub(crate) fn of_stream(
        workload: &'a Workload,
        stream: usize,
        thread: usize,
        threads: usize,
        rate: f64,
    ) -> Self {
        let Stream { requests, .. } = &workload.streams[stream];
        match requests {
            Requests::Traced(_) => {
                let repeats = rate == 0.0;
                Self::Traced { stream: &workload.streams[stream], next: thread, threads, repeats }
            }
            Requests::Drawn(mix) => {
                let number = u64::from(workload.draw) << 32 | (stream * threads + thread) as u64;
                let mut drawn = Drawn {
                    mix,
                    rng: seeded_stream(workload.seed(), number),
                    gap_mean_ns: if rate > 0.0 { 1e9 / rate } else { 0.0 },
                    next_ns: 0.0,
                    inserted: Inserted { answered: 0, thread: thread as u64, threads: threads as u64 },
                    inserts: VecDeque::new(),
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
            Self::Traced { stream, next, repeats, .. } => {
                traced_at(stream.traced(), *next, *repeats).map(|op| op.at_ns)
            }
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
            Self::Traced { stream, next, threads, repeats } => {
                let traced = traced_at(stream.traced(), *next, *repeats)?;
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

    /// Takes one more request, to be sent together with the last one. Requests of a trace have their own
    /// times: `None`.
    pub(crate) fn another(&mut self) -> Option<Op> {
        match self {
            Self::Drawn(drawn) => Some(drawn.draw()),
            Self::Traced { .. } => None,
            Self::Load { .. } => self.take(),
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

    /// Notes the answer to the SET of an inserted item.
    /// The item is requested once all before it are answered.
    pub(crate) fn insert_answered(&mut self, item: u64) {
        if let Self::Drawn(drawn) = self {
            drawn.insert_answered(item);
        }
    }
}

/// The request with this index; behind the end, there is none or the trace repeats itself. It is not empty.
fn traced_at(ops: &[TracedOp], index: usize, repeats: bool) -> Option<&TracedOp> {
    ops.get(if repeats { index % ops.len().max(1) } else { index })
}

impl Drawn<'_> {
    fn advance(&mut self) {
        let gap: f64 = Exp1.sample(&mut self.rng);
        self.next_ns += gap * self.gap_mean_ns;
    }

    fn draw(&mut self) -> Op {
        let kind = if self.mix.gets.sample(&mut self.rng) {
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
        if let [(_, first, picker)] = &self.mix.choices[..] {
            return first + picker.pick(&mut self.rng, self.inserted);
        }
        let at: f64 = self.rng.random();
        let found = self.mix.choices.iter().find(|(end, ..)| at < *end).or(self.mix.choices.last());
        let Some((_, first, picker)) = found else { return 0 };
        first + picker.pick(&mut self.rng, self.inserted)
    }

    fn insert(&mut self) -> u64 {
        let Inserted { answered, thread, threads } = self.inserted;
        let item = self.loaded + thread + threads * (answered + self.inserts.len() as u64);
        self.inserts.push_back(false);
        item
    }

    fn insert_answered(&mut self, item: u64) {
        let number = item.saturating_sub(self.loaded) / self.inserted.threads;
        let place = number.checked_sub(self.inserted.answered);
        if let Some(is_answered) = place.and_then(|place| self.inserts.get_mut(place as usize)) {
            *is_answered = true;
        }
        while self.inserts.front() == Some(&true) {
            self.inserts.pop_front();
            self.inserted.answered += 1;
        }
    }
}

impl Stream {
    /// True if requests are drawn without end and only loaded items are written.
    pub(super) fn draws_updates(&self) -> bool {
        matches!(&self.requests, Requests::Drawn(mix) if mix.writes == Writes::Update)
    }

    fn traced(&self) -> &[TracedOp] {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Shape, Workload};

    const DRAWS: usize = 200_000;

    fn open(name: &str, shape: &Shape) -> Workload {
        Workload::open(name, shape, 3).unwrap()
    }

    fn draws(workload: &Workload, stream: usize, rate: f64) -> Vec<(u64, Op)> {
        let mut source = OpSource::of_stream(workload, stream, 0, 1, rate);
        (0..DRAWS).map(|_| (source.next_ns().unwrap(), source.take().unwrap())).collect()
    }

    /// Large requests move the share of the data in table 1 of Minos.
    #[test]
    fn large_requests_move_the_share_of_data_in_table_1() {
        for (name, percent) in [
            ("table1-0.125-250k", 25.0),
            ("table1-0.125-500k", 40.0),
            ("table1-0.125-1000k", 60.0),
            ("table1-0.0625-500k", 25.0),
            ("table1-0.25-500k", 60.0),
            ("table1-0.5-500k", 75.0),
            ("table1-0.75-500k", 80.0),
        ] {
            // Many large keys, so that few sizes do not decide; uniform, so that one hot key does not.
            let shape = Shape { large_keys: Some(10_000), zipf: Some(0.0), ..Shape::default() };
            let workload = open(name, &shape);
            let (mut large, mut all) = (0.0, 0.0);
            for (_, op) in draws(&workload, 0, 1.0) {
                let value_bytes = workload.dataset.value_bytes(op.item) as f64;
                all += value_bytes;
                large += if workload.dataset.class(op.item) == Class::Large { value_bytes } else { 0.0 };
            }
            let share = 100.0 * large / all;
            assert!((share - percent).abs() < 6.0, "{name}: {share:.1} % instead of {percent} %");
        }
    }

    #[test]
    fn etc_has_the_papers_mix() {
        let workload = open("etc", &Shape { large_percent: Some(5.0), ..Shape::default() });
        let (mut sets, mut tiny, mut large) = (0.0, 0.0, 0.0);
        for (_, op) in draws(&workload, 0, 1.0) {
            sets += f64::from(u8::from(op.kind == OpKind::Set));
            tiny += f64::from(u8::from(workload.dataset.value_bytes(op.item) <= 13));
            large += f64::from(u8::from(workload.dataset.class(op.item) == Class::Large));
        }
        let share = |count: f64| count / DRAWS as f64;
        assert!((share(sets) - 0.05).abs() < 0.003, "sets {}", share(sets));
        assert!((share(large) - 0.05).abs() < 0.003, "large {}", share(large));
        assert!((share(tiny) - 0.38).abs() < 0.006, "tiny {}", share(tiny));
    }

    /// Gaps of Poisson arrivals: mean and standard deviation are equal, and 1 - 1/e of them are shorter.
    #[test]
    fn arrivals_are_poisson() {
        let workload = open("etc", &Shape::default());
        let times: Vec<u64> = draws(&workload, 0, 50_000.0).into_iter().map(|(at_ns, _)| at_ns).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
        let shorter = gaps.iter().filter(|&&gap| gap < 20_000.0).count() as f64 / count;
        assert!((mean / 20_000.0 - 1.0).abs() < 0.02, "mean {mean}");
        assert!((deviation / mean - 1.0).abs() < 0.02, "deviation {deviation}");
        assert!((shorter - 0.632).abs() < 0.005, "shorter {shorter}");
    }

    #[test]
    fn the_seed_decides() {
        let shape = Shape::default();
        let one = draws(&open("etc", &shape), 0, 1e3);
        assert_eq!(one, draws(&open("etc", &shape), 0, 1e3));
        assert_ne!(one, draws(&Workload::open("etc", &shape, 4).unwrap(), 0, 1e3));
    }

    #[test]
    fn noise_is_many_small_gets_and_a_trickle_of_large_ones() {
        let workload = open("noise", &Shape::default());
        assert_eq!((workload.streams[0].rate, workload.streams[1].rate), (None, Some(20.0)));
        assert_eq!((workload.streams[0].connections, workload.streams[1].connections), (None, Some(4)));
        let is = |stream, class| {
            draws(&workload, stream, 1.0)
                .iter()
                .all(|(_, op)| op.kind == OpKind::Get && workload.dataset.class(op.item) == class)
        };
        assert!(is(0, Class::Small) && is(1, Class::Large));
        let large = draws(&workload, 1, 1.0)[0].1.item;
        assert_eq!(workload.dataset.value_bytes(large), 10_000_000);
    }

    #[test]
    fn ycsb_d_reads_what_it_inserted() {
        let workload = open("ycsb-d", &Shape { keys: Some(1000), ..Shape::default() });
        let mut source = OpSource::of_stream(&workload, 0, 1, 2, 1.0);
        let (mut inserted, mut answered, mut fresh) = (Vec::new(), 0, 0);
        for _ in 0..DRAWS {
            let op = source.take().unwrap();
            if op.kind == OpKind::Insert {
                assert!(op.item >= 1000 && op.item % 2 == 1);
                inserted.push(op.item);
            } else if op.item >= 1000 {
                assert!(inserted[..answered].contains(&op.item), "{} was not answered", op.item);
                fresh += 1;
            }
            // Answers come some inserts later, and in pairs the wrong way around.
            if inserted.len() > answered + 3 && inserted.len() < 1000 {
                source.insert_answered(inserted[answered + 1]);
                source.insert_answered(inserted[answered]);
                answered += 2;
            }
        }
        assert!(fresh > DRAWS / 2, "{fresh}");
    }

    #[test]
    fn a_load_stores_every_item_once() {
        let workload = open("etc", &Shape { keys: Some(100), large_keys: Some(7), ..Shape::default() });
        let mut items = Vec::new();
        for thread in 0..3 {
            let mut source = OpSource::load(&workload, thread, 3);
            items.extend(std::iter::from_fn(|| source.take()).map(|op| op.item));
        }
        items.sort_unstable();
        assert!(items.into_iter().eq(0..107));
    }

    #[test]
    fn a_trace_is_shared_by_the_threads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "0,set,a,5\n1,get,a,5\n2,get,b,9\n").unwrap();
        let workload = open(path.to_str().unwrap(), &Shape::default());
        assert_eq!(workload.item_count(), 2);
        let mut source = OpSource::of_stream(&workload, 0, 0, 2, 1.0);
        assert_eq!(source.take().map(|op| op.kind), Some(OpKind::Set));
        assert_eq!(source.next_ns(), Some(2_000_000_000));
        assert_eq!(source.take().map(|op| (op.item, op.value_bytes)), Some((1, Some(9))));
        assert_eq!(source.take(), None);
        // In a closed loop it begins again.
        let mut source = OpSource::of_stream(&workload, 0, 0, 2, 0.0);
        let items: Vec<_> = (0..6).filter_map(|_| source.take()).map(|op| op.item).collect();
        assert_eq!((items, source.next_ns()), (vec![0, 1, 0, 0, 1, 0], Some(0)));
    }
}
