//! The duration of steps, computed from the costs.

use std::sync::Arc;

use super::{
    client::Job,
    costs::{AfterIdle, ClientCosts, Costs, is_nothing},
    link::{TICKS_A_NS, packets},
    processor::{Kinds, Speed},
    workload::Request,
};
use crate::Ticks;

fn ticks(ns: f64) -> Ticks {
    (ns * TICKS_A_NS + 0.5) as Ticks
}

fn signed_ticks(ns: f64) -> i64 {
    libm::round(ns * TICKS_A_NS) as i64
}

#[derive(Clone, Debug)]
pub(super) struct TickCosts {
    per_request: Ticks,
    per_put: Ticks,
    per_long_reply: Ticks,
    pub(super) per_slice: Ticks,
    after_idle: AfterIdle,
    client: ClientCosts,
    inbound: Moving,
    outbound: Moving,
    pub(super) lookup: Ticks,
    pub(super) hand_off: Ticks,
    /// A look at an RX queue.
    pub(super) poll: Ticks,
    /// A look at a ring.
    pub(super) ring_poll: Ticks,
    pub(super) wake: Ticks,
    pub(super) profile: Ticks,
    network: i64,
    pub(super) pauses: Arc<Kinds>,
    pub(super) worker_speed: Speed,
    pub(super) client_speed: Speed,
    /// Ticks per byte on the link.
    pub(super) link_byte: f64,
}

/// Costs of one direction: the call, the first packet of a value, further ones, and bytes.
#[derive(Clone, Copy, Debug)]
struct Moving {
    call: Ticks,
    packet: Ticks,
    segment: Ticks,
    byte: f64,
}

impl TickCosts {
    pub(super) fn new(costs: &Costs) -> Self {
        let moving = |[call, packet, segment, byte]: [f64; 4]| Moving {
            call: ticks(call),
            packet: ticks(packet),
            segment: ticks(segment),
            byte: byte * TICKS_A_NS,
        };
        let Costs { per_receive_ns, per_packet_ns, per_send_ns, per_byte_ns, .. } = *costs;
        Self {
            per_request: ticks(costs.per_request_ns),
            per_put: ticks(costs.per_put_ns),
            per_long_reply: ticks(costs.per_long_reply_ns),
            per_slice: ticks(costs.per_slice_ns),
            after_idle: costs.after_idle,
            client: costs.client,
            inbound: moving([per_receive_ns, per_packet_ns, costs.per_segment(), costs.per_byte_in()]),
            outbound: moving([per_send_ns, costs.per_packet_out(), costs.per_segment_out(), per_byte_ns]),
            lookup: ticks(costs.lookup_ns),
            hand_off: ticks(costs.hand_off_ns),
            poll: ticks(costs.poll_ns).max(1),
            ring_poll: ticks(costs.ring_poll()).max(1),
            wake: ticks(costs.wake_ns),
            profile: ticks(costs.profile_ns),
            network: signed_ticks(costs.network_ns),
            pauses: Arc::new(Kinds::new(&costs.pauses)),
            worker_speed: Speed::new(costs.speed.span_us, &costs.speed.worker),
            client_speed: Speed::new(costs.speed.span_us, &costs.speed.client),
            link_byte: 8.0 / costs.link_gbps * TICKS_A_NS,
        }
    }

    /// The latency of a request that took `ticks` in the server and its client.
    pub(super) fn latency(&self, ticks: Ticks) -> Ticks {
        ticks.saturating_add_signed(self.network)
    }

    /// True if clients' costs are simulated.
    pub(super) fn clients_are_busy(&self) -> bool {
        !is_nothing(&self.client)
    }

    /// True if a latency ends when the reply arrives, before its client receives it.
    pub(super) fn arrivals_are_dated(&self) -> bool {
        self.client.dates_arrivals
    }

    /// The duration of a client's job.
    pub(super) fn client(&self, job: &Job) -> Ticks {
        let ClientCosts { send_ns, sent_byte_ns, receive_ns, received_byte_ns, .. } = self.client;
        match job {
            Job::Send(request) => ticks(send_ns + sent_byte_ns * request.bytes_in() as f64),
            Job::Receive(part) => ticks(receive_ns + received_byte_ns * part.value_bytes as f64),
        }
    }

    /// To receive a burst, without its packets.
    pub(super) fn receive_call(&self) -> Ticks {
        self.inbound.call
    }

    /// To send composed replies, without their packets.
    pub(super) fn send_call(&self) -> Ticks {
        self.outbound.call
    }

    /// To receive a request.
    pub(super) fn receive(&self, request: &Request) -> Ticks {
        self.inbound.packets(packets(request.bytes_in()))
    }

    /// To execute a request whose item was found.
    pub(super) fn execute(&self, request: &Request) -> Ticks {
        let put = if request.is_get { 0 } else { self.per_put };
        let long = if request.is_long() { self.per_long_reply } else { 0 };
        let AfterIdle { request_ns, long_reply_ns, .. } = self.after_idle;
        let more_ns = if request.is_long() { long_reply_ns } else { request_ns };
        let more = if request.after_idle { ticks(more_ns) } else { 0 };
        self.per_request + put + long + more + self.take_in(request)
    }

    /// To copy the bytes of a value that is stored. Part of [`TickCosts::execute`].
    pub(super) fn take_in(&self, request: &Request) -> Ticks {
        self.inbound.copy(request.bytes_in())
    }

    /// To make and send packets with `value_bytes` of the reply to `request`, without the call.
    pub(super) fn send(&self, request: &Request, value_bytes: u64) -> Ticks {
        let is_dear = request.after_idle && request.is_long();
        let more = if is_dear { ticks(self.after_idle.long_byte_ns * value_bytes as f64) } else { 0 };
        self.outbound.packets(packets(value_bytes)) + self.outbound.copy(value_bytes) + more
    }
}

impl Moving {
    fn packets(&self, packets: u64) -> Ticks {
        self.packet + self.segment * (packets - 1)
    }

    fn copy(&self, bytes: u64) -> Ticks {
        (bytes as f64 * self.byte + 0.5) as Ticks
    }
}

#[cfg(test)]
mod tests {
    use minos_base::limits::PACKET_BYTES;

    use super::*;
    use crate::{
        Random,
        dispatch::{Mix, client::Part, workload::Requests},
    };

    /// A GET of a value of `bytes`.
    fn get(bytes: u64) -> Request {
        let drawn = Requests::new(Mix::PAPER, 1, Random::new(1, 1)).draw(0, true);
        Request { is_get: true, value_bytes: bytes as u32, ..drawn }
    }

    #[test]
    fn what_is_left_out_is_as_before() {
        let ticks = TickCosts::new(&Costs::kernel_bypass());
        assert_eq!((ticks.receive_call(), ticks.send_call(), ticks.wake), (0, 0, 0));
        assert_eq!((ticks.poll, ticks.ring_poll), (30_000, 30_000));
        let long = get(2 * PACKET_BYTES);
        assert_eq!(ticks.send(&long, long.bytes_out()), 2 * 60_000 + 2 * 1448 * 136);
        assert_eq!(ticks.latency(7), 3_750_007);
        assert!(!ticks.clients_are_busy());
    }

    #[test]
    fn each_way_costs_what_is_said_of_it() {
        let costs = Costs {
            per_packet_ns: 10.0,
            per_packet_out_ns: Some(20.0),
            per_segment_out_ns: Some(3.0),
            per_byte_ns: 0.0,
            ..Costs::sockets()
        };
        let (ticks, long) = (TickCosts::new(&costs), get(3 * PACKET_BYTES));
        assert_eq!(ticks.send(&long, 1), 20_000);
        assert_eq!(ticks.send(&long, long.bytes_out()), 26_000);
    }

    #[test]
    fn what_comes_after_a_pause_costs_more() {
        let after_idle = AfterIdle { request_ns: 2.0, long_reply_ns: 10.0, long_byte_ns: 0.5 };
        let ticks = TickCosts::new(&Costs { after_idle, ..Costs::sockets() });
        let more = |request: Request, bytes| {
            let first = Request { after_idle: true, ..request };
            let execute = ticks.execute(&first) - ticks.execute(&request);
            (execute, ticks.send(&first, bytes) - ticks.send(&request, bytes))
        };
        assert_eq!(more(get(100), 100), (2000, 0));
        assert_eq!(more(get(10_000), 1000), (10_000, 500_000));
    }

    #[test]
    fn clients_pay_for_requests_and_for_replies() {
        let client = ClientCosts {
            send_ns: 3.0,
            sent_byte_ns: 0.1,
            receive_ns: 2.0,
            received_byte_ns: 0.2,
            dates_arrivals: false,
        };
        let ticks = TickCosts::new(&Costs { client, ..Costs::sockets() });
        let put = Request { is_get: false, ..get(50) };
        assert!(ticks.clients_are_busy());
        assert_eq!([get(50), put].map(|request| ticks.client(&Job::Send(request))), [3000, 8000]);
        let part = Part { request: get(5000), value_bytes: 20, is_last: false };
        assert_eq!(ticks.client(&Job::Receive(part)), 6000);
    }

    #[test]
    fn nothing_ends_before_it_began() {
        let ticks = TickCosts::new(&Costs { network_ns: -5.0, ..Costs::sockets() });
        assert_eq!([5003, 3].map(|short| ticks.latency(short)), [3, 0]);
    }
}
