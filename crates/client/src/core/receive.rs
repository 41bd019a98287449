//! Checks and dispatches datagrams that arrive.

use std::net::SocketAddr;

use minos_proto::native::{AckHead, Flags, Header, Kind, Reason, Status, Welcome, replies};

use super::{Core, OpId, link::Change, session::Session};

impl Core {
    /// Handles one message from `from`: datagrams of `segment_bytes`, of which the last may be shorter.
    /// Ignores datagrams that the server did not send, or that answer nothing.
    pub fn receive(&mut self, from: SocketAddr, bytes: &[u8], segment_bytes: usize, now_ns: u64) {
        for datagram in bytes.chunks(segment_bytes.max(1)) {
            self.counters.datagrams_received += 1;
            let Ok(header) = Header::parse(datagram) else {
                self.counters.ignored += 1;
                continue;
            };
            if !self.link.is_server(from) || !header.kind.is_from_server() || !self.is_answer(&header, now_ns)
            {
                self.counters.ignored += 1;
            } else if !self.is_authentic(&header, datagram) {
                self.counters.unsealed += 1;
            } else {
                self.dispatch(&header, datagram, now_ns);
            }
        }
    }

    /// True if a datagram answers one of this client: its number was used, and its stamp, once unmasked, is a
    /// time between the start and now.
    fn is_answer(&self, header: &Header, now_ns: u64) -> bool {
        let sent_ns = self.sent_ns(header);
        (self.sequence_first..self.sequence_next).contains(&header.sequence)
            && (self.begun_ns..=now_ns).contains(&sent_ns)
    }

    fn sent_ns(&self, header: &Header) -> u64 {
        header.stamp ^ self.stamp_mask
    }

    /// True if a datagram is authentic; without a secret every one is.
    ///
    /// A valid tag is not enough: answers of an earlier session have one, too. A Welcome echoes a nonce, and
    /// a refusal reports nothing executed; all other kinds must belong to this session.
    fn is_authentic(&self, header: &Header, datagram: &[u8]) -> bool {
        let Some(keys) = &self.config.secret else { return true };
        let session = self.link.session.as_ref().map_or(0, Session::id);
        if keys.to_client.verify(datagram) {
            return matches!(header.kind, Kind::Welcome | Kind::Refusal) || header.session == session;
        }
        // A server that does not know the secret or the version cannot seal its refusal. In a session it
        // knows both.
        let reason = Reason::from_count(header.count);
        header.kind == Kind::Refusal && session == 0 && matches!(reason, Reason::Version | Reason::Seal)
    }

    fn dispatch(&mut self, header: &Header, datagram: &[u8], now_ns: u64) {
        // Fragments of a window arrive one after the other, and who waits in line is granted in turn: no round trips.
        let may_be_granted = header.kind == Kind::Reply && !self.stores.is_idle();
        if header.kind != Kind::Data && !(may_be_granted && self.is_grant_in_turn(header, datagram)) {
            self.round_trip.observe(now_ns - self.sent_ns(header));
        }
        self.link.note(header, now_ns);
        let is_draining = header.flags.contains(Flags::DRAINING);
        if header.kind != Kind::Refusal {
            self.note_draining(is_draining, now_ns);
        }
        match header.kind {
            Kind::Welcome => {
                self.on_welcome(header, datagram, now_ns);
                self.note_draining(is_draining, now_ns);
            }
            Kind::Refusal => self.on_refusal(header, datagram, now_ns),
            Kind::Reply => {
                for record in replies(datagram, header) {
                    match record {
                        Ok(record) => self.on_record(header, &record, now_ns),
                        Err(_) => self.counters.ignored += 1,
                    }
                }
                if let Some(session) = self.session_lost.take() {
                    self.on_session_lost(session, now_ns);
                }
            }
            Kind::Data => self.on_data(header, datagram, now_ns),
            Kind::Ack => match AckHead::parse(header.body(datagram)) {
                Ok((head, missing)) => self.on_ack(header, &head, missing, now_ns),
                Err(_) => self.counters.ignored += 1,
            },
            // Only clients send these; the caller has rejected them.
            Kind::Request | Kind::Hello | Kind::Fragment => {}
        }
        self.leave_if_done(now_ns);
    }

    /// True for the grant of a large value that has waited in line.
    #[cold]
    fn is_grant_in_turn(&self, header: &Header, datagram: &[u8]) -> bool {
        let Some(Ok(record)) = replies(datagram, header).next() else { return false };
        let operation = self.operations.get(OpId(record.request));
        record.status == Status::Granted && operation.is_some_and(|it| it.place > 0)
    }

    #[cold]
    fn on_welcome(&mut self, header: &Header, datagram: &[u8], now_ns: u64) {
        let welcome = Welcome::parse(header.body(datagram)).ok();
        let asked = self.link.asked.filter(|asked| {
            let (first, last) = asked.sequences;
            (first..=last).contains(&header.sequence)
        });
        let (Some(welcome), Some(asked)) = (welcome, asked) else {
            self.counters.ignored += 1;
            return;
        };
        if welcome.nonce != asked.nonce || welcome.cookie == 0 {
            self.counters.ignored += 1;
            return;
        }
        let Change { is_restart, is_geometry } = self.link.learn(&welcome, now_ns, self.sequence_next);
        if is_restart {
            self.counters.restarts += 1;
            self.begin_anew(now_ns);
        }
        if is_geometry || is_restart {
            self.reassign(now_ns);
        } else {
            self.unpark(now_ns);
        }
        self.wake_at(self.link.next_ns(now_ns));
    }

    /// Assigns the operations that were parked until the server, or the session, was known.
    fn unpark(&mut self, now_ns: u64) {
        for _ in 0..self.lanes.parked.len() {
            if let Some(id) = self.lanes.parked.pop_front()
                && self.operations.get(id).is_some()
            {
                self.assign(id, now_ns, 0);
            }
        }
    }
}
