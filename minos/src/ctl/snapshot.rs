//! `minos ctl snapshot`: begins one, and waits for its end.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{bail, ensure};
use clap::Args;
use hyper::Method;
use serde_json::{Map, Value, json};

use super::Question;
use crate::rate::parse_rate;

pub(super) const PATH: &str = "/snapshot";

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two lines of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The snapshot to be made.
#[derive(Args, Clone, Debug)]
pub(super) struct SnapshotArgs {
    /// Name of the new file in the server's --snapshot-folder; without one, show the last snapshot
    name: Option<String>,
    /// End the one under way
    #[arg(long, conflicts_with = "name")]
    cancel: bool,
    /// Bytes a second that are copied; 0: no bound
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_rate, requires = "name")]
    rate: u64,
}

impl SnapshotArgs {
    /// Begins, and returns what the server said last.
    pub(super) fn run(
        &self,
        ask: &dyn Fn(Question) -> anyhow::Result<Map<String, Value>>,
        tells: bool,
    ) -> anyhow::Result<Map<String, Value>> {
        let Some(name) = &self.name else {
            let method = if self.cancel { Method::DELETE } else { Method::GET };
            return ask(Question { method, ..Question::get(PATH.to_owned()) });
        };
        let body = json!({ "name": name, "rate": self.rate }).to_string();
        let mut last = ask(Question { method: Method::POST, path: PATH.to_owned(), body })?;
        let (number, mut told) = (last.get("number").cloned(), Instant::now());
        while matches!(text(&last, "state").as_str(), "syncing" | "copying") {
            sleep(LOOK_EVERY);
            last = ask(Question::get(PATH.to_owned()))?;
            let is_ours = last.get("number") == number.as_ref();
            ensure!(is_ours, "another snapshot has begun since; the server's log tells how this one ended");
            if tells && told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let [state, copied, all] = ["state", "copied_bytes", "bytes"].map(|name| text(&last, name));
                eprintln!("{state}: {copied} of {all} bytes");
            }
        }
        match last.get("reason").and_then(Value::as_str) {
            Some(reason) => bail!("{reason}"),
            None => Ok(last),
        }
    }
}

/// A value as people read it.
fn text(object: &Map<String, Value>, name: &str) -> String {
    match object.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}
