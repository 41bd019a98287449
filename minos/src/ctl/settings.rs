//! `minos ctl show`, `get` and `set`: what can change while the server runs.

use std::io::{self, Write};

use anyhow::{Context, ensure};
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value};

use super::Question;

pub(super) const PATH: &str = "/settings";

/// What is to change.
#[derive(Args, Clone, Debug)]
pub(super) struct SetArgs {
    /// Names, without the dashes of `minos serve`, and values; all change, or none
    #[arg(required = true, num_args = 2.., value_names = ["NAME", "VALUE"])]
    pairs: Vec<String>,
}

impl SetArgs {
    pub(super) fn question(&self) -> anyhow::Result<Question> {
        let (pairs, rest) = self.pairs.as_chunks::<2>();
        ensure!(rest.is_empty(), "each NAME needs a VALUE");
        let mut changes = Map::new();
        for [name, value] in pairs {
            let earlier = changes.insert(name.clone(), value.clone().into());
            ensure!(earlier.is_none(), "{name} is given twice");
        }
        Ok(Question { method: Method::PUT, path: PATH.to_owned(), body: Value::Object(changes).to_string() })
    }

    /// The settings of an answer that were to change.
    pub(super) fn write(&self, out: &mut dyn Write, object: &Map<String, Value>) -> io::Result<()> {
        let (pairs, _) = self.pairs.as_chunks::<2>();
        for [name, _] in pairs {
            if let Some(value) = value(object, name) {
                writeln!(out, "{name} {value}")?;
            }
        }
        Ok(())
    }
}

/// The value of one setting in an answer.
pub(super) fn one(object: &Map<String, Value>, name: &str) -> anyhow::Result<String> {
    let value = value(object, name);
    value
        .map(str::to_owned)
        .with_context(|| format!("there is no setting {name:?}; `minos ctl show` lists all"))
}

fn value<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let rows = object.get("settings")?.as_array()?;
    rows.iter().find(|row| row["name"] == name)?["value"].as_str()
}
