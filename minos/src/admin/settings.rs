//! `/settings`: what can change while the server runs.

use std::fmt;

use hyper::StatusCode;
use minos_node::{SwitchError, settings::SettingError};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Value, json};

use super::{
    Endpoint,
    reply::{self, Refusal, Reply},
};

pub(super) fn show(endpoint: &Endpoint) -> Reply {
    let settings = endpoint.operator.settings();
    let row = |shown: &minos_node::settings::Shown| json!({ "name": shown.name, "value": shown.value, "allowed": shown.allowed });
    reply::json(StatusCode::OK, &json!({ "settings": settings.iter().map(row).collect::<Vec<_>>() }))
}

/// Changes the settings that `body` names, all or none, and shows all afterwards.
pub(super) async fn change(body: &[u8], endpoint: &Endpoint) -> Result<Reply, Refusal> {
    let changes = changes(body).map_err(|text| (StatusCode::BAD_REQUEST, text))?;
    let operator = endpoint.operator.clone();
    let change = move || {
        let changes: Vec<_> = changes.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        operator.change(&changes)
    };
    reply::blocking(change, status_of).await?;
    Ok(show(endpoint))
}

/// Names and texts in `body`; numbers are texts too.
fn changes(body: &[u8]) -> Result<Vec<(String, String)>, String> {
    let expected = |why: &str| format!(r#"expected {{"NAME": "VALUE"}}: {why}"#);
    let Pairs(pairs) = serde_json::from_slice(body).map_err(|error| expected(&error.to_string()))?;
    let change = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(number) => Ok((name, number.to_string())),
        _ => Err(expected(&format!("{name} is neither a text nor a number"))),
    };
    pairs.into_iter().map(change).collect()
}

/// The names and values of an object, each name once: of two values for a name it would not be clear which is meant.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
        let mut pairs: Vec<(String, Value)> = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            if pairs.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("{name} is there twice")));
            }
            pairs.push((name, value));
        }
        Ok(Pairs(pairs))
    }
}

fn status_of(error: &SettingError) -> StatusCode {
    match error {
        SettingError::Unknown(_) => StatusCode::NOT_FOUND,
        SettingError::Fixed { .. } | SettingError::Switch(SwitchError::Busy) => StatusCode::CONFLICT,
        SettingError::Value { .. } | SettingError::Switch(SwitchError::Option(_)) => StatusCode::BAD_REQUEST,
        SettingError::Switch(SwitchError::Stopping | SwitchError::Slow) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
