//! The bytes of a packet. Numbers are little-endian; a list has its length, u32, before it.
//!
//! ```text
//! | "MNSU" | version u8 | kind u8 | the fields of the kind in the order of their declaration |
//! | a move: micro-shard u32 | number u32 |
//! | an option: 0 u8, or 1 u8 and the value |
//! | a directory: its length u32 and its own bytes |
//! | a load: reads u64 | writes u64 | busy, in microseconds, u64 |
//! | weights: their own bytes |
//! ```

use std::sync::Arc;

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use super::{Asked, FeedId, Heat, Message, More, MoveId, Orders, Packet, Progress, Pull, Report};
use crate::{
    Directory, Load, Patch,
    bytes::{BadBytes, Bytes, put, put_long},
    directory::bytes::{put_followers, put_place},
};

const MAGIC: [u8; 4] = *b"MNSU";
const VERSION: u8 = 3;
const REPORT: u8 = 0;
const ORDERS: u8 = 1;
const ASK: u8 = 2;
const CHANGED: u8 = 3;
const REFUSED: u8 = 4;
const PATCH: u8 = 5;
const FOLLOW: u8 = 6;
const FOLLOWED: u8 = 7;
const MORE: u8 = 8;
const BATCH: u8 = 9;
const LOST: u8 = 10;
const COMPLETE: u8 = 11;
const TAKE: u8 = 12;
const PROGRESS: [Progress; 7] = [
    Progress::Giving,
    Progress::Pulling,
    Progress::Drained,
    Progress::Failed,
    Progress::Following,
    Progress::Safe,
    Progress::Given,
];

impl Packet {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &[VERSION]].concat();
        match self {
            Self::Report(report) => put_report(&mut bytes, report),
            Self::Orders(orders) => put_orders(&mut bytes, orders),
            Self::Message(from, message) => put_message(&mut bytes, *from, message),
            Self::Patch(Patch { from, epoch, places, followers }) => {
                bytes.push(PATCH);
                put(&mut bytes, *from);
                put(&mut bytes, *epoch);
                put_list(&mut bytes, places, |bytes, (micro_shard, place)| {
                    put_place(bytes, *micro_shard, *place)
                });
                put_list(&mut bytes, followers, |bytes, (micro_shard, followers)| {
                    put_followers(bytes, *micro_shard, followers);
                });
            }
        }
        bytes
    }

    /// The packet with these bytes. It takes memory in proportion to them.
    ///
    /// # Errors
    /// The bytes are not those of a packet.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut rest = Bytes(bytes);
        if rest.array()? != MAGIC || rest.array()? != [VERSION] {
            return Err(BadBytes("another format"));
        }
        let packet = match rest.array()? {
            [REPORT] => Self::Report(rest.report()?),
            [ORDERS] => Self::Orders(rest.orders()?),
            [PATCH] => Self::Patch(Patch {
                from: rest.number()?,
                epoch: rest.number()?,
                places: rest
                    .list(|it| it.place().map(|(micro_shard, place)| (MicroShard(micro_shard), place)))?,
                followers: rest.list(Bytes::followers)?,
            }),
            [kind] => Self::Message(ServerId(rest.number()?), rest.message(kind)?),
        };
        rest.end()?;
        Ok(packet)
    }
}

fn put_report(bytes: &mut Vec<u8>, report: &Report) {
    bytes.push(REPORT);
    put(bytes, report.node.0);
    put_long(bytes, report.incarnation);
    put_long(bytes, report.sent_us);
    put(bytes, report.epoch);
    put(bytes, report.kept);
    for list in [&report.withdrawn, &report.lacking] {
        put_list(bytes, list, |bytes, micro_shard| put(bytes, micro_shard.0));
    }
    put_list(bytes, &report.moves, |bytes, (id, progress)| {
        put_move(bytes, id);
        bytes.push(*progress as u8);
    });
    bytes.push(report.load.is_some().into());
    if let Some(Load { reads, writes, busy_us }) = report.load {
        [reads, writes, busy_us].into_iter().for_each(|number| put_long(bytes, number));
    }
    put(bytes, report.weights);
    put_list(bytes, &report.heat, |bytes, heat| {
        [heat.micro_shard.0, heat.reads, heat.changes].into_iter().for_each(|number| put(bytes, number));
    });
    put(bytes, report.sampled);
}

fn put_orders(bytes: &mut Vec<u8>, orders: &Orders) {
    bytes.push(ORDERS);
    put_long(bytes, orders.incarnation);
    bytes.push(orders.lease.is_some().into());
    orders.lease.into_iter().for_each(|lease| put_long(bytes, lease));
    put(bytes, orders.epoch);
    bytes.push(orders.directory.is_some().into());
    for directory in orders.directory.iter().map(|directory| directory.encode()) {
        put(bytes, directory.len() as u32);
        bytes.extend(directory);
    }
    put_list(bytes, &orders.pulls, |bytes, pull| {
        put_move(bytes, &pull.id);
        put(bytes, pull.from.0);
        put(bytes, pull.epoch);
        bytes.push(pull.is_follow.into());
        put(bytes, pull.base);
    });
    put_list(bytes, &orders.cancelled, put_move);
    bytes.push(orders.weights.is_some().into());
    orders.weights.iter().for_each(|weights| bytes.extend(weights.encode()));
}

fn put_message(bytes: &mut Vec<u8>, from: ServerId, message: &Message) {
    let kind = match message {
        Message::Ask(_) => ASK,
        Message::Changed { .. } => CHANGED,
        Message::Refused(_) => REFUSED,
        Message::Follow(_) => FOLLOW,
        Message::Followed(..) => FOLLOWED,
        Message::More(_) => MORE,
        Message::Batch { .. } => BATCH,
        Message::Lost(_) => LOST,
        Message::Complete(_) => COMPLETE,
        Message::Take(..) => TAKE,
    };
    bytes.push(kind);
    put(bytes, from.0);
    match message {
        Message::Ask(asked) | Message::Refused(asked) | Message::Follow(asked) | Message::Complete(asked) => {
            put_asked(bytes, asked)
        }
        Message::Followed(asked, feed) | Message::Take(asked, feed) => {
            put_asked(bytes, asked);
            put_feed(bytes, feed);
        }
        Message::Changed { asked, hashes } => {
            put_asked(bytes, asked);
            put_list(bytes, hashes, |bytes, hash| put_long(bytes, hash.0));
        }
        Message::More(more) | Message::Lost(more) => put_more(bytes, more),
        Message::Batch { more, epoch, changes } => {
            put_more(bytes, more);
            put(bytes, *epoch);
            put_list(bytes, changes, |bytes, (micro_shard, hash)| {
                put(bytes, micro_shard.0);
                put_long(bytes, hash.0);
            });
        }
    }
}

fn put_asked(bytes: &mut Vec<u8>, asked: &Asked) {
    put_move(bytes, &asked.id);
    put_long(bytes, asked.incarnation);
    put(bytes, asked.epoch);
    put(bytes, asked.batch);
    bytes.push(asked.freeze.into());
}

fn put_feed(bytes: &mut Vec<u8>, feed: &FeedId) {
    put_long(bytes, feed.incarnation);
    put(bytes, feed.number);
}

fn put_more(bytes: &mut Vec<u8>, more: &More) {
    put_feed(bytes, &more.feed);
    put_long(bytes, more.applied);
    put_long(bytes, more.asked_us);
    put(bytes, more.due);
}

fn put_move(bytes: &mut Vec<u8>, id: &MoveId) {
    put(bytes, id.micro_shard.0);
    put(bytes, id.number);
}

fn put_list<T>(bytes: &mut Vec<u8>, list: &[T], item: impl Fn(&mut Vec<u8>, &T)) {
    put(bytes, list.len() as u32);
    list.iter().for_each(|it| item(bytes, it));
}

impl Bytes<'_> {
    fn report(&mut self) -> Result<Report, BadBytes> {
        Ok(Report {
            node: ServerId(self.number()?),
            incarnation: self.long()?,
            sent_us: self.long()?,
            epoch: self.number()?,
            kept: self.number()?,
            withdrawn: self.list(|it| it.number().map(MicroShard))?,
            lacking: self.list(|it| it.number().map(MicroShard))?,
            moves: self.list(|it| Ok((it.move_id()?, it.progress()?)))?,
            load: if self.flag()? { Some(self.load()?) } else { None },
            weights: self.number()?,
            heat: self.list(|it| {
                let micro_shard = MicroShard(it.number()?);
                Ok(Heat { micro_shard, reads: it.number()?, changes: it.number()? })
            })?,
            sampled: self.number()?,
        })
    }

    fn orders(&mut self) -> Result<Orders, BadBytes> {
        Ok(Orders {
            incarnation: self.long()?,
            lease: if self.flag()? { Some(self.long()?) } else { None },
            epoch: self.number()?,
            directory: if self.flag()? { Some(self.directory()?) } else { None },
            pulls: self.list(|it| {
                let (id, from, epoch) = (it.move_id()?, ServerId(it.number()?), it.number()?);
                Ok(Pull { id, from, epoch, is_follow: it.flag()?, base: it.number()? })
            })?,
            cancelled: self.list(Self::move_id)?,
            weights: if self.flag()? { Some(Arc::new(self.weights()?)) } else { None },
        })
    }

    fn message(&mut self, kind: u8) -> Result<Message, BadBytes> {
        Ok(match kind {
            ASK => Message::Ask(self.asked()?),
            CHANGED => {
                Message::Changed { asked: self.asked()?, hashes: self.list(|it| it.long().map(KeyHash))? }
            }
            REFUSED => Message::Refused(self.asked()?),
            FOLLOW => Message::Follow(self.asked()?),
            FOLLOWED => Message::Followed(self.asked()?, self.feed()?),
            MORE => Message::More(self.more()?),
            BATCH => Message::Batch {
                more: self.more()?,
                epoch: self.number()?,
                changes: self.list(|it| Ok((MicroShard(it.number()?), KeyHash(it.long()?))))?,
            },
            LOST => Message::Lost(self.more()?),
            COMPLETE => Message::Complete(self.asked()?),
            TAKE => Message::Take(self.asked()?, self.feed()?),
            _ => return Err(BadBytes("another kind")),
        })
    }

    fn asked(&mut self) -> Result<Asked, BadBytes> {
        Ok(Asked {
            id: self.move_id()?,
            incarnation: self.long()?,
            epoch: self.number()?,
            batch: self.number()?,
            freeze: self.flag()?,
        })
    }

    fn more(&mut self) -> Result<More, BadBytes> {
        Ok(More { feed: self.feed()?, applied: self.long()?, asked_us: self.long()?, due: self.number()? })
    }

    fn feed(&mut self) -> Result<FeedId, BadBytes> {
        Ok(FeedId { incarnation: self.long()?, number: self.number()? })
    }

    fn directory(&mut self) -> Result<Arc<Directory>, BadBytes> {
        let length = self.number()? as usize;
        Directory::decode(self.take(length)?).map(Arc::new).map_err(|fault| BadBytes(fault.0))
    }

    fn load(&mut self) -> Result<Load, BadBytes> {
        Ok(Load { reads: self.long()?, writes: self.long()?, busy_us: self.long()? })
    }

    fn move_id(&mut self) -> Result<MoveId, BadBytes> {
        Ok(MoveId { micro_shard: MicroShard(self.number()?), number: self.number()? })
    }

    fn progress(&mut self) -> Result<Progress, BadBytes> {
        let [number] = self.array()?;
        PROGRESS.get(usize::from(number)).copied().ok_or(BadBytes("a progress"))
    }
}
