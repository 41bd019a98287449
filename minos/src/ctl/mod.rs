//! `minos ctl`: a running server's settings, design, flash and statistics, by its admin endpoint.

mod flash;
pub(crate) mod http;
pub(crate) mod server;
mod settings;
mod snapshot;
mod watch;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{bail, ensure};
use clap::{Args, Subcommand};
use hyper::Method;
use minos_node::settings::parse_time;
use serde_json::{Map, Value, json};

use self::{
    http::{Answer, Question},
    server::AdminServer,
};
use crate::{
    admin::{AdminAddress, token},
    client::show,
};

/// The environment variable with the token.
const TOKEN_VARIABLE: &str = "MINOS_ADMIN_TOKEN";

/// Show or change the settings, the design and the flash of a running server, copy the latter, and show statistics.
///
/// The server is one that was started with --admin.
#[derive(Args, Debug)]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    server: AdminServer,
    /// File with the server's --admin-token-file, which changes need [default: the token in MINOS_ADMIN_TOKEN, or none]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Show the server's answer as it is, a JSON object
    #[arg(long, global = true)]
    json: bool,
    /// How long to wait for an answer
    #[arg(long, global = true, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the design in force, or switch to another; no connection is closed for it
    Dispatch {
        /// Design to switch to, by its name in `minos serve --dispatch`
        name: Option<String>,
        /// Workers that only hand requests on, with handoff [default: as it is]
        #[arg(long, value_name = "N", requires = "name")]
        handoff_workers: Option<usize>,
    },
    /// Show the log on flash, or change what it does beside serving
    Flash(flash::FlashArgs),
    /// Show the value of a setting
    Get {
        /// Its name, as `minos ctl show` lists it
        name: String,
    },
    /// Show the keys with most requests, as sampled
    Hot,
    /// Show the keys with the largest values, as sampled
    Large,
    /// Change settings of the running server, until its next start
    Set(settings::SetArgs),
    /// Show all settings that can change, their values and what is allowed
    Show,
    /// Show the latest slow requests, as sampled; every large one counts
    Slow(watch::SlowArgs),
    /// Copy the table on flash to a new file on the server's machine, and wait for the end
    Snapshot(snapshot::SnapshotArgs),
    /// Show statistics
    Stats {
        /// Group: general, settings, connections, items, slabs, sizes, minos, flash, rack,
        /// hotkeys, largekeys, slow or admin
        #[arg(default_value = "general")]
        group: String,
    },
}

/// Sends the request, and shows the server's answer.
pub(crate) fn run(args: &CtlArgs) -> anyhow::Result<()> {
    let token = args.token()?;
    let ask = |question| {
        let answer = args.server.ask(token.as_deref(), args.timeout, question)?;
        object(args.server.address(), &answer)
    };
    let object = match &args.command {
        Command::Snapshot(wish) => wish.run(&ask, !args.json)?,
        command => ask(command.question()?)?,
    };
    if let Command::Get { name } = &args.command {
        let value = settings::one(&object, name)?;
        let text = if args.json { json!({ name: value }).to_string() } else { value };
        show(|out| writeln!(out, "{text}"))?;
    } else if args.json {
        let text = serde_json::to_string_pretty(&object)?;
        show(|out| writeln!(out, "{text}"))?;
    } else if matches!(args.command, Command::Hot | Command::Large | Command::Show | Command::Slow(_)) {
        show(|out| watch::write_tables(out, &object))?;
    } else if let Command::Set(wish) = &args.command {
        show(|out| wish.write(out, &object))?;
    } else {
        show(|out| write_lines(out, &object))?;
    }
    Ok(())
}

impl CtlArgs {
    fn token(&self) -> anyhow::Result<Option<String>> {
        let from_file =
            self.token_file.as_deref().map(|path| token::read("--token-file", path)).transpose()?;
        Ok(from_file.or_else(|| std::env::var(TOKEN_VARIABLE).ok()))
    }
}

impl Command {
    fn question(&self) -> anyhow::Result<Question> {
        let get = Question::get;
        Ok(match self {
            Self::Dispatch { name: None, .. } => get("/dispatch".to_owned()),
            Self::Dispatch { name: Some(name), handoff_workers } => {
                let mut wish = json!({ "dispatch": name });
                if let Some(workers) = handoff_workers {
                    wish["handoff_workers"] = json!(workers);
                }
                Question { method: Method::PUT, path: "/dispatch".to_owned(), body: wish.to_string() }
            }
            Self::Flash(args) => match args.change() {
                None => get("/flash".to_owned()),
                Some(body) => Question { method: Method::PUT, path: "/flash".to_owned(), body },
            },
            Self::Get { .. } | Self::Show => get(settings::PATH.to_owned()),
            Self::Set(wish) => wish.question()?,
            Self::Hot => get("/hot".to_owned()),
            Self::Large => get("/large".to_owned()),
            Self::Slow(args) => args.question(),
            Self::Snapshot(_) => get(snapshot::PATH.to_owned()),
            Self::Stats { group } => {
                // Other characters could mean something else in a path, and no group has them in its name.
                let is_name = group.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                ensure!(is_name, "there are no statistics {group:?}");
                get(format!("/stats/{group}"))
            }
        })
    }
}

/// The JSON object in an answer that is not an error.
pub(crate) fn object(server: &AdminAddress, answer: &Answer) -> anyhow::Result<Map<String, Value>> {
    let Ok(Value::Object(object)) = serde_json::from_slice(&answer.body) else {
        bail!("{server} answers {} and no JSON object: is it the admin endpoint of a Minos?", answer.status);
    };
    match object.get("error").and_then(Value::as_str) {
        Some(error) if !answer.status.is_success() => bail!("{error}"),
        _ if !answer.status.is_success() => bail!("{server} answers {}", answer.status),
        _ => Ok(object),
    }
}

/// Writes a line for each value, those of nested objects last; a nested name that is also an outer name is
/// left out.
fn write_lines(out: &mut dyn Write, object: &Map<String, Value>) -> io::Result<()> {
    let inner = object.values().filter_map(Value::as_object).flatten();
    let inner = inner.filter(|(name, _)| !object.contains_key(*name));
    let lines: Vec<_> = object.iter().filter(|(_, value)| !value.is_object()).chain(inner).collect();
    let name_chars = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in lines {
        match value {
            Value::String(text) => writeln!(out, "{name:name_chars$} {text}")?,
            value => writeln!(out, "{name:name_chars$} {value}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> AdminAddress {
        "unix:/x".parse().unwrap()
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status: hyper::StatusCode::from_u16(status).unwrap(), body: body.as_bytes().to_vec() }
    }

    #[test]
    fn errors_say_what_the_server_said() {
        let error = object(&server(), &answer(400, r#"{"error": "no such thing"}"#)).unwrap_err();
        assert_eq!(error.to_string(), "no such thing");
        let error = object(&server(), &answer(200, "<html>")).unwrap_err().to_string();
        assert!(error.contains("unix:/x") && error.contains("200"), "{error}");
        assert!(object(&server(), &answer(500, "{}")).is_err());
    }

    #[test]
    fn values_become_lines() {
        let text = r#"{"dispatch": "stealing", "workers": 1, "decision": {"dispatch": "old", "epoch": 12}}"#;
        let mut out = Vec::new();
        write_lines(&mut out, &object(&server(), &answer(200, text)).unwrap()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "dispatch stealing\nworkers  1\nepoch    12\n");
    }
}
