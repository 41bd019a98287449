//! The server's plans during a measurement.

use std::{collections::BTreeSet, fmt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plan {
    /// Includes the one on standby.
    small: u32,
    large: u32,
    has_standby: bool,
}

impl Plan {
    /// Parses `stats minos`; `None` for a server without a plan.
    pub(super) fn of(stats: &[(String, String)]) -> Option<Self> {
        let number =
            |wanted: &str| -> Option<u32> { stats.iter().find(|(name, _)| name == wanted)?.1.parse().ok() };
        let (small, large) = (number("small_workers")?, number("large_workers")?);
        Some(Self { small, large, has_standby: number("standby")? > 0 })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { small, large, .. } = self;
        write!(f, "{small} small{}, {large} large", if self.has_standby { " (one on standby)" } else { "" })
    }
}

/// Each distinct plan as text.
pub(super) fn in_words(plans: impl IntoIterator<Item = Option<Plan>>) -> String {
    let plans: BTreeSet<_> = plans.into_iter().flatten().collect();
    if plans.is_empty() {
        return "-".to_owned();
    }
    plans.iter().map(Plan::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(small: &str, large: &str, standby: &str) -> Option<Plan> {
        let stats = [
            ("threshold_bytes", "1"),
            ("small_workers", small),
            ("large_workers", large),
            ("standby", standby),
        ];
        Plan::of(&stats.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn plans_are_named_once_each() {
        let (standing_by, apart) = (plan("2", "0", "1"), plan("1", "1", "0"));
        assert_eq!(in_words([standing_by]), "2 small (one on standby), 0 large");
        assert_eq!(
            in_words([standing_by, apart, standing_by]),
            "1 small, 1 large or 2 small (one on standby), 0 large"
        );
        assert_eq!(in_words([plan("none", "1", "0"), Plan::of(&[])]), "-");
    }
}
