//! What links need of reads in memory that is not mapped, in a program without a fabric for that.

use std::{os::fd::BorrowedFd, time::Instant};

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_net::Poller;

use super::{Links, PartId};
use crate::rack::{Forward, RackView};

#[expect(clippy::unused_self, reason = "in the other build there are such reads")]
impl<M: Mode, P: Poller> Links<M, P> {
    #[inline(always)]
    pub(super) fn is_reading(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn read_afar(
        &mut self,
        _: PartId,
        forward: Forward,
        _: (&RackView<M>, Instant),
    ) -> Option<Forward> {
        Some(forward)
    }

    #[inline(always)]
    pub(super) fn advance_afar(&mut self, _: &RackView<M>, _: Instant) {}

    #[inline(always)]
    pub(super) fn give_up_afar(&mut self, _: &RackView<M>, _: Instant) {}

    #[inline(always)]
    pub(crate) fn follow(&mut self, _: &RackView<M>) {}

    #[inline(always)]
    pub(crate) fn arm(&mut self) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn descriptor_afar(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    #[inline(always)]
    pub(crate) fn take_read(&mut self) -> Option<Option<SizeClass>> {
        None
    }

    #[inline(always)]
    pub(crate) fn has_notes(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn note_reads(&mut self, _: &RackView<M>, _: Instant) {}
}
