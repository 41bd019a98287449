//! `minos sim multiget`.

use anyhow::Result;
use clap::Args;
use minos_rackmodel::{
    figures::figure_13,
    multiget::{self, Outcome, Spec},
};
use serde::Serialize;

use super::{
    numbers::parse_count,
    rackout::print_figure,
    table::{rounded, table},
};
use crate::lab::bench::emit_either;

/// Show how few nodes can answer requests for many random keys ("Using vector interfaces", §6.1).
///
/// Each key lies on as many random nodes as it has replicas. In units of several nodes, any node of a unit
/// can answer for the whole unit, and the replicas of a key lie in different units. All of it is simulated.
#[derive(Args, Debug)]
pub(crate) struct MultigetArgs {
    /// Keys of a request
    #[arg(long, value_name = "W", default_value_t = 32)]
    width: u32,

    /// Nodes; several are compared [default: powers of two, up to 1024]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    nodes: Vec<u32>,

    /// Copies of each key
    #[arg(long, value_name = "R", default_value_t = 1)]
    replicas: u32,

    /// Nodes of a unit
    #[arg(long, value_name = "N", default_value_t = 1)]
    gf: u32,

    /// Requests
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_count)]
    trials: u64,

    /// Also search for the fewest nodes, beside the greedy choice
    #[arg(long)]
    exact: bool,

    /// Print the rows of figure 13
    #[arg(long, conflicts_with_all = ["nodes", "replicas", "gf", "exact", "width"])]
    figure: bool,

    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Results {
    evidence: &'static str,
    width: u32,
    replicas: u32,
    gf: u32,
    trials: u32,
    seed: u64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    nodes: u32,
    /// Without replicas: the expected number of nodes in closed form.
    expected_nodes_asked: Option<f64>,
    nodes_asked: f64,
    nodes_asked_plus_minus: f64,
    vector_width: f64,
    exact_nodes_asked: Option<f64>,
    greedy_worse: u32,
    given_up: u32,
}

pub(super) fn run(args: &MultigetArgs) -> Result<()> {
    let trials = u32::try_from(args.trials).unwrap_or(u32::MAX);
    if args.figure {
        return print_figure(&figure_13(trials, args.seed)?, args.seed, args.json);
    }
    let results = args.results(trials)?;
    Ok(emit_either(args.json, &results, &results.text())?)
}

impl MultigetArgs {
    fn results(&self, trials: u32) -> Result<Results> {
        let Self { width, replicas, gf, exact, seed, .. } = *self;
        let run = |nodes: u32| -> Result<Run> {
            let outcome = multiget::run(&Spec { width, nodes, gf, replicas, trials, exact, seed })?;
            Ok(self.described(nodes, &outcome))
        };
        let fits = |nodes: &u32| nodes.is_multiple_of(gf.max(1)) && nodes / gf.max(1) >= replicas;
        let powers: Vec<u32> = (0..=10).map(|power| 1 << power).filter(fits).collect();
        // If none fits, the largest one causes the error message.
        let powers = if powers.is_empty() { vec![1024] } else { powers };
        let nodes = if self.nodes.is_empty() { &powers } else { &self.nodes };
        let runs: Result<Vec<Run>> = nodes.iter().map(|nodes| run(*nodes)).collect();
        Ok(Results { evidence: "simulated", width, replicas, gf, trials, seed, runs: runs? })
    }

    fn described(&self, nodes: u32, outcome: &Outcome) -> Run {
        let expected = || multiget::nodes_expected(self.width, nodes / self.gf);
        Run {
            nodes,
            expected_nodes_asked: (self.replicas == 1).then(expected),
            nodes_asked: outcome.nodes,
            nodes_asked_plus_minus: outcome.nodes_plus_minus,
            vector_width: outcome.rpc_width,
            exact_nodes_asked: outcome.exact_nodes,
            greedy_worse: outcome.greedy_worse,
            given_up: outcome.given_up,
        }
    }
}

impl Results {
    fn text(&self) -> String {
        let header =
            ["nodes", "asked", "+/-", "closed form", "fewest", "greedy worse", "given up", "vector width"];
        let maybe = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), rounded);
        let row = |run: &Run| {
            vec![
                run.nodes.to_string(),
                rounded(run.nodes_asked),
                rounded(run.nodes_asked_plus_minus),
                maybe(run.expected_nodes_asked),
                maybe(run.exact_nodes_asked),
                run.greedy_worse.to_string(),
                run.given_up.to_string(),
                rounded(run.vector_width),
            ]
        };
        let Self { width, replicas, gf, trials, seed, .. } = self;
        format!(
            "simulated: {width} keys with {replicas} replicas in units of {gf}, {trials} requests, seed {seed}\n{}",
            table(&header, 0, self.runs.iter().map(row))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parsed, *};

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (options, name) in [
            ("--width 0", "width: 0"),
            ("--nodes 0", "servers: 0"),
            ("--nodes 10 --gf 3", "gf: 3"),
            ("--nodes 8 --gf 0", "gf: 0"),
            ("--nodes 8 --replicas 9", "replicas: 9"),
            ("--nodes 2,8 --replicas 4", "replicas: 4"),
            ("--gf 3", "gf: 3"),
            ("--replicas 0", "replicas: 0"),
            ("--trials 0", "trials: 0"),
            ("--width 100 --exact", "width: 100"),
        ] {
            let message = run(&parsed(&format!("multiget {options}")).unwrap()).unwrap_err().to_string();
            assert!(
                message.starts_with(&format!("{name} is not allowed; allowed is ")),
                "{options}: {message}"
            );
        }
    }

    #[test]
    fn nodes_that_cannot_have_the_replicas_are_left_out() {
        let args: MultigetArgs = parsed("multiget --replicas 3 --trials 10").unwrap();
        let results = args.results(10).unwrap();
        assert_eq!(results.runs[0].nodes, 4);
    }
}
