//! `minos sim rackout`.

mod claims;
mod study;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use minos_rackmodel::{
    BadParameter, Dataset, Fabric, Load, Model, Slo, Throughput,
    figures::{self, Figure, Study},
    search, simulate, skew, targets, unit_count,
};
use serde::Serialize;

use self::study::{Source, Units};
use super::{
    numbers::{parse_count, parse_number},
    table::{rounded, table},
};
use crate::lab::bench::{emit, emit_json};

/// Show the load that servers carry in units that read each other's memory (RackOut).
///
/// Keys are hashed into micro-shards, micro-shards lie on a ring of servers, and servers form units. A write
/// goes to the server that owns its key, a read to any server of the unit. The output is the highest load
/// under which the percentile stays within the objective, for each unit size. All of it is simulated.
#[derive(Args, Debug)]
pub(crate) struct RackoutArgs {
    /// Servers
    #[arg(long, value_name = "N", default_value_t = 512)]
    servers: u32,

    /// Servers of a unit; several are compared
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,4,16")]
    gf: Vec<u32>,

    /// Keys, such as 250m
    #[arg(long, value_name = "N", default_value = "250m", value_parser = parse_count)]
    keys: u64,

    /// A key's popularity is its rank to the power of minus this
    #[arg(long, value_name = "ALPHA", default_value_t = 0.99, value_parser = parse_number)]
    zipf: f64,

    /// Share of the requests that write, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_number)]
    write_share: f64,

    /// Reads within a unit: spread evenly, by the paper's algorithms, or such that all servers are equally
    /// busy
    #[arg(long, value_enum, default_value_t = Reads::Static)]
    reads: Reads,

    /// Fabric of table 1 whose times apply
    #[arg(long, value_enum, default_value_t = FabricName::Rdma)]
    fabric: FabricName,

    /// Time of a local read, instead of the fabric's
    #[arg(long, value_name = "US", value_parser = parse_number)]
    lr_us: Option<f64>,

    /// Time of a remote read, instead of the fabric's
    #[arg(long, value_name = "US", value_parser = parse_number)]
    rr_us: Option<f64>,

    /// Time of a local write, instead of the fabric's
    #[arg(long, value_name = "US", value_parser = parse_number)]
    lw_us: Option<f64>,

    /// Time of the way to a server and back, instead of the fabric's
    #[arg(long, value_name = "US", value_parser = parse_number)]
    propagation_us: Option<f64>,

    /// Upper bound of the percentile of the latencies
    #[arg(long, value_name = "US", default_value_t = 1000.0, value_parser = parse_number)]
    slo_us: f64,

    /// Percentile of the latencies
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = parse_number)]
    percentile: f64,

    /// Simulate this share of the saturation instead of searching
    #[arg(long, value_name = "SHARE", value_parser = parse_number)]
    load: Option<f64>,

    /// Number of a slow server
    #[arg(long, value_name = "N", requires = "interference")]
    interference_server: Option<usize>,

    /// Factor by which everything takes longer there
    #[arg(long, value_name = "FACTOR", value_parser = parse_number, requires = "interference_server")]
    interference: Option<f64>,

    /// Requests of each simulation
    #[arg(long, value_name = "N", default_value = "10m", value_parser = parse_count)]
    arrivals: u64,

    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    units: Units,

    /// Print the rows of a figure of the paper, such as 4a
    #[arg(long, value_name = "NUMBER", conflicts_with = "targets")]
    figure: Option<String>,

    /// Print this number of keys of each server of the hottest rack, most popular first, with their shares of all requests.
    /// The rest of a server's share has rank 0
    #[arg(long, value_name = "N", conflicts_with_all = ["targets", "figure"])]
    hottest_keys: Option<usize>,

    /// Print the papers' claims beside the simulated numbers
    #[arg(long)]
    targets: bool,

    /// Keys of the dataset for the claims about replication
    #[arg(long, value_name = "N", default_value = "1000m", value_parser = parse_count, requires = "targets")]
    replication_keys: u64,

    /// Also write the claims' numbers to this file, as CSV
    #[arg(long, value_name = "FILE", requires = "targets")]
    csv: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reads {
    Static,
    Algorithm1,
    Algorithms1And2,
    EqualLoad,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FabricName {
    Rdma,
    Sonuma,
}

#[derive(Serialize)]
struct Results {
    evidence: &'static str,
    servers: u32,
    keys: u64,
    zipf: f64,
    write_share: f64,
    percentile: f64,
    slo_us: f64,
    arrivals: u64,
    seed: u64,
    /// The largest number of servers in a unit (§4.6).
    unit_size_max: u32,
    units: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    gf: u32,
    rack_skew: f64,
    ideal_speedup: f64,
    saturation_rps: f64,
    saturation_utilization: f64,
    throughput_rps: f64,
    utilization: f64,
    latency_us: f64,
    speedup: f64,
}

/// The output of a figure or the claims with `--json`.
#[derive(Serialize)]
struct Printed<T> {
    evidence: &'static str,
    seed: u64,
    #[serde(flatten)]
    content: T,
}

pub(super) fn run(args: &RackoutArgs) -> Result<()> {
    unit_count(args.servers, 1)?;
    args.source.with_popularity(|popularity| {
        let study = Study {
            keys: args.keys,
            alpha: args.zipf,
            servers: args.servers,
            micro_shards_per_server: args.source.micro_shards,
            arrivals: args.arrivals,
            seed: args.source.seed,
            popularity,
        };
        if let Some(count) = args.hottest_keys {
            let keys = figures::hottest_keys(&study, count)?;
            return print_figure(&keys, args.source.seed, args.json);
        }
        match &args.figure {
            Some(number) => print_figure(&figures::figure(number, &study)?, args.source.seed, args.json),
            None if args.targets => {
                let targets = targets::targets(&study, args.replication_keys)?;
                claims::print(targets, &args.parameters(), args)
            }
            None => args.print_results(&args.results(&study)?),
        }
    })
}

pub(super) fn print_figure(figure: &Figure, seed: u64, json: bool) -> Result<()> {
    if json {
        return Ok(emit_json(&Printed { evidence: "simulated", seed, content: figure })?);
    }
    let number = |value: &f64| match value.fract() {
        0.0 => value.to_string(),
        _ if value.is_nan() => "-".to_owned(),
        _ => rounded(*value),
    };
    let rows = figure.rows.iter().map(|row| row.iter().map(number).collect());
    let text = table(&figure.columns, 0, rows);
    Ok(emit(&format!("simulated, seed {seed}: figure {}, {}\n{text}", figure.figure, figure.title))?)
}

impl RackoutArgs {
    fn fabric(&self) -> Fabric {
        let mut fabric = match self.fabric {
            FabricName::Rdma => Fabric::RDMA,
            FabricName::Sonuma => Fabric::SONUMA,
        };
        let times = &mut fabric.times;
        times.lr_us = self.lr_us.unwrap_or(times.lr_us);
        times.rr_us = self.rr_us.unwrap_or(times.rr_us);
        times.lw_us = self.lw_us.unwrap_or(times.lw_us);
        fabric.propagation_us = self.propagation_us.unwrap_or(fabric.propagation_us);
        fabric
    }

    /// The parameters that the claims' numbers depend on.
    fn parameters(&self) -> String {
        let Self { servers, keys, replication_keys, zipf, arrivals, .. } = self;
        let seed = self.source.seed;
        format!(
            "servers {servers}; keys {keys}, {replication_keys} for replication; zipf {zipf}; arrivals {arrivals}; \
             seed {seed}"
        )
    }

    fn model(&self, dataset: &Dataset, gf: u32) -> Result<Model> {
        let mut model = Model::new(dataset.shares(), gf, self.write_share, self.fabric())?;
        if let (Some(server), Some(factor)) = (self.interference_server, self.interference) {
            model = model.with_interference(server, factor)?;
        }
        Ok(match self.reads {
            Reads::Static => model,
            Reads::Algorithm1 => model.with_algorithm_1()?,
            Reads::Algorithms1And2 => model.with_algorithms_1_and_2()?,
            Reads::EqualLoad => model.with_equal_load()?,
        })
    }

    fn results(&self, study: &Study<'_>) -> Result<Results> {
        self.check()?;
        let unit_size_max = self.units.max(self.fabric().times.rr_us)?;
        let dataset = study.dataset()?;
        let alone = self.throughput(&self.model(&dataset, 1)?)?;
        let units: Result<Vec<Row>> = self.gf.iter().map(|gf| self.row(&dataset, *gf, &alone)).collect();
        Ok(Results {
            evidence: "simulated",
            servers: self.servers,
            keys: self.keys,
            zipf: self.zipf,
            write_share: self.write_share,
            percentile: self.percentile,
            slo_us: self.slo_us,
            arrivals: self.arrivals,
            seed: self.source.seed,
            unit_size_max,
            units: units?,
        })
    }

    /// Rejects bad parameters before time is spent on keys.
    fn check(&self) -> Result<()> {
        for gf in &self.gf {
            unit_count(self.servers, *gf)?;
            Model::new(&vec![1.0; *gf as usize], *gf, self.write_share, self.fabric())?;
        }
        self.load.map_or(Ok(0.0), |load| BadParameter::unless_share("load", load))?;
        BadParameter::unless_positive("slo-us", self.slo_us)?;
        Ok(())
    }

    fn row(&self, dataset: &Dataset, gf: u32, alone: &Throughput) -> Result<Row> {
        let model = self.model(dataset, gf)?;
        let found = if gf == 1 { *alone } else { self.throughput(&model)? };
        Ok(Row {
            gf,
            rack_skew: skew::rack_skew(dataset.shares(), gf),
            ideal_speedup: skew::ideal_speedup(dataset.shares(), gf, self.write_share),
            saturation_rps: model.saturation() * 1e6,
            saturation_utilization: model.utilization(model.saturation()),
            throughput_rps: found.rate * 1e6,
            utilization: found.utilization,
            latency_us: found.latency_us,
            speedup: found.rate / alone.rate,
        })
    }

    /// The throughput by search, or the result at the given load.
    fn throughput(&self, model: &Model) -> Result<Throughput> {
        let slo = Slo { percentile: self.percentile, latency_us: self.slo_us };
        let Some(of_saturation) = self.load else {
            return Ok(search(model, &slo, self.arrivals, self.source.seed)?);
        };
        let rate = model.saturation() * of_saturation;
        let load = Load { rate, arrivals: self.arrivals, seed: self.source.seed };
        let latency_us = simulate(model, &load)?.percentile(self.percentile);
        Ok(Throughput { rate, utilization: model.utilization(rate), latency_us, of_saturation })
    }

    fn print_results(&self, results: &Results) -> Result<()> {
        if self.json {
            return Ok(emit_json(results)?);
        }
        let percentile = format!("p{} us", self.percentile);
        let header = [
            "gf",
            "rack skew",
            "ideal speed-up",
            "saturation",
            "utilization",
            "Mrps",
            &percentile,
            "speed-up",
        ];
        let row = |row: &Row| {
            let numbers = [
                row.rack_skew,
                row.ideal_speedup,
                row.saturation_utilization,
                row.utilization,
                row.throughput_rps / 1e6,
                row.latency_us,
                row.speedup,
            ];
            std::iter::once(row.gf.to_string()).chain(numbers.map(rounded)).collect()
        };
        let Results { servers, keys, zipf, write_share, arrivals, seed, unit_size_max, .. } = results;
        Ok(emit(&format!(
            "simulated: {servers} servers, {keys} keys, zipf {zipf}, {write_share} of requests write, {arrivals} \
             arrivals, seed {seed}\nutilization is of what the servers could do with local reads alone, spread \
             evenly; inner interfaces of {} operations a second allow units of {unit_size_max}\n{}",
            self.units.nic_ops,
            table(&header, 0, results.units.iter().map(row))
        ))?)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::parsed, *};

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (options, name, allowed) in [
            ("--gf 12", "gf: 12", "a divisor of the 512 servers"),
            ("--gf 0", "gf: 0", "a divisor"),
            ("--servers 0", "servers: 0", "1 to 65536"),
            ("--servers 4000000000 --figure 5", "servers: 4000000000", "1 to 65536"),
            ("--write-share 1.1", "write-share: 1.1", "0 to 1"),
            ("--rr-us 0", "rr-us: 0", "above 0"),
            ("--propagation-us=-1", "propagation-us: -1", "0 or more"),
            ("--zipf 3", "zipf: 3", "0 to 2"),
            ("--keys 0", "keys: 0", "1 to"),
            ("--micro-shards 0", "micro-shards: 0", "1 to"),
            ("--threads 0", "threads: 0", "1 to 64"),
            ("--keys 1k --arrivals 10", "arrivals: 10", "1000 to"),
            ("--keys 1k --percentile 100", "percentile: 100", "above 0, below 100"),
            ("--slo-us 0", "slo-us: 0", "above 0"),
            ("--load 1.5", "load: 1.5", "0 to 1"),
            ("--nic-reserve 2", "nic-reserve: 2", "0 to 1"),
            ("--keys 1k --interference-server 512 --interference 2", "interference-server: 512", "below 512"),
            ("--figure 3", "figure: 3", "2a"),
        ] {
            let args = parsed(&format!("rackout --no-cache {options}")).unwrap();
            let message = run(&args).unwrap_err().to_string();
            let named = message.starts_with(&format!("{name} is not allowed; allowed is "));
            assert!(named && message.contains(allowed), "{options}: {message}");
        }
    }

    #[test]
    fn a_small_cluster_is_answered() {
        let line = "rackout --no-cache --servers 16 --gf 1,4 --keys 10k --micro-shards 10 --arrivals 5k";
        let args: RackoutArgs = parsed(line).unwrap();
        args.source
            .with_popularity(|popularity| {
                let study = Study {
                    keys: 10_000,
                    alpha: 0.99,
                    servers: 16,
                    micro_shards_per_server: 10,
                    arrivals: 5_000,
                    seed: 1,
                    popularity,
                };
                let results = args.results(&study)?;
                assert_eq!(results.unit_size_max, 16);
                assert!(results.units[1].ideal_speedup > 1.0 && results.units[0].speedup == 1.0);
                Ok(())
            })
            .unwrap();
    }
}
