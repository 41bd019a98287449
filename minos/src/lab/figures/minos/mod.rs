//! The figures of Minos: simulations of eight workers, and one measurement.

mod dynamic;
mod latency;
mod load;
mod parts;
mod penalty;
mod queues;
mod sampling;
mod service;
mod slo;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use minos_sim::dispatch::{
    Costs, Design, EPOCHS_DEFAULT, Mix, Outcome, Spec, TxQueues, run, run_all, throughput_under,
    throughput_under_all,
};

use super::{plots::Plot, table::Table};

/// The costs whose figures have no suffix in their names.
pub(super) const COSTS: &str = "kernel-bypass";

/// One table of numbers, and the pictures of it.
pub(super) struct Figure {
    pub(super) plots: &'static [Plot],
    pub(super) basis: Basis,
    pub(super) make: fn(&Study<'_>) -> Result<Table>,
}

/// The source of a figure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// A measurement on this machine.
    Machine,
    /// A simulation of queues; dispatching costs nothing.
    Queues,
    /// A simulation of servers with every known cost model.
    AllCosts,
    /// A simulation of servers with the costs of the study.
    Servers,
}

/// All figures, with the numbers of the paper.
pub(super) const FIGURES: &[Figure] = &[
    Figure { plots: &[service::PLOT], basis: Basis::Machine, make: service::figure_1 },
    Figure { plots: &[queues::PLOT], basis: Basis::Queues, make: queues::figure_2 },
    Figure { plots: &[parts::PLOT], basis: Basis::AllCosts, make: parts::figure_parts },
    Figure { plots: &[parts::PLOT_MORE], basis: Basis::AllCosts, make: parts::figure_parts_more },
    Figure { plots: &[latency::PLOT_3], basis: Basis::Servers, make: latency::figure_3 },
    Figure { plots: &[latency::PLOT_4], basis: Basis::Servers, make: latency::figure_4 },
    Figure { plots: &penalty::PLOTS, basis: Basis::Servers, make: penalty::figure_4b },
    Figure { plots: &[latency::PLOT_5], basis: Basis::Servers, make: latency::figure_5 },
    Figure { plots: &[slo::PLOT_6], basis: Basis::Servers, make: slo::figure_6 },
    Figure { plots: &[slo::PLOT_7], basis: Basis::Servers, make: slo::figure_7 },
    Figure { plots: &sampling::PLOTS, basis: Basis::Servers, make: sampling::figure_8 },
    Figure { plots: &load::PLOTS, basis: Basis::Servers, make: load::figure_9 },
    Figure { plots: &dynamic::PLOTS, basis: Basis::Servers, make: dynamic::figure_10 },
];

/// A design, and its name in figures.
#[derive(Clone, Copy)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    pub(super) design: Design,
    /// Numbers of hand-off workers; the best one counts.
    pub(super) handoff_workers: &'static [usize],
    pub(super) tx_queues: TxQueues,
}

impl Contestant {
    const fn new(name: &'static str, design: Design) -> Self {
        let handoff_workers: &[usize] = if matches!(design, Design::HandOff) { &[1, 2, 3] } else { &[1] };
        Self { name, design, handoff_workers, tx_queues: TxQueues::Design }
    }

    /// The control: large replies leave through a TX queue of their own.
    const fn apart(name: &'static str, design: Design) -> Self {
        Self { tx_queues: TxQueues::Two, ..Self::new(name, design) }
    }
}

const HKH: Contestant = Contestant::new("HKH", Design::KeyHash);
const SHO: Contestant = Contestant::new("SHO", Design::HandOff);
const STEALING: Contestant = Contestant::new("HKH+WS", Design::Stealing);
const STEALING_APART: Contestant = Contestant::apart("HKH+WS with large TX queue", Design::Stealing);
const MINOS: Contestant = Contestant::new("Minos", Design::SizeAware);

/// The designs of the paper's evaluation (Minos §5.2), each rival without and with a TX queue for large
/// replies; Minos last.
pub(super) const DESIGNS: [Contestant; 7] = [
    HKH,
    Contestant::apart("HKH with large TX queue", Design::KeyHash),
    SHO,
    Contestant::apart("SHO with large TX queue", Design::HandOff),
    STEALING,
    STEALING_APART,
    MINOS,
];

/// With fewer requests, an epoch has too few large ones to estimate their share.
const EPOCH_REQUESTS_MIN: u64 = 20_000;
/// Covers two epochs of a short run.
const WARMUP_PERCENT: f64 = 20.0;
/// Approximate number of rates on an axis.
const RATES: f64 = 14.0;
/// A rate beyond any server's capacity.
const OVERLOAD: f64 = 2e7;

/// The parameters of figures.
#[derive(Clone)]
pub(super) struct Study<'a> {
    pub(super) costs: Costs,
    /// The name of the costs.
    pub(super) costs_name: &'a str,
    /// Requests of each run, warm-up included.
    pub(super) requests: u64,
    pub(super) seed: u64,
    /// Shows progress.
    pub(super) bar: &'a ProgressBar,
}

impl Study<'_> {
    /// The parameters that a figure's numbers depend on.
    pub(super) fn parameters(&self, figure: &Figure) -> Result<String> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let machine = format!("one of {processors} processors of this machine");
        let simulation = format!("requests {}; seed {}", self.requests, self.seed);
        Ok(match figure.basis {
            Basis::Machine => machine,
            Basis::Queues => simulation,
            Basis::AllCosts => {
                let costs: BTreeMap<_, _> = parts::costs()?.into_iter().collect();
                format!("{simulation}; costs {}", serde_json::to_string(&costs)?)
            }
            Basis::Servers => format!("{simulation}; costs {}", serde_json::to_string(&self.costs)?),
        })
    }

    /// The title of a simulation of servers: its workload and its costs.
    pub(super) fn title(&self, workload: &str) -> String {
        format!("{workload}; 8 workers, costs {}", self.costs_name)
    }

    /// A run with eight workers.
    pub(super) fn spec(&self, design: Design, rate: f64, mix: Mix) -> Spec {
        Spec {
            mix,
            costs: self.costs.clone(),
            requests: self.requests,
            epoch_requests: (self.requests / EPOCHS_DEFAULT).max(EPOCH_REQUESTS_MIN),
            warmup_percent: WARMUP_PERCENT,
            seed: self.seed,
            ..Spec::new(design, rate)
        }
    }

    /// A run with each number of hand-off workers of `design`.
    pub(super) fn specs(&self, design: &Contestant, rate: f64, mix: Mix) -> Vec<Spec> {
        let spec = |&handoff_workers: &usize| {
            let tx_queues = design.tx_queues;
            Spec { handoff_workers, tx_queues, ..self.spec(design.design, rate, mix) }
        };
        design.handoff_workers.iter().map(spec).collect()
    }

    /// For each of `designs`, the run with the highest rate within `limit_us`.
    pub(super) fn highest(
        &self,
        designs: &[Contestant],
        mix: Mix,
        limit_us: f64,
    ) -> Result<Vec<Option<Outcome>>> {
        let specs: Vec<_> = designs.iter().flat_map(|design| self.specs(design, OVERLOAD, mix)).collect();
        let mut found = throughput_under_all(&specs, limit_us, || self.bar.tick())?.into_iter();
        let best = |design: &Contestant| {
            let of_design = found.by_ref().take(design.handoff_workers.len()).flatten();
            of_design.max_by(|a, b| a.achieved_rps.total_cmp(&b.achieved_rps))
        };
        Ok(designs.iter().map(best).collect())
    }

    /// The outcomes of `specs`, in order.
    pub(super) fn run_all(&self, specs: &[Spec]) -> Result<Vec<Outcome>> {
        Ok(run_all(specs, || self.bar.tick())?)
    }

    /// The highest rate that Minos sustains under `mix`, whatever the latencies.
    pub(super) fn most(&self, mix: Mix) -> Result<f64> {
        let spec = self.spec(Design::SizeAware, OVERLOAD, mix);
        let found = throughput_under(&spec, f64::MAX)?;
        Ok(found.context("costs: they allow no load that is worth a figure")?.offered_rps)
    }

    /// The strict limit and the loose one: 10 and 20 times the mean service time of the default workload's
    /// GETs (Minos §5.4), as seen by a client without competition. 50 and 100 us in the paper.
    pub(super) fn limits_us(&self) -> Result<[f64; 2]> {
        let mix = Mix { get_ratio: 1.0, ..Mix::PAPER };
        let alone = Spec { requests: 100_000, ..self.spec(Design::KeyHash, 1000.0, mix) };
        let mean_us = run(&alone)?.latency_us.all.mean.value.round();
        Ok([10.0 * mean_us, 20.0 * mean_us])
    }
}

/// Rates to compare servers at, a round number apart, up to the highest.
pub(super) fn rates(most: f64) -> Vec<f64> {
    let step = round_up(most / RATES);
    (1..).map(|index| step * f64::from(index)).take_while(|rate| *rate <= most).collect()
}

/// The next number that is 1, 2, 2.5 or 5 times a power of ten.
fn round_up(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    let found = [1.0, 2.0, 2.5, 5.0].into_iter().map(|digit| digit * power).find(|round| *round >= number);
    found.unwrap_or(10.0 * power)
}

/// True if a server sustained the offered rate, as in all results of the paper (Minos §5.4).
pub(super) fn keeps_up(outcome: &Outcome) -> bool {
    outcome.dropped == 0 && outcome.achieved_rps > 0.99 * outcome.offered_rps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_differ_in_name_and_in_what_they_are() {
        for (place, design) in DESIGNS.iter().enumerate() {
            let others = &DESIGNS[place + 1..];
            assert!(others.iter().all(|other| other.name != design.name));
            let same = |other: &&Contestant| other.design == design.design;
            assert!(others.iter().filter(same).all(|other| other.tx_queues != design.tx_queues));
        }
    }

    #[test]
    fn steps_are_round() {
        for (number, round) in [(0.43e6, 0.5e6), (0.5e6, 0.5e6), (0.21e6, 0.25e6), (0.6, 1.0), (2.1, 2.5)] {
            assert!((round_up(number) / round - 1.0).abs() < 1e-9, "{number}: {}", round_up(number));
        }
    }
}
