//! Figure 13 of "Using vector interfaces".

use minos_rack::BadParameter;

use super::Figure;
use crate::multiget::{Spec, nodes_expected, run};

/// The average width of the vectors of a 32-key multiget, by nodes and replicas, with the fewest nodes and
/// with greedily chosen ones; and the same for nodes in units of 16, where one node answers for its unit.
///
/// # Errors
/// None: all parameters are its own, but for the seed.
pub fn figure_13(trials: u32, seed: u64) -> Result<Figure, BadParameter> {
    let width = 32;
    let mut rows = Vec::new();
    for gf in [1, 16] {
        for replicas in [1, 2, 3, 5, 10] {
            for nodes in (0..=10).map(|power| 1u32 << power).filter(|nodes| nodes / gf >= replicas) {
                let spec = Spec { width, nodes, gf, replicas, trials, exact: true, seed };
                let outcome = run(&spec)?;
                let closed = f64::from(width) / nodes_expected(width, nodes / gf);
                let closed = if replicas == 1 { closed } else { f64::NAN };
                let numbers = [gf, replicas, nodes].map(f64::from);
                let fewest = outcome.exact_nodes.unwrap_or(f64::NAN);
                let asked = [fewest, f64::from(width) / fewest, outcome.nodes, outcome.rpc_width];
                let given_up = f64::from(outcome.given_up);
                rows.push([&numbers[..], &asked[..], &[given_up, closed]].concat());
            }
        }
    }
    let columns = vec![
        "gf",
        "replicas",
        "nodes",
        "fewest nodes",
        "vector width",
        "nodes greedily",
        "width greedily",
        "given up",
        "in closed form",
    ];
    Ok(Figure { figure: "13", title: "Keys that each node is asked for, of 32 random ones", columns, rows })
}
