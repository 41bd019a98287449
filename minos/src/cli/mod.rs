//! `minos cli`: commands to a server, one by one, with history and completion.

mod memcached;
mod redis;

use std::{
    env,
    io::{IsTerminal, stdin},
    path::PathBuf,
};

use anyhow::{Context, bail};
use clap::Args;
use rustyline::{
    CompletionType, Config, Editor, Helper, completion::Completer, error::ReadlineError,
    highlight::Highlighter, hint::Hinter, history::DefaultHistory, validate::Validator,
};

use crate::{client::show, transfer::Server, trust::TrustArgs};

const HISTORY_FILE: &str = ".minos_history";

/// Send commands to a server, interactively or as arguments.
///
/// With memcached's protocol, `set KEY VALUE [TTL]` is short for the protocol's own form, which works as well. `help`
/// lists commands. Lines from a pipe are executed one by one.
#[derive(Debug, Args)]
pub(crate) struct CliArgs {
    /// The server: memcached://USER@HOST:PORT or redis://USER@HOST:PORT/DB; over TLS memcacheds:// or rediss://
    #[arg(long, short, value_name = "URL", default_value = crate::transfer::DEFAULT_SERVER)]
    server: Server,
    #[command(flatten)]
    trust: TrustArgs,
    /// A command; without one, commands are read
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// A server that executes commands.
trait Remote {
    /// The names of its commands.
    fn names(&self) -> &[String];

    /// Says why a command should not be sent.
    fn check(&self, _words: &[Vec<u8>]) -> anyhow::Result<()> {
        Ok(())
    }

    /// Executes a command, and returns the reply as a person reads it. An error ends the conversation.
    fn execute(&mut self, words: &[Vec<u8>]) -> anyhow::Result<Vec<u8>>;
}

impl CliArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        Server::check(&self.trust, &[&self.server])?;
        let mut remote: Box<dyn Remote> = match &self.server {
            Server::Memcached(place) => Box::new(memcached::Memcached::connect(place, &self.trust)?),
            Server::Redis(url) => Box::new(redis::Redis::connect(url, &self.trust)?),
        };
        if !self.command.is_empty() {
            let words: Vec<_> = self.command.iter().map(|word| word.clone().into_bytes()).collect();
            remote.check(&words)?;
            return print(&remote.execute(&words)?);
        }
        if stdin().is_terminal() {
            return self.converse(&mut *remote);
        }
        for line in stdin().lines() {
            let line = line?;
            if is_end(&line) {
                break;
            }
            run_line(&mut *remote, &line)?;
        }
        Ok(())
    }

    /// Reads commands from a terminal.
    fn converse(&self, remote: &mut dyn Remote) -> anyhow::Result<()> {
        let config = Config::builder().completion_type(CompletionType::List).auto_add_history(true).build();
        let mut editor: Editor<Names, DefaultHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(Names(remote.names().to_vec())));
        let history = env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        if let Some(path) = &history {
            // There is none at first.
            let _ = editor.load_history(path);
        }
        let prompt = format!("{}> ", self.server);
        let ended = loop {
            match editor.readline(&prompt) {
                Ok(line) if is_end(&line) => break Ok(()),
                Ok(line) => {
                    if let Err(error) = run_line(remote, &line) {
                        break Err(error);
                    }
                }
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        if let Some(path) = &history {
            editor.save_history(path).with_context(|| path.display().to_string())?;
        }
        ended
    }
}

/// True if a line ends the conversation.
fn is_end(line: &str) -> bool {
    matches!(line.trim(), "quit" | "exit")
}

/// Executes a line, if it is none of blanks.
fn run_line(remote: &mut dyn Remote, line: &str) -> anyhow::Result<()> {
    match words(line).and_then(|words| remote.check(&words).map(|()| words)) {
        Ok(words) if words.is_empty() => Ok(()),
        Ok(words) if words[0] == b"help" && words.len() == 1 => {
            print(format!("{}\n", remote.names().join(" ")).as_bytes())
        }
        Ok(words) => print(&remote.execute(&words)?),
        Err(error) => print(format!("{error}\n").as_bytes()),
    }
}

fn print(reply: &[u8]) -> anyhow::Result<()> {
    Ok(show(|out| out.write_all(reply))?)
}

/// Splits a line into words: between blanks, or within quotes. In double quotes, `\n`, `\r`, `\t`, `\xHH` and a backslash
/// before any other character stand for a byte.
fn words(line: &str) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes().peekable();
    loop {
        while bytes.next_if(u8::is_ascii_whitespace).is_some() {}
        let Some(&first) = bytes.peek() else { return Ok(words) };
        let quote = (matches!(first, b'"' | b'\'')).then_some(first);
        if quote.is_some() {
            bytes.next();
        }
        let mut word = Vec::new();
        loop {
            match (bytes.next(), quote) {
                (None, None) => break,
                (None, Some(_)) => bail!("a quote is not closed"),
                (Some(byte), None) if byte.is_ascii_whitespace() => break,
                (Some(byte), Some(quote)) if byte == quote => break,
                (Some(b'\\'), Some(b'"')) => word.push(escaped(&mut bytes)?),
                (Some(byte), _) => word.push(byte),
            }
        }
        words.push(word);
    }
}

/// The byte behind a backslash.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> anyhow::Result<u8> {
    Ok(match bytes.next().context("nothing follows a backslash")? {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'x' => {
            let digits: Vec<_> = bytes.take(2).collect();
            let text = std::str::from_utf8(&digits)?;
            u8::from_str_radix(text, 16).context("two hexadecimal digits follow \\x")?
        }
        other => other,
    })
}

/// Completes the names of commands.
struct Names(Vec<String>);

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let fits =
            |name: &&String| name.get(..typed.len()).is_some_and(|start| start.eq_ignore_ascii_case(typed));
        Ok((0, self.0.iter().filter(fits).cloned().collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}
impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_into_words() {
        let split = |line| {
            words(line).map(|words| {
                words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect::<Vec<_>>()
            })
        };
        assert_eq!(split("  set k 'a b' \"c\\n\\x41\\\"\" ").unwrap(), ["set", "k", "a b", "c\nA\""]);
        assert_eq!(split("''").unwrap(), [""]);
        assert_eq!(split(" \t").unwrap(), [""; 0]);
        for bad in ["'a", "\"a", "\"\\", "\"\\x4", "\"\\xzz\""] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
