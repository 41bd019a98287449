//! `minos sim`: simulations of other machines.

mod dispatch;
mod fit;
mod multiget;
mod numbers;
mod queues;
mod rackout;
mod table;

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use numbers::{Range, number, parse_range};
pub(crate) use table::{rounded, table};

/// Simulate queues and servers, with the decision code of the server.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Queues(Box<queues::QueuesArgs>),
    Rackout(Box<rackout::RackoutArgs>),
    Multiget(multiget::MultigetArgs),
    Dispatch(Box<dispatch::DispatchArgs>),
    Fit(fit::FitArgs),
}

pub(crate) fn run(args: &SimArgs) -> Result<()> {
    match &args.what {
        What::Queues(args) => queues::run(args),
        What::Rackout(args) => rackout::run(args),
        What::Multiget(args) => multiget::run(args),
        What::Dispatch(args) => dispatch::run(args),
        What::Fit(args) => fit::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments in a line, whose first word is the command.
    pub(super) fn parsed<T: Args>(line: &str) -> Result<T, clap::Error> {
        let command = T::augment_args(clap::Command::new("sim"));
        T::from_arg_matches(&command.try_get_matches_from(line.split(' '))?)
    }

    fn refusal(line: &str) -> String {
        match parsed::<SimArgs>(line) {
            Ok(args) => run(&args).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (line, name, allowed) in [
            ("sim queues --load 1", "load", "0.01 to 0.99"),
            ("sim queues --k 0.1", "k", "1 to 1000000"),
            ("sim queues --workers 0", "workers", "1 to 128"),
            ("sim queues --distribution normal", "distribution", "lognormal"),
            ("sim queues --distribution file:/nowhere", "distribution", "/nowhere"),
            ("sim queues --sweep 0.9..0.1", "--sweep", "the lower one first"),
            ("sim queues --sweep 0.1..0.9 --step 0", "step", "0.001 to 1"),
            ("sim queues --arrivals 1.5", "--arrivals", "10m"),
            ("sim dispatch --rate 0", "rate", "1 to 1e9"),
            ("sim dispatch --dispatch handoff --workers 1", "handoff-workers", "fewer than"),
            ("sim dispatch --handoff-workers 4", "--handoff-workers", "1..=3"),
            ("sim dispatch --costs /nowhere.toml", "costs", "/nowhere.toml"),
            ("sim dispatch --slo 0", "slo", "above 0"),
        ] {
            let message = refusal(line);
            assert!(message.contains(name) && message.contains(allowed), "{line}: {message}");
        }
    }
}
