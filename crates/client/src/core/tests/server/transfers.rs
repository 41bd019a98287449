//! The fake server's transfers of large values.

use minos_proto::native::{
    ACK_HEAD_BYTES, AckHead, AckState, DATA_HEAD_BYTES, DataHead, Flags, FragmentHead, FragmentRange,
    Fragments, GRANT_BYTES, Grant, Header, Kind, Opcode, Operation, Ranges, ReplyRecord, Status, push_ranges,
};

use super::{Reply, Server};

const FRAGMENT_BYTES: u32 = 1000;
pub(super) const WINDOW: u16 = 8;
/// Fragments of a large value that the server has under way: fewer, as where datagrams are long.
pub(in crate::core::tests) const FETCH_WINDOW: u16 = 3;

/// The node that a refused store is sent to.
const OWNER: u32 = 3;

/// A large value that is being stored.
#[derive(Debug)]
pub(super) struct Transfer {
    request: u32,
    opcode: Opcode,
    key: Vec<u8>,
    bytes: Vec<u8>,
    have: Vec<bool>,
}

impl Server {
    pub(super) fn fetch(&mut self, header: &Header, operation: &Operation<'_>) -> Vec<Vec<u8>> {
        if std::mem::take(&mut self.replaces_fetched) {
            self.put(operation.key, vec![9; 30_000]);
        }
        let is_there = self.items.get(operation.key).is_some_and(|(_, cas)| *cas == operation.detail.operand);
        let is_busy = self.busy_fetches > 0;
        self.busy_fetches -= u32::from(is_busy);
        if !is_there || is_busy {
            let status = if is_there { Status::Busy } else { Status::Gone };
            let record = ReplyRecord::bare(Opcode::Fetch, status, operation.request);
            return vec![self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record)))];
        }
        let ranges: Vec<FragmentRange> = Ranges::parse(operation.value).unwrap().collect();
        assert!(ranges.iter().map(|range| range.count).sum::<u32>() <= u32::from(FETCH_WINDOW));
        ranges.into_iter().flat_map(|range| self.data(header, operation, range)).collect()
    }

    pub(super) fn data(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        range: FragmentRange,
    ) -> Vec<Vec<u8>> {
        let (bytes, cas) = &self.items[operation.key];
        let fragments = Fragments::of(bytes.len() as u64, FRAGMENT_BYTES).unwrap();
        let indexes = range.indexes().filter_map(|index| Some((index, fragments.range(index)?)));
        let datagrams = indexes.map(|(index, range)| {
            let mut head = [0; DATA_HEAD_BYTES];
            let data_head = DataHead {
                request: operation.request,
                index,
                value_bytes: bytes.len() as u64,
                cas: *cas,
                item_flags: 0,
                fragment_bytes: FRAGMENT_BYTES,
            };
            data_head.write(&mut head);
            self.compose(Kind::Data, header, |composer| {
                assert!(composer.push_bytes(&head) && composer.push_bytes(&bytes[range]));
            })
        });
        datagrams.collect()
    }

    pub(super) fn grant(&mut self, operation: &Operation<'_>) -> Reply {
        let known = self.transfers.iter().find(|(_, transfer)| transfer.request == operation.request);
        let transfer = known.map_or(self.transfers.len() as u64 + 1000 * self.welcome.boot, |(&id, _)| id);
        let value_bytes = u64::from(operation.detail.value_bytes);
        let count = Fragments::of(value_bytes, FRAGMENT_BYTES).unwrap().count() as usize;
        self.transfers.entry(transfer).or_insert_with(|| Transfer {
            request: operation.request,
            opcode: operation.opcode,
            key: operation.key.to_vec(),
            bytes: vec![0; value_bytes as usize],
            have: vec![false; count],
        });
        let grant = Grant {
            transfer,
            value_bytes,
            fragment_bytes: FRAGMENT_BYTES,
            queue: 3,
            window: WINDOW,
            first_follows: false,
        };
        let reply = Reply::bare(operation.opcode, Status::Granted);
        Reply { value: written(&grant), ..reply }
    }

    pub(super) fn fragment(&mut self, header: &Header, datagram: &[u8]) -> Vec<Vec<u8>> {
        let (head, data) = FragmentHead::parse(header.body(datagram)).unwrap();
        let Some(transfer) = self.transfers.get_mut(&head.transfer) else {
            let record = ReplyRecord::bare(Opcode::Put, Status::Gone, 0);
            return vec![self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record)))];
        };
        if !data.is_empty() {
            let fragments = Fragments::of(transfer.bytes.len() as u64, FRAGMENT_BYTES).unwrap();
            // A client that was told another transfer's number sends fragments that do not fit: malformed.
            let Some(range) = fragments.range(head.index).filter(|range| range.len() == data.len()) else {
                return Vec::new();
            };
            transfer.bytes[range].copy_from_slice(data);
            transfer.have[head.index as usize] = true;
        }
        if !header.flags.contains(Flags::ACK_WANTED) {
            return Vec::new();
        }
        let missing: Vec<FragmentRange> = missing(&transfer.have);
        let is_done = missing.is_empty();
        let mut answers = vec![self.ack(header, head.transfer, &missing)];
        if is_done {
            let Transfer { request, opcode, key, bytes, .. } = &self.transfers[&head.transfer];
            let (request, opcode, key, bytes) = (*request, *opcode, key.clone(), bytes.clone());
            let record = match self.ends_store.take() {
                Some(status) => {
                    self.transfers.remove(&head.transfer);
                    ReplyRecord { item_flags: OWNER, ..ReplyRecord::bare(opcode, status, request) }
                }
                None => {
                    let cas = self.put(&key, bytes);
                    ReplyRecord { cas, ..ReplyRecord::bare(opcode, Status::Ok, request) }
                }
            };
            answers.push(self.compose(Kind::Reply, header, |it| assert!(it.push_reply(&record))));
        }
        answers
    }

    fn ack(&self, header: &Header, transfer: u64, missing: &[FragmentRange]) -> Vec<u8> {
        let state = if missing.is_empty() { AckState::Done } else { AckState::Open };
        let missing = &missing[..missing.len().min(32)];
        let mut head = [0; ACK_HEAD_BYTES];
        AckHead { transfer, received: 0, ranges: missing.len() as u32, state }.write(&mut head);
        let mut ranges = Vec::new();
        push_ranges(&mut ranges, missing.iter().copied());
        self.compose(Kind::Ack, header, |composer| {
            assert!(composer.push_bytes(&head) && composer.push_bytes(&ranges));
        })
    }
}

/// A reply that announces a value too large for a datagram.
pub(super) fn large(bytes: &[u8], cas: u64, first_follows: bool) -> Reply {
    let value_bytes = bytes.len() as u64;
    let grant = Grant {
        transfer: 0,
        value_bytes,
        fragment_bytes: FRAGMENT_BYTES,
        queue: 2,
        window: FETCH_WINDOW,
        first_follows,
    };
    Reply { status: Status::Large, cas, value: written(&grant), ..Reply::bare(Opcode::Get, Status::Ok) }
}

fn written(grant: &Grant) -> Vec<u8> {
    let mut bytes = [0; GRANT_BYTES];
    grant.write(&mut bytes);
    bytes.to_vec()
}

fn missing(have: &[bool]) -> Vec<FragmentRange> {
    let mut ranges: Vec<FragmentRange> = Vec::new();
    for (index, _) in have.iter().zip(0u32..).filter(|(has, _)| !**has).map(|(has, index)| (index, has)) {
        match ranges.last_mut() {
            Some(range) if range.first + range.count == index => range.count += 1,
            _ => ranges.push(FragmentRange { first: index, count: 1 }),
        }
    }
    ranges
}
