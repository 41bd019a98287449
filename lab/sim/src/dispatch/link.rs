//! A link that several flows share, packet by packet in turn.

use std::{collections::VecDeque, ops::Range};

use minos_base::limits::PACKET_BYTES;

use crate::Ticks;

/// Bytes that each packet carries on the wire beside the value: preamble, gap and checksum, the
/// headers of Ethernet, IP and UDP, and 8 of the request's own.
const PACKET_OVERHEAD_BYTES: u64 = 24 + 14 + 20 + 8 + 8;

/// Ticks in a nanosecond: a packet of 84 bytes takes 16.8 ns at 40 Gbit/s, so that whole nanoseconds are
/// too coarse.
pub(super) const TICKS_A_NS: f64 = 1000.0;

/// Packets that carry `value_bytes`.
pub(super) fn packets(value_bytes: u64) -> u64 {
    value_bytes.div_ceil(PACKET_BYTES).max(1)
}

#[derive(Debug)]
struct Flow<T> {
    messages: VecDeque<Message<T>>,
    /// Packets that are not sent yet: descriptors in use.
    packets: u64,
    /// Bytes that it may still send in this turn; negative if it has sent too many.
    credit: i64,
}

/// A turn, in bytes.
const TURN: i64 = (PACKET_BYTES + PACKET_OVERHEAD_BYTES) as i64;

/// A message on the link. `token` is returned when its last byte has been sent.
#[derive(Clone, Copy, Debug)]
struct Message<T> {
    bytes_left: u64,
    token: Option<T>,
}

/// A link: flows with a queue each that take turns, a full packet's bytes or a little more in each. That is
/// how a NIC empties its TX queues, and how packets of several clients come to the same port.
#[derive(Debug)]
pub(super) struct Link<T> {
    flows: Vec<Flow<T>>,
    /// Flows that have something to send, the next one first.
    turns: VecDeque<usize>,
    is_turn_over: bool,
    /// The packet being sent: its flow and, if it ends a message, the token.
    sending: Option<(usize, Option<T>)>,
    ticks_a_byte: f64,
    pub(super) busy: Ticks,
}

impl<T: Copy> Link<T> {
    pub(super) fn new(flows: usize, ticks_a_byte: f64) -> Self {
        Self {
            flows: (0..flows).map(|_| Flow { messages: VecDeque::new(), packets: 0, credit: TURN }).collect(),
            turns: VecDeque::new(),
            is_turn_over: false,
            sending: None,
            ticks_a_byte,
            busy: 0,
        }
    }

    /// Queues a message behind the others of `flow`. If the link was idle, returns the time until the packet
    /// that now begins is sent: the caller then calls [`Link::sent`].
    #[must_use]
    pub(super) fn send(&mut self, flow: usize, bytes: u64, token: Option<T>) -> Option<Ticks> {
        if self.flows[flow].messages.is_empty() {
            self.turns.push_back(flow);
        }
        self.flows[flow].packets += packets(bytes);
        self.flows[flow].messages.push_back(Message { bytes_left: bytes, token });
        if self.sending.is_none() { self.begin() } else { None }
    }

    /// Packets of `flow` that are not sent yet.
    pub(super) fn packets_of(&self, flow: usize) -> u64 {
        self.flows[flow].packets
    }

    /// True if at least `enough` value bytes wait in `flows`.
    pub(super) fn is_behind(&self, flows: Range<usize>, enough: u64) -> bool {
        let mut left = enough;
        let waiting = self.flows[flows].iter().flat_map(|flow| &flow.messages);
        waiting.map(|message| message.bytes_left).any(|bytes| {
            left = left.saturating_sub(bytes);
            left == 0
        })
    }

    /// Ends a packet. Returns its flow, the token of the message that ended with it, and the time until the
    /// next packet is sent.
    #[must_use]
    pub(super) fn sent(&mut self) -> (Option<usize>, Option<T>, Option<Ticks>) {
        let (flow, ended) = self.sending.take().unzip();
        if let Some(flow) = flow {
            self.flows[flow].packets -= 1;
        }
        (flow, ended.flatten(), self.begin())
    }

    fn begin(&mut self) -> Option<Ticks> {
        // Rotates only now: a flow that came while the last packet was sent is served before this one.
        if std::mem::take(&mut self.is_turn_over) {
            self.turns.rotate_left(1);
        }
        let flow = *self.turns.front()?;
        let Flow { messages, credit, .. } = &mut self.flows[flow];
        let message = messages.front_mut()?;
        let bytes = message.bytes_left.min(PACKET_BYTES);
        message.bytes_left -= bytes;
        let mut ended = None;
        if message.bytes_left == 0 {
            ended = message.token;
            messages.pop_front();
        }
        let bytes = bytes + PACKET_OVERHEAD_BYTES;
        *credit -= bytes as i64;
        if messages.is_empty() {
            self.turns.pop_front();
            *credit = TURN;
        } else if *credit <= 0 {
            *credit += TURN;
            self.is_turn_over = true;
        }
        self.sending = Some((flow, ended));
        let ticks = (bytes as f64 * self.ticks_a_byte + 0.5) as Ticks;
        self.busy += ticks;
        Some(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_and_a_flow_keeps_its_order() {
        let mut link = Link::new(2, 1.0);
        let mut next = link.send(0, 3 * PACKET_BYTES, Some('a'));
        for message in [link.send(0, 1, Some('b')), link.send(1, PACKET_BYTES, Some('c'))] {
            assert_eq!(message, None);
        }
        let (mut now, mut had) = (0, Vec::new());
        while let Some(ticks) = next {
            now += ticks;
            let (_, ended, then) = link.sent();
            had.extend(ended.map(|token| (token, now)));
            next = then;
        }
        let packet = PACKET_BYTES + PACKET_OVERHEAD_BYTES;
        let last = 4 * packet + 1 + PACKET_OVERHEAD_BYTES;
        assert_eq!(had, [('c', 2 * packet), ('a', 4 * packet), ('b', last)]);
        assert_eq!(link.busy, last);
    }
}
