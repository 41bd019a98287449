//! The requests of a workload, for callers that execute them instead of sending them.

use super::{Op, OpSource, Workload};

/// The requests of one thread in order, without send times. It never ends.
#[derive(Debug)]
pub struct Ops<'a>(OpSource<'a>);

impl Workload {
    /// The requests of thread `thread` among `threads`; `None` unless all of them are GETs and SETs of loaded
    /// items, drawn in one stream.
    pub fn ops(&self, thread: usize, threads: usize) -> Option<Ops<'_>> {
        let [stream] = &self.streams[..] else { return None };
        stream.draws_updates().then(|| Ops(OpSource::of_stream(self, 0, thread, threads, 0.0)))
    }

    /// Appends the key of an item, which is below [`Workload::item_count`].
    pub fn write_key(&self, item: u64, out: &mut Vec<u8>) {
        self.dataset.write_key(item, out);
    }

    /// Bytes of the value of an item, which is below [`Workload::item_count`].
    pub fn value_bytes(&self, item: u64) -> u64 {
        self.dataset.value_bytes(item)
    }
}

impl Ops<'_> {
    /// Another item, drawn by the same popularity, to replace one that a request cannot use.
    pub fn other_item(&mut self) -> u64 {
        self.0.companion(0)
    }
}

impl Iterator for Ops<'_> {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpKind, Shape, Workload};

    fn open(name: &str) -> Workload {
        Workload::open(name, &Shape { keys: Some(1000), ..Shape::default() }, 1).unwrap()
    }

    #[test]
    fn ops_are_gets_and_sets_of_loaded_items() {
        let workload = open("mica-tiny");
        let mut ops = workload.ops(1, 2).unwrap();
        let drawn: Vec<_> = ops.by_ref().take(10_000).collect();
        assert!(drawn.iter().all(|op| op.item < 1000 && op.value_bytes.is_none()));
        let sets = drawn.iter().filter(|op| op.kind == OpKind::Set).count();
        assert!((400..600).contains(&sets), "{sets}");
        let others: Vec<_> = (0..100).map(|_| ops.other_item()).collect();
        assert!(others.iter().all(|item| *item < 1000) && others.iter().any(|item| *item != others[0]));
        assert!(!drawn.iter().eq(workload.ops(0, 2).unwrap().take(10_000).collect::<Vec<_>>().iter()));
    }

    #[test]
    fn what_is_no_plain_mix_is_refused() {
        for (name, is_plain) in [("ycsb-b", true), ("ycsb-d", false), ("ycsb-f", false), ("noise", false)] {
            assert_eq!(open(name).ops(0, 1).is_some(), is_plain, "{name}");
        }
    }
}
