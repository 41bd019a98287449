//! `minos sim`: what would happen on machines that are not here.

mod dispatch;
mod numbers;
mod queues;
mod table;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Simulate queues and servers, with the code that decides in the server.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Queues(Box<queues::QueuesArgs>),
    Dispatch(Box<dispatch::DispatchArgs>),
}

/// Runs the subcommand.
///
/// # Errors
/// A parameter is out of bounds, or standard output cannot be written.
pub(crate) fn run(args: &SimArgs) -> Result<()> {
    match &args.what {
        What::Queues(args) => queues::run(args),
        What::Dispatch(args) => dispatch::run(args),
    }
}
