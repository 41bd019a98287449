//! Commands of Redis' protocol.

use std::fmt::Write;

use redis::{Connection, ConnectionLike, Value, cmd};

use super::Remote;
use crate::{transfer::connect_redis, trust::TrustArgs};

pub(super) struct Redis {
    connection: Connection,
    names: Vec<String>,
}

impl Redis {
    pub(super) fn connect(url: &str, trust: &TrustArgs) -> anyhow::Result<Self> {
        let mut connection = connect_redis(url, trust)?;
        // A user without the right to ask has no completion.
        let names: Vec<Vec<Value>> = cmd("COMMAND").query(&mut connection).unwrap_or_default();
        let name = |entry: Vec<Value>| match entry.into_iter().next()? {
            Value::BulkString(name) => String::from_utf8(name).ok(),
            Value::SimpleString(name) => Some(name),
            _ => None,
        };
        let mut names: Vec<_> = names.into_iter().filter_map(name).map(|name| name.to_uppercase()).collect();
        names.sort();
        Ok(Self { connection, names })
    }
}

impl Remote for Redis {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn execute(&mut self, words: &[Vec<u8>]) -> anyhow::Result<Vec<u8>> {
        let mut command = redis::Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        match self.connection.req_command(&command) {
            Ok(value) => {
                let mut text = String::new();
                show(&value, 0, &mut text);
                Ok(text.into_bytes())
            }
            Err(error) if self.connection.is_open() && !error.is_io_error() => {
                Ok(format!("(error) {error}\n").into_bytes())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes a reply like redis-cli, a line for each part.
fn show(value: &Value, depth: usize, text: &mut String) {
    // Writing to a String does not fail.
    let _ = match value {
        Value::Nil => writeln!(text, "(nil)"),
        Value::Okay => writeln!(text, "OK"),
        Value::Int(number) => writeln!(text, "(integer) {number}"),
        Value::Double(number) => writeln!(text, "(double) {number}"),
        Value::Boolean(is_so) => writeln!(text, "({is_so})"),
        Value::SimpleString(line) => writeln!(text, "{line}"),
        Value::BulkString(bytes) => writeln!(text, "\"{}\"", bytes.escape_ascii()),
        Value::VerbatimString { text: verbatim, .. } => writeln!(text, "{verbatim}"),
        Value::ServerError(error) => {
            writeln!(text, "(error) {} {}", error.code(), error.details().unwrap_or_default())
        }
        Value::Array(values) | Value::Set(values) => return show_all(values.iter(), depth, text),
        Value::Map(pairs) => {
            return show_all(pairs.iter().flat_map(|(key, value)| [key, value]), depth, text);
        }
        other => writeln!(text, "{other:?}"),
    };
}

fn show_all<'a>(values: impl Iterator<Item = &'a Value>, depth: usize, text: &mut String) {
    let mut count = 0;
    for value in values {
        count += 1;
        let indent = if count == 1 { 0 } else { depth };
        let number = format!("{}{count}) ", " ".repeat(indent));
        text.push_str(&number);
        show(value, depth + count.to_string().len() + 2, text);
    }
    if count == 0 {
        text.push_str("(empty)\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_look_like_those_of_redis_cli() {
        let inner = Value::Array(vec![Value::Int(1), Value::Nil]);
        let value = Value::Array(vec![Value::BulkString(b"a\n\"".to_vec()), inner, Value::Array(vec![])]);
        let mut text = String::new();
        show(&value, 0, &mut text);
        assert_eq!(text, "1) \"a\\n\\\"\"\n2) 1) (integer) 1\n   2) (nil)\n3) (empty)\n");
    }
}
