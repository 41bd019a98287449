//! Images of the log for snapshots.

use super::{Keeper, Now};
use crate::{
    snapshot::{Duty, SnapshotError},
    syncs::SyncId,
};

/// How far the image of a snapshot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Imaging {
    #[default]
    No,
    /// Everything that was stored before becomes durable.
    Preparing(SyncId),
    /// Its segments are copied. Appends wait for some of them since this time.
    Held(Option<u64>),
}

/// Longest time for which appends wait for the copy, in microseconds.
const WAIT_US: u64 = 1_000_000;

impl Keeper {
    /// A store whose deaths count at once holds them until the image is taken: what killed a record need not be durable.
    pub(super) fn holds_deaths(&self) -> bool {
        let is_preparing = matches!(self.imaging, Imaging::Preparing(_));
        self.tier.options.holds_deaths() || is_preparing && self.tier.options.is_lossless
    }

    /// A step of the snapshot under way.
    pub(super) fn advance_image(&mut self, now: Now) -> bool {
        match self.tier.snapshots.duty(self.imaging != Imaging::No) {
            Duty::None => false,
            Duty::Prepare => {
                self.imaging = Imaging::Preparing(self.tier.syncs.request());
                self.tell_log();
                true
            }
            Duty::End => {
                self.end_image();
                true
            }
            Duty::Release(segments) => {
                let did = !segments.is_empty();
                segments.into_iter().for_each(|segment| self.log.release(segment));
                self.watch_image(now) || did
            }
        }
    }

    /// Takes the image when it is time, and gives it up when the log has no room for it.
    fn watch_image(&mut self, now: Now) -> bool {
        if let Imaging::Preparing(sync) = self.imaging {
            return match self.tier.syncs.is_done(sync) {
                Ok(true) => {
                    self.take_image();
                    true
                }
                Ok(false) if self.is_cramped() => self.give_image_up(SnapshotError::NoRoom),
                Ok(false) => false,
                Err(_) => self.give_image_up(SnapshotError::ReadOnly),
            };
        }
        let since = match self.imaging {
            Imaging::Held(since) if self.log.lacks_what_is_held() => Some(since.unwrap_or(now.us)),
            _ => None,
        };
        if since.is_some_and(|since| now.us - since > WAIT_US) {
            return self.give_image_up(SnapshotError::NoRoom);
        }
        self.imaging = Imaging::Held(since);
        self.tier.snapshots.want(self.log.wanted_back());
        false
    }

    /// The deaths that wait for the image keep the log from making room.
    fn is_cramped(&self) -> bool {
        let is_short = self.log.lacks_segments() || self.graves.is_full() || self.counts.log_full > 0;
        self.holds_deaths() && !self.tier.options.holds_deaths() && is_short
    }

    fn take_image(&mut self) {
        let image = self.log.hold();
        self.release_deaths();
        self.imaging = Imaging::Held(None);
        self.tier.snapshots.give(image);
    }

    fn give_image_up(&mut self, reason: SnapshotError) -> bool {
        self.tier.snapshots.stop(reason);
        self.end_image();
        true
    }

    fn end_image(&mut self) {
        self.release_deaths();
        self.log.release_all();
        self.imaging = Imaging::No;
    }

    /// Deaths that were held for the image alone count from now on.
    fn release_deaths(&mut self) {
        if self.holds_deaths() && !self.tier.options.holds_deaths() {
            let held = self.graves.take_held();
            self.graves.release(held);
            self.log.groups(0, u64::MAX);
        }
    }
}
