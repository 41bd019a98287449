//! `/stats`: the values of the command `stats`, as JSON.

use hyper::StatusCode;
use minos_node::{Operator, StatsGroup};
use serde_json::{Map, Number, Value};

use super::{
    Endpoint,
    reply::{self, Reply},
};

/// The group that `/stats` shows.
pub(super) const GENERAL: &str = "general";

/// The group of the endpoint's own counters.
const ADMIN: &str = "admin";

/// The groups of the server by their name in the path.
const GROUPS: [(&str, StatsGroup); 12] = [
    (GENERAL, StatsGroup::General),
    ("settings", StatsGroup::Settings),
    ("connections", StatsGroup::Connections),
    ("items", StatsGroup::Items),
    ("slabs", StatsGroup::Slabs),
    ("sizes", StatsGroup::Sizes),
    ("minos", StatsGroup::Minos),
    ("flash", StatsGroup::Flash),
    ("rack", StatsGroup::Rack),
    ("hotkeys", StatsGroup::HotKeys),
    ("largekeys", StatsGroup::LargeKeys),
    ("slow", StatsGroup::Slow),
];

pub(super) fn show(endpoint: &Endpoint, group: &str) -> Reply {
    if group == ADMIN {
        let counts = endpoint.counters.all();
        return reply::json(StatusCode::OK, &counts.collect::<std::collections::BTreeMap<_, _>>());
    }
    match GROUPS.iter().find(|(name, _)| *name == group) {
        Some((_, group)) => {
            let pairs = pairs(&endpoint.operator, *group);
            reply::json(StatusCode::OK, &object(pairs.iter().map(|(name, value)| (&**name, &**value))))
        }
        None => {
            let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).chain([ADMIN]).collect();
            let text = format!("there are no statistics {group:?}; there are {}", names.join(", "));
            reply::error(StatusCode::NOT_FOUND, &text)
        }
    }
}

/// The server's statistics in `group`: names and values.
pub(super) fn pairs(operator: &Operator, group: StatsGroup) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    operator.stats(group, &mut |name, value| pairs.push((name.to_owned(), value.to_string())));
    pairs
}

/// An object of names and values, in their order.
pub(super) fn object<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    pairs.map(|(name, value)| (name.to_owned(), typed(value))).collect()
}

/// A JSON number if the text is one, else a string.
fn typed(text: &str) -> Value {
    text.parse::<Number>().map_or_else(|_| Value::from(text), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_numbers() {
        let pairs = [("count", "18446744073709551615"), ("share", "0.990000"), ("version", "0.1.0")];
        let object =
            object(pairs.into_iter().chain([("dispatch", "size-aware"), ("none", "nan"), ("empty", "")]));
        let text = serde_json::to_string(&object).unwrap();
        let expected = concat!(
            r#"{"count":18446744073709551615,"share":0.99,"version":"0.1.0","#,
            r#""dispatch":"size-aware","none":"nan","empty":""}"#
        );
        assert_eq!(text, expected);
    }
}
