//! Commands of Redis' protocol.

use std::fmt::Write;

use redis::{Cmd, Connection, ConnectionLike, Value, cmd};

use super::Remote;
use crate::{transfer::connect_redis, trust::TrustArgs};

/// The commands that the server answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answered {
    Every,
    EveryButNext,
    Nothing,
}

pub(super) struct Redis {
    connection: Connection,
    names: Vec<String>,
    answered: Answered,
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
        Ok(Self { connection, names, answered: Answered::Every })
    }

    /// Executes a command that the server answers.
    fn ask(&mut self, command: &Cmd) -> anyhow::Result<Vec<u8>> {
        match self.connection.req_command(command) {
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

    /// Sends a command that the server does not answer.
    fn tell(&mut self, command: &Cmd) -> anyhow::Result<Vec<u8>> {
        self.connection.send_packed_command(&command.get_packed_command())?;
        Ok(Vec::new())
    }
}

impl Remote for Redis {
    fn names(&self) -> &[String] {
        &self.names
    }

    fn execute(&mut self, words: &[Vec<u8>]) -> anyhow::Result<Vec<u8>> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        match (self.answered, wished(words)) {
            (_, Some(Answered::Every)) | (Answered::Every, None) => {
                self.answered = Answered::Every;
                return self.ask(&command);
            }
            (Answered::EveryButNext, None) => self.answered = Answered::Every,
            // It changes nothing.
            (Answered::Nothing, None | Some(Answered::EveryButNext)) => {}
            (_, Some(wished)) => {
                // A server that refuses the command answers it. It refuses this one too, which it answers in any case.
                let said = self.ask(cmd("CLIENT").arg("REPLY").arg("ON"))?;
                self.answered = Answered::Every;
                if said != b"OK\n" {
                    return Ok(said);
                }
                self.answered = wished;
            }
        }
        self.tell(&command)
    }
}

/// What is to be answered behind a command, if it is CLIENT REPLY.
fn wished(words: &[Vec<u8>]) -> Option<Answered> {
    let words: Vec<_> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let [client, reply, wish] = &words[..] else { return None };
    match &wish[..] {
        _ if client != b"client" || reply != b"reply" => None,
        b"on" => Some(Answered::Every),
        b"skip" => Some(Answered::EveryButNext),
        b"off" => Some(Answered::Nothing),
        _ => None,
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
