//! `minos ctl hot`, `large` and `slow`: which keys and requests stand out.

use std::{
    io::{self, Write},
    time::Duration,
};

use clap::Args;
use hyper::Method;
use minos_node::settings::parse_time_or_never;
use serde_json::{Map, Value, json};

use super::Question;

/// What is to change in the slow log.
#[derive(Args, Clone, Debug)]
pub(super) struct SlowArgs {
    /// Time from which on a request is slow, or never, until the next restart
    #[arg(long, value_name = "TIME", value_parser = parse_time_or_never, conflicts_with = "clear")]
    threshold: Option<Duration>,
    /// Forget the slow requests so far
    #[arg(long)]
    clear: bool,
}

impl SlowArgs {
    pub(super) fn question(&self) -> Question {
        let (path, body) = ("/slow".to_owned(), String::new());
        match self.threshold {
            Some(threshold) => {
                let threshold_us = u64::try_from(threshold.as_micros()).unwrap_or(u64::MAX);
                let body = json!({ "threshold_us": threshold_us }).to_string();
                Question { method: Method::PUT, path, body }
            }
            None if self.clear => Question { method: Method::DELETE, path, body },
            None => Question { method: Method::GET, path, body },
        }
    }
}

/// Writes each list of objects as a table under the names of their values, behind the other values.
pub(super) fn write_tables(out: &mut dyn Write, object: &Map<String, Value>) -> io::Result<()> {
    for (name, value) in object {
        match value.as_array() {
            // That of the slow requests, if none is slow.
            None if value.as_u64() == Some(u64::MAX) => writeln!(out, "{name} never")?,
            None => writeln!(out, "{name} {value}")?,
            Some(rows) if rows.is_empty() => writeln!(out, "no {name}")?,
            Some(rows) => write_table(out, rows)?,
        }
    }
    Ok(())
}

fn write_table(out: &mut dyn Write, rows: &[Value]) -> io::Result<()> {
    let Some(first) = rows.first().and_then(Value::as_object) else { return Ok(()) };
    let head: Vec<String> = first.keys().cloned().collect();
    let cells = |row: &Value| head.iter().map(|name| cell(&row[name])).collect::<Vec<_>>();
    let lines: Vec<_> = std::iter::once(head.clone()).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    for line in &lines {
        let padded: Vec<_> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())?;
    }
    Ok(())
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => format!("{:.4}", number.as_f64().unwrap_or_default()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_tables() {
        let text = r#"{"threshold_us": 7, "requests": [{"key": "k", "us": 1200}, {"key": "", "us": 3}]}"#;
        let mut out = Vec::new();
        write_tables(&mut out, serde_json::from_str::<Value>(text).unwrap().as_object().unwrap()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "threshold_us 7\nkey  us\nk    1200\n-    3\n");
        let mut out = Vec::new();
        write_tables(&mut out, json!({ "threshold_us": u64::MAX }).as_object().unwrap()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "threshold_us never\n");
        let mut out = Vec::new();
        write_tables(&mut out, json!({ "keys": [] }).as_object().unwrap()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "no keys\n");
    }
}
