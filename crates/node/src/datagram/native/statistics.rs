//! STATS: lines of text, as many as fit a datagram at a time.

use minos_base::StatsGroup;
use minos_engine::Mode;
use minos_proto::native::{Operation, ReplyRecord, Status};

use super::{AnswerTo, Egress, outlet::Outlet};
use crate::ops::{self, Context};

/// Appends the lines from the one that the operand names. The client asks again from the next one.
pub(super) fn reply<M: Mode, P, E: Egress>(
    cx: &Context<'_, M, P>,
    to: &AnswerTo,
    operation: &Operation<'_>,
    outlet: &mut Outlet<'_, E>,
) {
    let bare = |status| ReplyRecord::bare(operation.opcode, status, operation.request);
    let Some(group) = StatsGroup::named(operation.key) else {
        return outlet.reply(to, &bare(Status::BadRequest));
    };
    let mut page = Page::new(operation.detail.operand, to.value_bytes_max());
    ops::report(cx.store, cx.admin, group, &mut |name, value| page.line(&format!("{name} {value}\n")));
    let (lines, next) = (page.lines, page.next as u32);
    outlet.reply(to, &ReplyRecord { cas: lines, item_flags: next, value: &page.text, ..bare(Status::Ok) });
}

/// The lines that fit.
struct Page {
    text: Vec<u8>,
    /// The line that comes next.
    next: u64,
    lines: u64,
    room_bytes: usize,
}

impl Page {
    /// A page of at most `bytes_max` that begins with line `first`.
    fn new(first: u64, bytes_max: usize) -> Self {
        Self { text: Vec::new(), next: first, lines: 0, room_bytes: bytes_max }
    }

    /// Adds a line if it is the next one and fits. A line longer than a page is cut, because it would never
    /// fit.
    fn line(&mut self, line: &str) {
        let is_next = self.lines == self.next;
        self.lines += 1;
        if !is_next || (line.len() > self.room_bytes && !self.text.is_empty()) {
            return;
        }
        let bytes = line.len().min(self.room_bytes);
        self.text.extend_from_slice(&line.as_bytes()[..bytes]);
        self.room_bytes -= bytes;
        self.next += 1;
    }
}
