//! `minos keeper`: a process that keeps the memory of others, so that it outlives them.
//!
//! ```text
//! take NAME           the memory of that name is this connection's alone  -> memory PAGES, and a descriptor; or none
//! create BYTES PAGES  new memory under the name that was taken            -> memory PAGES, and a descriptor
//! publish             it outlives the connection                          -> ok
//! remove              it is emptied and forgotten; the name stays taken   -> ok
//! list                                                                    -> lines, then ok
//! drop NAME           as remove, of a memory that nobody has              -> ok
//! ```
//!
//! A request and the first line of a reply are at most [`wire::LINE_BYTES_MAX`] long; instead of any reply there may be
//! `error` and a sentence.

mod holder;
mod memories;
mod serve;
mod wire;

use std::{num::NonZeroUsize, path::PathBuf};

use clap::{Args, Subcommand};
use minos_base::SizeText;

pub(crate) use holder::{Holder, check_keeper, has_memory};
pub(crate) use wire::{Pages, is_name};

/// Keep the memory of servers (`minos serve --region keeper:PATH=NAME`), so that it outlives their processes.
///
/// Runs until a signal comes. What it keeps is lost when it ends; what a running server has stays with that server.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct KeeperArgs {
    #[command(subcommand)]
    command: Option<Command>,

    /// Unix socket where servers of the same user find it
    #[arg(long, value_name = "PATH", required = true)]
    listen: Option<PathBuf>,
    /// All memory together [default: what the machine or its control group has]
    #[arg(long, value_name = "SIZE")]
    memory_max: Option<SizeText>,
    /// Memories at a time
    #[arg(long, value_name = "N", default_value = "256")]
    max_memories: NonZeroUsize,
    /// Connections at a time: one for each server
    #[arg(long, value_name = "N", default_value = "256")]
    max_connections: NonZeroUsize,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the memories of a keeper: name, size, pages, who has it, and for how long
    List {
        /// Socket of the keeper
        #[arg(long, value_name = "PATH")]
        keeper: PathBuf,
    },
    /// Forget a memory that no server has, with all that is in it
    Drop {
        /// Name of the memory
        name: String,
        /// Socket of the keeper
        #[arg(long, value_name = "PATH")]
        keeper: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run(args: &KeeperArgs) -> anyhow::Result<()> {
    match &args.command {
        None => serve::run(args),
        Some(Command::List { keeper }) => holder::list(keeper),
        Some(Command::Drop { name, keeper }) => holder::drop_memory(keeper, name),
    }
}
