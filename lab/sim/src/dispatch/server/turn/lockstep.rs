//! The simulator's workers take the same steps as the server's workers.

use minos_base::SizeClass;
use minos_sched::{SizeHistogram, WorkerSet};
use minos_testkit::turns::{self, Recorded};

use super::*;
use crate::dispatch::{Costs, Spec};

/// Sizes of a small and of a large value, and the number of requests for each when the plan is made. Under
/// the paper's design, two of three workers are then small.
const SMALL: (u64, u64) = (100, 9_900);
const LARGE: (u64, u64) = (50_000, 200);
const THRESHOLD_BYTES: u64 = 1000;
const SLICE_BYTES: u64 = 20_000;

fn spec(recorded: &Recorded) -> Spec {
    // A link that no reply waits for.
    let costs = Costs { link_gbps: 1e5, ..Costs::kernel_bypass() };
    Spec {
        workers: 3,
        steal: recorded.steals,
        threshold: Threshold::Static(THRESHOLD_BYTES),
        slice_bytes: SLICE_BYTES,
        costs,
        ..Spec::new(recorded.design.parse().unwrap(), 1e6)
    }
}

impl Server<'_> {
    /// A request arrives at an RX queue. No worker is woken.
    fn arrive_at(&mut self, queue: usize, is_large: bool) {
        let (value_bytes, _) = if is_large { LARGE } else { SMALL };
        let class = SizeClass::of(value_bytes);
        let drawn = self.requests.draw(self.calendar.now(), false);
        let value_bytes = value_bytes as u32;
        self.arrive(Request {
            queue: queue as u8,
            value_bytes,
            class,
            is_get: true,
            large: is_large,
            ..drawn
        });
    }

    /// A turn of one worker while the others stand still.
    fn turn_alone(&mut self, worker: WorkerId) -> Vec<String> {
        let mut steps = Vec::new();
        while let Some((step, found)) = self.step(worker) {
            steps.push(turns::step(step, found));
            self.settle(worker);
        }
        self.end_turn(worker);
        steps
    }

    /// Advances the time until `worker` has ended its step and everything sent has left.
    fn settle(&mut self, worker: WorkerId) {
        while let Some(event) = self.calendar.take_next() {
            match event {
                Event::Ready(_) if self.finish(worker) => {
                    self.place_next(worker);
                }
                Event::Sent => self.packet_has_gone(),
                _ => {}
            }
        }
    }
}

#[test]
fn each_step_is_as_recorded() {
    for recorded in turns::recorded() {
        let spec = spec(&recorded);
        let mut policy = spec.policy().unwrap();
        let mut requests = SizeHistogram::new();
        for (bytes, count) in [SMALL, LARGE] {
            requests.record(SizeClass::of(bytes), count);
        }
        policy.epoch(&requests);
        let mut server = Server::new(&spec, policy);
        server.idle = WorkerSet::EMPTY;
        for (number, event) in recorded.events.iter().enumerate() {
            match event {
                turns::Event::Arrive { queue, is_large } => server.arrive_at(*queue, *is_large),
                turns::Event::Turn { worker, steps } => {
                    let taken = server.turn_alone(WorkerId(*worker as u16));
                    assert_eq!(taken, *steps, "{}, event {number}", recorded.design);
                }
            }
        }
    }
}
