//! A copy of the table at one moment, made while the server goes on.

mod copy;
mod target;

use minos_flash::{Extent, Image, format::Fault};
use parking_lot::{Condvar, Mutex};
use std::{io, path::PathBuf, time::Instant};
pub use target::remove_stale_snapshots;
use thiserror::Error;

/// A snapshot to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotWish {
    /// The folder in which the copy is made.
    pub folder: PathBuf,
    /// The name of the new file there, without slashes.
    pub name: String,
    /// Most bytes a second that are copied; 0: no bound.
    pub bytes_s: u64,
}

/// The reason why there is no snapshot.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The name is none of a file in the folder.
    #[error(
        "{0:?} is no name for a snapshot: it has 1 to 200 bytes, no slash or control character, and begins with no dot"
    )]
    Name(String),
    /// There is such a file.
    #[error("{0} exists; a snapshot replaces nothing")]
    Exists(PathBuf),
    /// One at a time.
    #[error("another snapshot is under way")]
    Busy,
    /// The copy cannot be written.
    #[error("the copy cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The device cannot be read.
    #[error("the device cannot be read: {0}")]
    Read(Box<dyn std::error::Error + Send + Sync>),
    /// What was read is not what was written.
    #[error("segment {segment} does not verify: {fault}")]
    Rot {
        /// The segment.
        segment: u32,
        /// The reason.
        fault: Fault,
    },
    /// The log needs the segments that are held for the copy.
    #[error(
        "given up: the log ran out of segments while some were held for the copy; delete items, or copy faster"
    )]
    NoRoom,
    /// What memory holds cannot become durable.
    #[error("the device failed; nothing more is written")]
    ReadOnly,
    /// Somebody asked for its end.
    #[error("cancelled")]
    Cancelled,
    /// The server stops.
    #[error("the server is stopping")]
    Ended,
}

/// How far a snapshot is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SnapshotPhase {
    /// What was stored before it becomes durable.
    #[default]
    Syncing,
    /// Its bytes are copied.
    Copying,
    /// The copy is complete and durable.
    Done,
    /// There is none, for this reason.
    Failed(String),
}

/// The snapshot under way, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counts snapshots of this process.
    pub number: u64,
    /// The file.
    pub path: PathBuf,
    /// How far it is.
    pub phase: SnapshotPhase,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Bytes to copy, once they are known.
    pub bytes: u64,
}

/// Counts of snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounts {
    /// Complete ones.
    pub done: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those of them that were given up because the log needed the room.
    pub given_up: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
}

/// What keeper and copier ask of each other.
#[derive(Debug, Default)]
enum Talk {
    /// No snapshot is under way.
    #[default]
    Idle,
    /// The keeper is to take an image.
    Asked,
    /// It makes everything durable.
    Preparing,
    /// The image for the copier.
    Ready(Image),
    /// Segments are copied.
    Copying,
    /// The keeper wants its segments back, or has ended.
    Stopped(SnapshotError),
}

#[derive(Debug, Default)]
struct State {
    talk: Talk,
    /// Segments that the log would use.
    wanted: Vec<u32>,
    /// Segments that are copied, for the keeper to release.
    copied: Vec<u32>,
    last: Option<Snapshot>,
    counts: SnapshotCounts,
    has_ended: bool,
}

/// The snapshot under way, as keeper, copier and operator see it.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    state: Mutex<State>,
    changed: Condvar,
}

/// What the keeper does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing.
    None,
    /// Make everything durable, then take an image.
    Prepare,
    /// Release what is copied.
    Release(Vec<u32>),
    /// The copy has ended, or nobody waits for the image any more.
    End,
}

impl Snapshots {
    /// The duty of a keeper that has begun with a snapshot or not.
    pub(crate) fn duty(&self, has_begun: bool) -> Duty {
        let mut state = self.state.lock();
        match (&state.talk, has_begun) {
            (Talk::Asked, false) => {
                state.talk = Talk::Preparing;
                Duty::Prepare
            }
            (Talk::Idle | Talk::Asked | Talk::Stopped(_), true) => Duty::End,
            (_, true) => Duty::Release(std::mem::take(&mut state.copied)),
            (_, false) => Duty::None,
        }
    }

    /// Gives the copier its image.
    pub(crate) fn give(&self, image: Image) {
        let mut state = self.state.lock();
        if matches!(state.talk, Talk::Preparing) {
            state.talk = Talk::Ready(image);
            self.changed.notify_all();
        }
    }

    /// These segments are to be copied first.
    pub(crate) fn want(&self, segments: Vec<u32>) {
        self.state.lock().wanted = segments;
    }

    /// Ends the snapshot under way; false if there is none.
    pub(crate) fn stop(&self, reason: SnapshotError) -> bool {
        let mut state = self.state.lock();
        let is_under_way = !matches!(state.talk, Talk::Idle);
        if is_under_way {
            state.talk = Talk::Stopped(reason);
            self.changed.notify_all();
        }
        is_under_way
    }

    /// No snapshot is made any more.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.stop(SnapshotError::Ended);
    }

    pub(crate) fn counts(&self) -> SnapshotCounts {
        self.state.lock().counts
    }

    fn begin(&self, path: PathBuf) -> Result<(), SnapshotError> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(SnapshotError::Ended);
        }
        if !matches!(state.talk, Talk::Idle) {
            return Err(SnapshotError::Busy);
        }
        let number = state.last.as_ref().map_or(0, |last| last.number) + 1;
        state.last = Some(Snapshot { number, path, ..Snapshot::default() });
        (state.wanted, state.copied) = (Vec::new(), Vec::new());
        state.talk = Talk::Asked;
        Ok(())
    }

    /// Waits for the image.
    fn image(&self) -> Result<Image, SnapshotError> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !matches!(state.talk, Talk::Ready(_) | Talk::Stopped(_)));
        match std::mem::replace(&mut state.talk, Talk::Copying) {
            Talk::Ready(image) => {
                if let Some(last) = &mut state.last {
                    (last.phase, last.bytes) = (SnapshotPhase::Copying, image.bytes());
                }
                Ok(image)
            }
            Talk::Stopped(reason) => Err(reason),
            other => {
                state.talk = other;
                Err(SnapshotError::Ended)
            }
        }
    }

    /// The next segment to copy: one that the log would use, if there is any.
    fn next(&self, left: &mut Vec<Extent>) -> Option<Extent> {
        let wanted = self.state.lock().wanted.clone();
        if wanted.is_empty() {
            return left.pop();
        }
        let wanted = left.iter().rposition(|extent| wanted.contains(&extent.segment));
        wanted.map(|at| left.swap_remove(at)).or_else(|| left.pop())
    }

    /// So many bytes were copied. Waits until `due`, unless the copy is to end.
    fn copied(&self, bytes: u64, due: Option<Instant>) -> Result<(), SnapshotError> {
        let mut state = self.state.lock();
        state.counts.copied_bytes += bytes;
        if let Some(last) = &mut state.last {
            last.copied_bytes += bytes;
        }
        if let Some(due) = due {
            self.changed.wait_while_until(&mut state, |state| !matches!(state.talk, Talk::Stopped(_)), due);
        }
        match std::mem::replace(&mut state.talk, Talk::Copying) {
            Talk::Stopped(reason) => Err(reason),
            talk => {
                state.talk = talk;
                Ok(())
            }
        }
    }

    fn release(&self, segment: u32) {
        self.state.lock().copied.push(segment);
    }

    /// The copier has ended.
    fn finish(&self, result: Result<(), SnapshotError>) {
        let mut state = self.state.lock();
        state.talk = Talk::Idle;
        let phase = match &result {
            Ok(()) => SnapshotPhase::Done,
            Err(error) => SnapshotPhase::Failed(error.to_string()),
        };
        state.counts.done += u64::from(result.is_ok());
        state.counts.failed += u64::from(result.is_err());
        state.counts.given_up += u64::from(matches!(result, Err(SnapshotError::NoRoom)));
        if let Some(last) = &mut state.last {
            last.phase = phase;
        }
        self.changed.notify_all();
    }
}
