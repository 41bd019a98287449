//! The datagrams that a server sends.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use minos_net::udp::BURST_MESSAGES;
use minos_node::native::Egress;
use minos_proto::native::{
    AckHead, DataHead, Flags, Grant, HEADER_BYTES, Header, Kind, SealKeys, Status, TRAIN_BYTES_MAX,
    TRAIN_SEGMENTS_MAX, Welcome, replies,
};

use super::Known;

/// Every datagram sent, with its destination.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    buffer: Vec<u8>,
    /// Trains in the buffer.
    queued: usize,
    datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Wire {
    fn keep(&mut self, peer: SocketAddr, train: &[u8], segment_bytes: usize) {
        assert!(train.len() <= TRAIN_BYTES_MAX && train.chunks(segment_bytes).count() <= TRAIN_SEGMENTS_MAX);
        self.datagrams.extend(train.chunks(segment_bytes).map(|datagram| (peer, datagram.to_vec())));
    }

    /// Asserts that every datagram sent is a valid answer to `asked`, from `peer`; without the right cookie,
    /// no more bytes than came.
    pub(crate) fn check(
        &self,
        peer: SocketAddr,
        asked: &[u8],
        welcome: Option<&Welcome>,
        seal: Option<&SealKeys>,
    ) {
        let cookie = asked.get(24..32).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let has_cookie = welcome.is_some_and(|welcome| cookie == Some(welcome.cookie));
        let bytes: usize = self.datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
        assert!(has_cookie || bytes <= asked.len(), "{bytes} bytes for {}", asked.len());
        for (to, datagram) in &self.datagrams {
            assert_eq!(*to, peer);
            let header = Header::parse(datagram).expect("what a server sends can be read");
            // Stamp and sequence.
            assert_eq!(datagram[32..HEADER_BYTES], asked[32..HEADER_BYTES]);
            check_body(&header, datagram);
            if let Some(keys) = seal {
                let is_open = header.kind == Kind::Refusal && !header.flags.contains(Flags::SEALED);
                assert!(is_open || keys.to_client.verify(datagram));
            }
        }
    }

    /// Updates the client's knowledge.
    pub(crate) fn learn(&self, known: &mut Known) {
        for (_, datagram) in &self.datagrams {
            let Ok(header) = Header::parse(datagram) else { continue };
            if let (Kind::Welcome, Ok(welcome)) = (header.kind, Welcome::parse(header.body(datagram))) {
                // A session stays known when another request asked for none.
                let session = known.welcome.map_or(0, |known| known.session);
                let session = if welcome.session == 0 { session } else { welcome.session };
                known.welcome = Some(Welcome { session, ..welcome });
            }
            for record in replies(datagram, &header).flatten() {
                if record.cas != 0 {
                    known.cas = record.cas;
                }
                if let (Status::Granted, Ok(grant)) = (record.status, Grant::parse(record.value)) {
                    known.transfer = grant.transfer;
                }
            }
        }
    }
}

fn check_body(header: &Header, datagram: &[u8]) {
    let body = header.body(datagram);
    match header.kind {
        Kind::Reply => {
            assert!(header.count > 0);
            for record in replies(datagram, header) {
                let record = record.expect("what a server sends can be read");
                if matches!(record.status, Status::Large | Status::Granted) {
                    assert!(Grant::parse(record.value).is_ok());
                }
            }
        }
        Kind::Welcome => assert!(Welcome::parse(body).is_ok()),
        Kind::Data => assert!(DataHead::parse(body).is_ok()),
        Kind::Ack => assert!(AckHead::parse(body).is_ok()),
        Kind::Refusal => assert!(body.is_empty()),
        Kind::Request | Kind::Hello | Kind::Fragment => panic!("{header:?} is none of a server's"),
    }
}

impl Egress for Wire {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        self.queued += 1;
        assert!(self.queued <= BURST_MESSAGES, "a port would drop it");
        let train = self.buffer[train].to_vec();
        self.keep(peer, &train, segment_bytes);
    }

    fn has_room(&mut self) -> bool {
        self.queued + 2 <= BURST_MESSAGES
    }

    fn flush(&mut self) {
        self.queued = 0;
        self.buffer.clear();
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        self.flush();
        let train: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.keep(peer, &train, segment_bytes);
    }
}
