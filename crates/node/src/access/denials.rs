//! What clients were refused: `ACL LOG`.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Denials that are kept; the oldest make room.
pub(crate) const DENIALS_MAX: usize = 128;
/// Time within which equal denials are one.
const ALIKE: Duration = Duration::from_secs(60);

/// Why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The name or the password is wrong.
    Auth,
    /// The user may not run the command.
    Command,
    /// Nor use the key.
    Key,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
        }
    }
}

/// A denial; equal ones are counted.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    /// The command was one of a transaction.
    pub(crate) is_in_multi: bool,
    /// The command or the key.
    pub(crate) object: Box<[u8]>,
    pub(crate) user: Box<[u8]>,
    pub(crate) at: Instant,
    /// The line of the client in `CLIENT LIST`.
    pub(crate) client: String,
}

/// The latest denials.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<VecDeque<Denial>>);

impl Denials {
    /// Notes a denial; `client` is asked for if there is none like it.
    pub(crate) fn note(
        &self,
        (reason, is_in_multi): (Reason, bool),
        (object, user): (&[u8], &[u8]),
        client: impl FnOnce() -> String,
    ) {
        let mut denials = self.0.lock();
        let at = Instant::now();
        let is_alike = |denial: &Denial| {
            (denial.reason, denial.is_in_multi, &*denial.object, &*denial.user)
                == (reason, is_in_multi, object, user)
                && at.saturating_duration_since(denial.at) <= ALIKE
        };
        let known = denials.iter().position(is_alike).and_then(|place| denials.remove(place));
        let denial = match known {
            Some(known) => Denial { count: known.count + 1, at, ..known },
            None => Denial {
                count: 1,
                reason,
                is_in_multi,
                object: object.into(),
                user: user.into(),
                at,
                client: client(),
            },
        };
        denials.push_front(denial);
        denials.truncate(DENIALS_MAX);
    }

    /// The latest `count` denials, latest first.
    pub(crate) fn latest(&self, count: usize) -> Vec<Denial> {
        self.0.lock().iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_denials_are_counted_and_the_oldest_make_room() {
        let denials = Denials::default();
        let note =
            |object: &str| denials.note((Reason::Key, false), (object.as_bytes(), b"app"), String::new);
        for number in 0..DENIALS_MAX + 10 {
            note(&number.to_string());
        }
        note("20");
        let latest = denials.latest(usize::MAX);
        assert_eq!((latest.len(), latest[0].count, &*latest[0].object), (DENIALS_MAX, 2, b"20".as_slice()));
        assert_eq!(&*latest[1].object, b"137");
        assert!(latest.iter().all(|denial| *denial.object != *b"9"));
        denials.note((Reason::Key, true), (b"20", b"app"), String::new);
        assert_eq!(denials.latest(1)[0].count, 1);
        denials.clear();
        assert!(denials.latest(9).is_empty());
    }
}
