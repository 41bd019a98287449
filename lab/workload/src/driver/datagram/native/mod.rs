//! The native protocol: vectors of operations in datagrams that go straight to the queue that is to execute them
//! (MICA §4.2, vector interfaces §3.1). Requests are composed here and not by the client crate, which owes its
//! users retries and futures that a generator must not pay for.

mod directory;
mod download;
mod request;
mod upload;

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use minos_net::udp::{ReceiveBurst, UdpPort};
use minos_proto::native::{
    Flags, Header, Kind, Malformed, Opcode, Reason, ReplyRecord, Status, Welcome, replies,
};

use super::{
    Link, Moment,
    ledger::{Ledger, Outcome, Place, Terms},
    outbox::Outbox,
};
use crate::{
    Op, OpKind,
    driver::{
        clock::RunClock,
        recorder::{ErrorKind, Recorder},
        run::QueueBy,
    },
    model::Dataset,
};
use directory::Directory;
use download::Download;
use request::Composing;
use upload::Upload;

/// After so long without a fragment, those that are missing are asked for again.
const STALL_NS: u64 = 20_000_000;

/// After so long what the server was too busy for is asked for again.
const BUSY_NS: u64 = 1_000_000;

/// An operation that the server was too busy for.
#[derive(Clone, Copy, Debug)]
struct Postponed {
    place: Place,
    serial: u64,
    due_ns: u64,
}

/// A socket that speaks the native protocol.
pub(in crate::driver) struct NativeLink<'a> {
    port: UdpPort,
    directory: Directory,
    ledger: Ledger<'a>,
    composing: Composing,
    outbox: Outbox,
    downloads: Vec<Download>,
    uploads: Vec<Upload>,
    postponed: Vec<Postponed>,
}

impl<'a> NativeLink<'a> {
    /// A socket for `server`, whose directory it has learned. Its random choices come from `seed`.
    ///
    /// # Errors
    /// No socket is to be had, or the server does not answer, or not as it should.
    pub(in crate::driver) fn connect(
        server: SocketAddr,
        dataset: &'a Dataset,
        terms: Terms,
        queue_by: QueueBy,
        seed: u64,
    ) -> io::Result<Self> {
        let (port, directory) = Directory::learn(server, queue_by, seed)?;
        Ok(Self {
            port,
            directory,
            ledger: Ledger::new(dataset, terms),
            composing: Composing::default(),
            outbox: Outbox::new(true),
            downloads: Vec::new(),
            uploads: Vec::new(),
            postponed: Vec::new(),
        })
    }

    fn take_in(&mut self, datagram: &[u8], now_ns: u64, recorder: &mut Recorder) {
        let Ok(header) = Header::parse(datagram) else { return };
        let taken = match header.kind {
            Kind::Reply => self.take_replies(datagram, &header, now_ns, recorder),
            Kind::Data => self.take_data(datagram, &header, now_ns, recorder),
            Kind::Ack => self.take_ack(datagram, &header, now_ns),
            Kind::Welcome => {
                Welcome::parse(header.body(datagram)).map(|welcome| self.directory.renew(welcome))
            }
            Kind::Refusal => {
                self.refused(&header, now_ns, recorder);
                Ok(())
            }
            Kind::Request | Kind::Hello | Kind::Fragment => Ok(()),
        };
        // What cannot be read is no answer; the request is lost in its time.
        let _ = taken;
        if header.flags.contains(Flags::RENEW) || self.directory.is_outdated(&header) {
            self.directory.say_hello(now_ns, &mut self.outbox);
        }
    }

    fn take_replies(
        &mut self,
        datagram: &[u8],
        header: &Header,
        now_ns: u64,
        recorder: &mut Recorder,
    ) -> Result<(), Malformed> {
        for record in replies(datagram, header) {
            let record = record?;
            if let Some(place) = self.ledger.find(record.request, header.stamp) {
                self.answered(place, &record, now_ns, recorder)?;
            }
        }
        Ok(())
    }

    fn answered(
        &mut self,
        place: Place,
        record: &ReplyRecord<'_>,
        now_ns: u64,
        recorder: &mut Recorder,
    ) -> Result<(), Malformed> {
        let asked = self.ledger.asked(place);
        let is_read = matches!(asked.kind, OpKind::Get | OpKind::ReadModifyWrite);
        let outcome = match record.status {
            Status::Ok if is_read && record.opcode == Opcode::Get => {
                self.ledger.judge(asked.item, record.value)
            }
            Status::Ok if !is_read => Outcome::Done,
            Status::NotFound if is_read => Outcome::Missed,
            Status::Large if is_read => return self.begin_download(place, record, now_ns),
            Status::Granted if !is_read => return self.begin_upload(place, record, now_ns),
            Status::Gone => {
                self.begin_again(place, now_ns, recorder);
                return Ok(());
            }
            // The window is asked for again where nothing moves.
            Status::Busy if record.opcode == Opcode::Fetch => return Ok(()),
            Status::Busy => {
                let (serial, due_ns) = (self.ledger.serial(place.slot), now_ns + BUSY_NS);
                self.postponed.push(Postponed { place, serial, due_ns });
                return Ok(());
            }
            status => Outcome::Failed(error_kind(status)),
        };
        self.settle(place, outcome, now_ns, recorder);
        Ok(())
    }

    /// Writes down what came of an operation; what was read to be changed is written now.
    fn settle(&mut self, place: Place, outcome: Outcome, now_ns: u64, recorder: &mut Recorder) {
        self.uploads.retain(|upload| upload.place != place);
        let is_half_done = self.ledger.asked(place).kind == OpKind::ReadModifyWrite;
        if is_half_done && !matches!(outcome, Outcome::Failed(_)) {
            self.ledger.turn_to_set(place);
            self.compose(place.slot, Some(place.index), now_ns, recorder);
        } else {
            self.ledger.settle(place, outcome, now_ns, recorder);
        }
    }

    /// Asks for an operation anew, whatever has come of it so far.
    fn begin_again(&mut self, place: Place, now_ns: u64, recorder: &mut Recorder) {
        self.downloads.retain(|download| download.place != place);
        self.uploads.retain(|upload| upload.place != place);
        self.compose(place.slot, Some(place.index), now_ns, recorder);
    }

    /// The server did nothing for a datagram. Of which operations it was is not known: the request fails.
    fn refused(&mut self, header: &Header, now_ns: u64, recorder: &mut Recorder) {
        let reason = Reason::from_count(header.count);
        if reason == Reason::Cookie {
            self.directory.say_hello(now_ns, &mut self.outbox);
        }
        let kind = if reason == Reason::Busy { ErrorKind::Busy } else { ErrorKind::Client };
        let Some(slot) = self.ledger.slot_of(header.stamp) else { return };
        for index in 0..self.ledger.operation_count(slot) {
            let place = Place { slot, index };
            if self.ledger.asked(place).is_open {
                self.ledger.settle(place, Outcome::Failed(kind), now_ns, recorder);
            }
        }
    }

    /// Forgets transfers of requests that do not wait any more, and asks again where nothing moves.
    fn tend_transfers(&mut self, now_ns: u64, recorder: &mut Recorder) {
        let Self { downloads, uploads, ledger, .. } = self;
        downloads.retain(|download| ledger.serial(download.place.slot) == download.serial);
        uploads.retain(|upload| ledger.serial(upload.place.slot) == upload.serial);
        self.resume_downloads(now_ns);
        self.resume_uploads(now_ns);
        for at in (0..self.postponed.len()).rev() {
            let Postponed { place, serial, due_ns } = self.postponed[at];
            if due_ns <= now_ns {
                self.postponed.swap_remove(at);
                if self.ledger.serial(place.slot) == serial {
                    self.compose(place.slot, Some(place.index), now_ns, recorder);
                }
            }
        }
    }
}

impl<'a> Link<'a> for NativeLink<'a> {
    const IS_MIXED: bool = true;
    const IN_FLIGHT_MAX: usize = 1 << 16;

    fn socket(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn ledger(&self) -> &Ledger<'a> {
        &self.ledger
    }

    fn ask(&mut self, operations: &[Op], at: Moment, recorder: &mut Recorder) {
        let slot = self.ledger.open(operations, at);
        self.compose(slot, None, at.now_ns, recorder);
    }

    fn flush(&mut self) {
        self.outbox.send(&self.port);
    }

    fn receive(&mut self, burst: &mut ReceiveBurst, clock: &RunClock, recorder: &mut Recorder) -> bool {
        let mut has_heard = false;
        // A port that cannot be received from any more answers nothing: what waits is lost.
        while self.port.receive(burst).is_ok() {
            let now_ns = clock.now_ns();
            for message in burst.messages() {
                has_heard = true;
                message.segments().for_each(|datagram| self.take_in(datagram, now_ns, recorder));
            }
            // What a transfer needs next must not wait for what else comes.
            self.flush();
            if !burst.is_full() {
                break;
            }
        }
        has_heard
    }

    fn tend(&mut self, now_ns: u64, recorder: &mut Recorder) {
        while let Some(slot) = self.ledger.next_overdue(now_ns, recorder) {
            self.downloads.retain(|download| download.place.slot != slot);
            self.uploads.retain(|upload| upload.place.slot != slot);
            self.compose(slot, None, now_ns, recorder);
        }
        self.tend_transfers(now_ns, recorder);
        self.flush();
    }

    fn inserts_answered(&mut self) -> std::vec::Drain<'_, u64> {
        self.ledger.inserts_answered.drain(..)
    }
}

fn error_kind(status: Status) -> ErrorKind {
    match status {
        Status::NotStored | Status::Exists => ErrorKind::NotStored,
        Status::NoMemory | Status::TooLarge | Status::TimedOut => ErrorKind::Server,
        Status::BadRequest | Status::Unsupported | Status::NotANumber => ErrorKind::Client,
        _ => ErrorKind::Protocol,
    }
}
