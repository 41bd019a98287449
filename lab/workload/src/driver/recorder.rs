//! The measurements of one thread.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use minos_proto::client::Refusal;

use crate::Class;

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The server said that the request was wrong.
    Client,
    /// The server said that it could not: out of memory, too large an object.
    Server,
    /// The server said that it did not store the value.
    NotStored,
    /// The server said that it has too much to do.
    Busy,
    /// The value is larger than the protocol of the target carries.
    TooLarge,
    /// The server is a node of a rack that has not the key; the driver does not follow keys from node to node.
    NotOwner,
    /// A value came back that is not what was stored.
    Mismatch,
    /// The bytes received were no reply, or a reply to another request.
    Protocol,
    /// The connection was closed.
    Closed,
    /// A file of the workload could not be read.
    File,
}

impl ErrorKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client_error",
            Self::Server => "server_error",
            Self::NotStored => "not_stored",
            Self::Busy => "busy",
            Self::TooLarge => "too_large",
            Self::NotOwner => "not_owner",
            Self::Mismatch => "mismatch",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
            Self::File => "file",
        }
    }
}

impl From<Refusal> for ErrorKind {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotStored => Self::NotStored,
            Refusal::Client => Self::Client,
            Refusal::Server => Self::Server,
        }
    }
}

/// Longest latency that is recorded, in nanoseconds: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Three digits: a quantile is right within 0.1 %.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("the bounds are constants that fit")
}

/// The measurements of one thread. Everything counts the operations meant to be sent within the window,
/// but `completed_in_window`, which counts replies.
#[derive(Debug)]
pub(super) struct Recorder {
    /// From when to when, in nanoseconds since the start.
    pub(super) window_ns: std::ops::Range<u64>,
    pub(super) small: Histogram<u64>,
    pub(super) large: Histogram<u64>,
    /// Delay from the intended send time until a request was given to the kernel.
    pub(super) send_lag: Histogram<u64>,
    /// Delay from the kernel's stamp of a reply until it was read.
    pub(super) receive_lag: Histogram<u64>,
    pub(super) errors: BTreeMap<ErrorKind, u64>,
    pub(super) completed_in_window: u64,
    /// Operations in them: keys of a GET, operations of a vector.
    pub(super) operations_in_window: u64,
    pub(super) keys_missed: u64,
    pub(super) lost: u64,
    /// Replies that carried no stamp of the kernel.
    pub(super) unstamped: u64,
    pub(super) time: DriverTime,
}

/// Time spent by spinning driver threads, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DriverTime {
    pub(super) all_ns: u64,
    /// In turns in which something was sent or received.
    pub(super) busy_ns: u64,
    /// In composing requests and giving them to the kernel.
    pub(super) sending_ns: u64,
    /// Turns that took longer than [`LONG_TURN`](minos_base::limits::LONG_TURN).
    pub(super) long_turns: u64,
}

impl Recorder {
    pub(super) fn new(window_ns: std::ops::Range<u64>) -> Self {
        Self {
            window_ns,
            small: histogram(),
            large: histogram(),
            send_lag: histogram(),
            receive_lag: histogram(),
            errors: BTreeMap::new(),
            completed_in_window: 0,
            operations_in_window: 0,
            keys_missed: 0,
            lost: 0,
            unstamped: 0,
            time: DriverTime::default(),
        }
    }

    pub(super) fn is_measured(&self, intended_ns: u64) -> bool {
        self.window_ns.contains(&intended_ns)
    }

    /// A request of `operations` operations was answered correctly.
    pub(super) fn completed(&mut self, class: Class, operations: u32, intended_ns: u64, arrived_ns: u64) {
        if self.window_ns.contains(&arrived_ns) {
            self.completed_in_window += 1;
            self.operations_in_window += u64::from(operations);
        }
        if self.is_measured(intended_ns) {
            let histogram = match class {
                Class::Small => &mut self.small,
                Class::Large => &mut self.large,
            };
            histogram.saturating_record(arrived_ns.saturating_sub(intended_ns).max(1));
        }
    }

    pub(super) fn failed(&mut self, kind: ErrorKind, intended_ns: u64) {
        if self.is_measured(intended_ns) {
            *self.errors.entry(kind).or_default() += 1;
        }
    }

    /// An operation that was not answered, or not even sent, when time was up.
    pub(super) fn lost(&mut self, intended_ns: u64) {
        self.lost += u64::from(self.is_measured(intended_ns));
    }

    pub(super) fn sent(&mut self, intended_ns: u64, now_ns: u64) {
        if self.is_measured(intended_ns) {
            self.send_lag.saturating_record(now_ns.saturating_sub(intended_ns).max(1));
        }
    }

    /// A reply was read `lag_ns` after the kernel's stamp.
    pub(super) fn looked_at_after(&mut self, lag_ns: u64) {
        self.receive_lag.saturating_record(lag_ns.max(1));
    }

    /// So many keys of an operation were not found.
    pub(super) fn missed(&mut self, keys: u64, intended_ns: u64) {
        if self.is_measured(intended_ns) {
            self.keys_missed += keys;
        }
    }

    /// Adds what another thread measured in the same window.
    pub(super) fn merge(&mut self, other: &Self) {
        let add = |sum: &mut Histogram<u64>, part| sum.add(part).expect("both have the same bounds");
        add(&mut self.small, &other.small);
        add(&mut self.large, &other.large);
        add(&mut self.send_lag, &other.send_lag);
        add(&mut self.receive_lag, &other.receive_lag);
        for (kind, count) in &other.errors {
            *self.errors.entry(*kind).or_default() += count;
        }
        self.completed_in_window += other.completed_in_window;
        self.operations_in_window += other.operations_in_window;
        self.keys_missed += other.keys_missed;
        self.lost += other.lost;
        self.unstamped += other.unstamped;
        self.time.all_ns += other.time.all_ns;
        self.time.busy_ns += other.time.busy_ns;
        self.time.sending_ns += other.time.sending_ns;
        self.time.long_turns += other.time.long_turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_outside_the_window_does_not_count() {
        let mut recorder = Recorder::new(100..200);
        recorder.completed(Class::Small, 1, 50, 60);
        recorder.completed(Class::Small, 32, 50, 150);
        recorder.completed(Class::Large, 1, 199, 250);
        recorder.failed(ErrorKind::Server, 10);
        recorder.failed(ErrorKind::Server, 110);
        recorder.lost(200);
        recorder.lost(100);
        assert_eq!((recorder.small.len(), recorder.large.len()), (0, 1));
        assert_eq!(recorder.large.max(), 51);
        assert_eq!((recorder.completed_in_window, recorder.operations_in_window), (1, 32));
        assert_eq!(recorder.errors[&ErrorKind::Server], 1);
        assert_eq!(recorder.lost, 1);
    }

    #[test]
    fn threads_add_up() {
        let mut sum = Recorder::new(0..10);
        let mut part = Recorder::new(0..10);
        part.completed(Class::Small, 1, 1, 3);
        part.failed(ErrorKind::Closed, 1);
        sum.merge(&part);
        sum.merge(&part);
        assert_eq!((sum.small.len(), sum.errors[&ErrorKind::Closed], sum.completed_in_window), (2, 2, 2));
    }
}
