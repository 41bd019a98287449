//! The `minos` binary.

#![forbid(unsafe_code)]

mod admin;
mod cli;
mod client;
mod ctl;
mod keeper;
#[cfg(feature = "lab")]
mod lab;
#[cfg(not(feature = "lab"))]
#[path = "no_lab.rs"]
mod lab;
mod rack;
mod rate;
mod secret;
mod serve;
mod shell;
mod top;
mod transfer;
mod trust;

use std::{io::IsTerminal, process::ExitCode, sync::Arc};

use clap::{CommandFactory, Parser, Subcommand};
use minos_node::config::{LogLevel, Verbosity};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

/// A key-value store whose small requests never wait for large ones.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cli(cli::CliArgs),
    Completions(shell::CompletionsArgs),
    Ctl(ctl::CtlArgs),
    Del(client::DelArgs),
    Dump(transfer::DumpArgs),
    Get(client::GetArgs),
    Import(transfer::ImportArgs),
    Keeper(keeper::KeeperArgs),
    Man(shell::ManArgs),
    Rack(rack::RackArgs),
    Restore(transfer::RestoreArgs),
    Secret(secret::SecretArgs),
    Serve(Box<serve::ServeOptions>),
    Set(client::SetArgs),
    Stats(client::StatsArgs),
    Top(top::TopArgs),
    #[command(flatten)]
    Lab(lab::Command),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let verbosity = Arc::new(start_log(match &cli.command {
        Command::Keeper(_) | Command::Rack(_) | Command::Serve(_) => LevelFilter::INFO,
        // Their output is on the terminal.
        _ => LevelFilter::WARN,
    }));
    let result = match &cli.command {
        Command::Cli(args) => args.run(),
        Command::Completions(args) => args.run(Cli::command()),
        Command::Ctl(args) => ctl::run(args),
        Command::Del(args) => return client::exit_code(args.run()),
        Command::Dump(args) => args.run(),
        Command::Get(args) => return client::exit_code(args.run()),
        Command::Import(args) => args.run(),
        Command::Keeper(args) => keeper::run(args),
        Command::Man(args) => args.run(Cli::command()),
        Command::Rack(args) => rack::run(args),
        Command::Restore(args) => args.run(),
        Command::Secret(args) => secret::run(args),
        Command::Set(args) => return client::exit_code(args.run()),
        Command::Stats(args) => return client::exit_code(args.run()),
        Command::Top(args) => top::run(args),
        Command::Lab(command) => command.run(),
        Command::Serve(options) => serve::run(options, verbosity),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the log on standard error, at the level of `RUST_LOG` or `default`, or the one that the server is told while it
/// runs.
fn start_log(default: LevelFilter) -> Verbosity {
    let asked = std::env::var("RUST_LOG").ok().and_then(|asked| asked.parse().ok());
    let asked = asked.unwrap_or_else(|| Targets::new().with_default(default));
    let (filter, handle) = reload::Layer::new(asked.clone());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_filter(filter);
    tracing_subscriber::registry().with(layer).init();
    Verbosity::new(move |level| {
        let all = |level| Targets::new().with_default(level);
        let filter = match level {
            LogLevel::Start => asked.clone(),
            LogLevel::Off => all(LevelFilter::OFF),
            LogLevel::Error => all(LevelFilter::ERROR),
            LogLevel::Warn => all(LevelFilter::WARN),
            LogLevel::Info => all(LevelFilter::INFO),
            LogLevel::Debug => all(LevelFilter::DEBUG),
            LogLevel::Trace => all(LevelFilter::TRACE),
        };
        // It fails only if the log is gone.
        let _ = handle.reload(filter);
    })
}
