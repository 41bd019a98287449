//! The designs and their names. Nothing else in the project spells these names.

use std::{fmt, str::FromStr};

/// A scheduling design: it decides which worker serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Design {
    /// HKH: the worker that owns the RX queue serves the request to its end (Minos §5.2).
    KeyHash,
    /// SHO: some workers only move requests from the RX queues to rings; the others take one at a time from
    /// these (Minos §5.2; RAMCloud).
    HandOff,
    /// HKH+WS: a worker moves bursts from its RX queue to its ring and serves from there one at a time; an
    /// idle worker takes from the rings of others, or a burst from an RX queue of others (Minos §5.2; ZygOS).
    Stealing,
    /// Minos: small requests are served where they arrive, large ones at the worker that owns their size
    /// (Minos §3.1).
    SizeAware,
    /// Minos with one more large worker; idle large workers take small requests one at a time (Minos §6.1).
    Helping,
    /// [`Helping`](Self::Helping), and no worker idles while a request waits: large workers serve each
    /// other's ranges, and idle small workers serve slices of large requests.
    WorkConserving,
}

impl Design {
    /// All designs; the simulator runs each of them.
    pub const ALL: [Self; 6] =
        [Self::KeyHash, Self::HandOff, Self::Stealing, Self::SizeAware, Self::Helping, Self::WorkConserving];

    /// The designs that a server runs.
    pub const SERVED: [Self; 5] =
        [Self::SizeAware, Self::KeyHash, Self::HandOff, Self::Stealing, Self::WorkConserving];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyHash => "keyhash",
            Self::HandOff => "handoff",
            Self::Stealing => "stealing",
            Self::SizeAware => "size-aware",
            Self::Helping => "helping",
            Self::WorkConserving => "work-conserving",
        }
    }

    /// The name with the number of hand-off workers, where the design has some.
    pub const fn variant_name(self, handoff_workers: usize) -> &'static str {
        match (self, handoff_workers) {
            (Self::HandOff, 1) => "handoff:1",
            (Self::HandOff, 2) => "handoff:2",
            (Self::HandOff, _) => "handoff:3",
            _ => self.name(),
        }
    }

    /// True if a server runs it.
    pub fn is_served(self) -> bool {
        Self::SERVED.contains(&self)
    }

    /// True if the plan follows the sizes of the requests, so that workers count these.
    pub const fn counts_sizes(self) -> bool {
        !matches!(self, Self::KeyHash | Self::HandOff | Self::Stealing)
    }

    /// True if a worker serves a request to its end once it has begun.
    pub const fn runs_to_completion(self) -> bool {
        matches!(self, Self::KeyHash | Self::HandOff | Self::Stealing)
    }

    /// True if requests wait in rings that several workers take from, so that connections move between workers.
    pub(crate) const fn moves_connections(self) -> bool {
        matches!(self, Self::HandOff | Self::Stealing)
    }

    /// True if a worker's large replies leave through a TX queue of their own: it serves both kinds, and its
    /// small replies must not wait behind the large ones.
    pub const fn separates_replies(self) -> bool {
        matches!(self, Self::Helping | Self::WorkConserving)
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Design {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|design| design.name() == text);
        found.ok_or_else(|| format!("expected one of {}", Self::SERVED.map(Self::name).join(", ")))
    }
}

/// The options of a design besides its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Workers that only hand requests on, under [`Design::HandOff`]: 1 to
    /// [`HANDOFF_WORKERS_MAX`](crate::HANDOFF_WORKERS_MAX).
    pub handoff_workers: usize,
    /// Idle workers take small requests: large workers from their own RX queues, small ones from those of
    /// others. Only designs with large workers that do not help anyway use this option.
    pub steal: bool,
    /// The way in which a worker on standby serves large requests.
    pub standby: Standby,
}

/// The way in which a worker on standby serves large requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standby {
    /// It becomes a large worker until the next plan (Minos §3.1).
    TurnsLarge,
    /// It serves them in slices, and polls its RX queue between two slices.
    Slices,
}

impl Default for Options {
    /// As in the paper: one worker hands off, no stealing, a standby turns large.
    fn default() -> Self {
        Self { handoff_workers: 1, steal: false, standby: Standby::TurnsLarge }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_print() {
        for design in Design::ALL {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        assert!("fastest".parse::<Design>().unwrap_err().contains("size-aware"));
    }

    #[test]
    fn the_papers_designs_are_served() {
        for design in [Design::SizeAware, Design::KeyHash, Design::HandOff, Design::Stealing] {
            assert!(design.is_served());
        }
        assert!(!Design::Helping.is_served());
    }
}
