//! Operations on keys that another node of the rack owns.

use std::cell::Cell;

use minos_base::SizeClass;
use minos_engine::{Get, Mode, Staged, StagedOwned};
use minos_proto::native::{
    DIRECTORY_COPIES, DIRECTORY_WEIGHTS, OpFlags, Opcode, Operation, REPLY_HEAD_BYTES, ReplyRecord, Status,
};
use minos_unit::Shown;

use super::{AnswerTo, Egress, HandOff, Outcome, burst::Burst, change::ended};
use crate::{
    ops::{self, Placement, Read},
    rack::{self, Owner, Remote, ShownDirectory},
};

impl<'b, M: Mode, P: Placement, E: Egress, H: HandOff> Burst<'b, M, P, E, H> {
    /// Answers an operation on a key of another node: a GET from that node's memory, unless only the owner can.
    #[cold]
    pub(super) fn execute_elsewhere(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        (owner, staged): (Owner, Option<StagedOwned<'_>>),
    ) {
        if operation.opcode != Opcode::Get {
            return self.refuse_as_not_owner(to, operation, owner);
        }
        let remote = self.read_elsewhere(to, operation, (owner, staged));
        match remote {
            Remote::Missing => ops::count_get(&self.cx, false),
            Remote::Copied(class) => {
                self.cx.placement.is_here(class);
                ops::count_get(&self.cx, true);
            }
            Remote::AskOwner => self.refuse_as_not_owner(to, operation, owner),
        }
    }

    /// Answers a GET from the copy here of what a node of another unit owns. A value that is large in any way is left to the
    /// owner.
    #[cold]
    pub(super) fn execute_copied(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        (owner, staged): (Owner, Option<Staged<'_>>),
    ) {
        let staged = staged.unwrap_or_else(|| self.cx.store.stage(operation.hash));
        let class = staged.size_class();
        let is_small = class.is_none_or(|class| self.cx.placement.serves(class));
        let fitting_bytes = to.value_bytes_max() as u64;
        let bytes_max = class.map_or(fitting_bytes, |class| class.bytes_max().min(fitting_bytes));
        match is_small.then(|| self.copy(to, operation, &staged, Some(bytes_max))) {
            Some(Ok(Read::Copied | Read::Missing)) => {
                if let Some(class) = class {
                    self.cx.placement.is_here(class);
                }
            }
            _ => self.refuse_as_not_owner(to, operation, owner),
        }
    }

    /// Replies with an item in the memory of its owner; composes nothing if the owner is to be asked, as for a value
    /// that does not fit the reply or would hold up small ones here.
    fn read_elsewhere(
        &mut self,
        to: &AnswerTo,
        operation: &Operation<'_>,
        lookup: (Owner, Option<StagedOwned<'_>>),
    ) -> Remote {
        let get = Get { hash: operation.hash, key: operation.key };
        let (cx, fitting_bytes) = (&self.cx, to.value_bytes_max() as u64);
        let mut remote = Remote::AskOwner;
        let said = Cell::new((0, 0));
        self.outlet.reply_with(to, |buffer| {
            remote = rack::read(cx, lookup, &get, buffer, |facts, item, buffer| {
                let class = SizeClass::of(facts.value_bytes);
                if facts.value_bytes > fitting_bytes || !cx.placement.serves(class) {
                    return false;
                }
                said.set((facts.flags, facts.cas));
                buffer.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
                item.copy_value_to(buffer);
                true
            });
            let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
            match remote {
                Remote::Copied(_) => {
                    let (item_flags, cas) = said.get();
                    Some(ReplyRecord { item_flags, cas, ..bare(Status::Ok) })
                }
                Remote::Missing => {
                    buffer.extend_from_slice(&[0; REPLY_HEAD_BYTES]);
                    Some(bare(Status::NotFound))
                }
                Remote::AskOwner => None,
            }
        });
        remote
    }

    /// Names the owner. For an operation to be executed once that is its outcome: copies get the same answer, and one that
    /// was executed before its key got another owner gets its first.
    fn refuse_as_not_owner(&mut self, to: &AnswerTo, operation: &Operation<'_>, owner: Owner) {
        let Some(rack) = self.cx.rack else { unreachable!("without a rack no key is elsewhere") };
        rack.counters.native_not_owner.count();
        let epoch = rack.directory().epoch;
        let refused = Outcome { item_flags: owner.node.into(), cas: epoch, ..ended(Status::NotOwner) };
        let asked = (operation.opcode, operation.request);
        let is_once = operation.flags.contains(OpFlags::ONCE)
            && !matches!(operation.opcode, Opcode::Get | Opcode::GetTouch | Opcode::Fetch);
        let outcome = match is_once.then(|| self.begin_once(to, operation)) {
            None => refused,
            Some(Ok(ticket)) => {
                ticket.finish(refused);
                refused
            }
            Some(Err(outcome)) => outcome,
        };
        self.reply_outcome(to, asked, &outcome);
    }

    /// Replies with the bytes of the directory from the operand on, as many as fit, and of weights and copies behind it if
    /// the client asks for them.
    #[cold]
    pub(super) fn reply_directory(&mut self, to: &AnswerTo, operation: &Operation<'_>) {
        let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
        let Some(rack) = self.cx.rack else { return self.outlet.reply(to, &bare(Status::NotFound)) };
        let ShownDirectory { places, copies, epoch, .. } = rack.directory();
        let asks = |part| operation.detail.item_flags & part != 0;
        let behind = match rack.weights() {
            [] if asks(DIRECTORY_COPIES) => [&Shown::NO_WEIGHTS, &**copies].concat(),
            weights if asks(DIRECTORY_COPIES) => [weights, copies].concat(),
            weights if asks(DIRECTORY_WEIGHTS) => weights.to_vec(),
            _ => Vec::new(),
        };
        let bytes = [places, &*behind].concat();
        let rest = usize::try_from(operation.detail.operand).ok().and_then(|first| bytes.get(first..));
        let Some(rest) = rest else { return self.outlet.reply(to, &bare(Status::BadRequest)) };
        let value = &rest[..rest.len().min(to.value_bytes_max())];
        // Below 2^32, as the bounds of a directory say.
        let next = (bytes.len() - rest.len() + value.len()) as u32;
        let cas = epoch << 32 | bytes.len() as u64;
        self.outlet.reply(to, &ReplyRecord { cas, item_flags: next, value, ..bare(Status::Ok) });
    }
}
