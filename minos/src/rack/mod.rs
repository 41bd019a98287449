//! `minos rack`: whole racks on one machine, and the state of a rack.

mod coordinate;
mod operate;
mod status;
mod up;

use std::io;

use clap::{Args, Subcommand};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Start a rack on this machine, show the state of one, or change it.
#[derive(Args, Debug)]
pub(crate) struct RackArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::UpArgs),
    Status(status::StatusArgs),
    Coordinate(Box<coordinate::CoordinateArgs>),
    #[command(flatten)]
    Operate(operate::Operate),
}

/// Lets this process get a signal when its parent ends.
///
/// # Errors
/// The parent has ended already, or the kernel refuses.
pub(crate) fn end_with_parent(signal: Signal) -> io::Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(signal))?;
    if getppid() == parent { Ok(()) } else { Err(io::Error::other("the parent process has ended")) }
}

/// Runs the command.
pub(crate) fn run(args: &RackArgs) -> anyhow::Result<()> {
    match &args.command {
        Command::Up(args) => up::run(args),
        Command::Status(args) => status::run(args),
        Command::Coordinate(args) => coordinate::run(args),
        Command::Operate(command) => operate::run(command),
    }
}
