//! What requests take over TCP, which `minos calibrate` does not measure.
//!
//! From the time that worker and driver are busy, and from responses without load. No percentile under load goes into
//! any cost.

use std::{env, fs, process};

use anyhow::Context;
use minos_base::limits::SLICE_BYTES;
use toml::{Table, Value};

use super::{
    CONNECTIONS, RECEIVE_BUFFER,
    designs::Contest,
    runner::{Case, Runner, Sample},
};
use crate::measure::{Samples, driver::Pace};

/// Sizes by which the costs of a request and of a byte are found.
const SHORT_BYTES: u32 = 32;
const LONG_BYTES: [u32; 2] = [100_000, 500_000];
/// Of requests of which hardly one waits for another, and which are so many that caches stay warm.
const UNLOADED_PER_S: f64 = 20_000.0;
/// Long ones among them, of all.
const LONG_SHARE: f64 = 0.025;
/// At which the driver's costs are measured: when it has little to do they are higher.
const DRIVER_PER_S: &str = "100000";
const DRIVER_LONG_PER_S: &str = "4000";
/// Of long values in closed loop: so few that buffers hold them.
const LONG_CONNECTIONS: &str = "2";

/// What is measured of a server.
#[derive(Debug, Default)]
struct Figures {
    /// A worker's time for a short GET and a short PUT in closed loop.
    get_ns: Samples,
    put_ns: Samples,
    /// The same of a GET without load, and what half of the responses take.
    unloaded_ns: Samples,
    response_ns: Samples,
    /// The driver's time.
    send_ns: Samples,
    receive_ns: Samples,
    long: [LongFigures; 2],
}

/// The same of values of one length.
#[derive(Debug, Default)]
struct LongFigures {
    get_ns: Samples,
    put_ns: Samples,
    /// Of a GET that, beside the moving of bytes.
    rest_ns: Samples,
    /// What moves the bytes, without load.
    unloaded_ns: Samples,
    /// The driver's time for a value it stores, and for one that comes.
    send_ns: Samples,
    receive_ns: Samples,
}

/// Costs under measurement.
#[derive(Debug, Default)]
pub(super) struct Calibration {
    keyhash: Figures,
    /// In slices.
    size_aware: Figures,
}

impl Calibration {
    /// Measures everything once, of servers with keyhash and with size-aware sharding.
    pub(super) fn round(
        &mut self,
        runner: &mut Runner<'_>,
        [keyhash, size_aware]: [&Contest; 2],
        round: u32,
    ) -> anyhow::Result<()> {
        self.keyhash.round(&mut Subject { runner, contest: keyhash, round })?;
        self.size_aware.round(&mut Subject { runner, contest: size_aware, round })
    }

    /// `costs` in which those of requests, of bytes and of the driver are the medians of what was measured.
    pub(super) fn costs(&self, mut costs: Table) -> Table {
        for of_others in ["spread_percent", "also_measured"] {
            costs.remove(of_others);
        }
        let source = "time of worker and driver over TCP on loopback, two virtual processors: \
                      `cargo xtask measure dispatch-model`; the rest from `minos calibrate`";
        costs.insert("source".to_owned(), Value::String(source.to_owned()));
        let known_ns = |costs: &Table, name: &str| costs.get(name).and_then(Value::as_float).unwrap_or(0.0);
        let of = Derived::from(self, known_ns(&costs, "poll_ns"));
        for (name, value) in [
            ("per_request_ns", (of.get_ns - known_ns(&costs, "lookup_ns")).max(0.0)),
            ("per_put_ns", of.put_more_ns),
            ("per_byte_ns", of.long.byte_ns),
            ("per_byte_in_ns", of.stored_byte_ns),
            ("per_long_reply_ns", of.long.more_ns),
            ("per_slice_ns", of.slice_ns),
            ("network_ns", of.network_ns),
            // These are in the time of a request and of a byte.
            ("per_packet_ns", 0.0),
            ("per_packet_out_ns", 0.0),
            ("per_segment_ns", 0.0),
            ("per_segment_out_ns", 0.0),
            ("per_receive_ns", 0.0),
            ("per_send_ns", 0.0),
            // It spins.
            ("wake_ns", 0.0),
            // What loopback carries is carried by the processors.
            ("link_gbps", 10_000.0),
        ] {
            costs.insert(name.to_owned(), number(value));
        }
        costs.insert("after_idle".to_owned(), of.after_idle());
        costs.insert("client".to_owned(), self.client());
        costs
    }

    /// What the driver takes. It is the same before both servers.
    fn client(&self) -> Value {
        let Figures { long, .. } = &self.keyhash;
        let byte_ns =
            |figure: fn(&LongFigures) -> &Samples| slope(long.each_ref().map(|long| figure(long).median()));
        let mut client = table([
            ("send_ns", self.of_both(|figures| &figures.send_ns)),
            ("sent_byte_ns", byte_ns(|long| &long.send_ns)),
            ("receive_ns", self.of_both(|figures| &figures.receive_ns)),
            ("received_byte_ns", byte_ns(|long| &long.receive_ns)),
        ]);
        client.insert("dates_arrivals".to_owned(), Value::Boolean(true));
        Value::Table(client)
    }

    /// The median over both servers, of what is the same with both.
    fn of_both(&self, figure: impl Fn(&Figures) -> &Samples) -> f64 {
        let mut all = Samples::default();
        for figures in [&self.keyhash, &self.size_aware] {
            figure(figures).all().for_each(|value| all.push(value));
        }
        all.median()
    }
}

/// A server whose costs are measured.
struct Subject<'s, 'r> {
    runner: &'s mut Runner<'r>,
    contest: &'s Contest,
    round: u32,
}

impl Subject<'_, '_> {
    fn measure(&mut self, items: &Items, rate: &str, connections: &str) -> anyhow::Result<Sample> {
        let load = ["--workload", &items.path];
        self.runner.load(self.contest, &load)?;
        let case = Case { name: &items.name, round: self.round, pace: Pace::Spin };
        let more = ["--rate", rate, "--connections", connections];
        let arguments = [&load[..], &more, RECEIVE_BUFFER].concat();
        Ok(self.runner.measure_undisturbed(self.contest, case, &arguments)?.0)
    }
}

impl Figures {
    fn round(&mut self, subject: &mut Subject<'_, '_>) -> anyhow::Result<()> {
        let gets = Items::of_one_size(SHORT_BYTES, 1.0)?;
        let puts = Items::of_one_size(SHORT_BYTES, 0.0)?;
        self.get_ns.push(subject.measure(&gets, "max", CONNECTIONS)?.work.busy_ns());
        self.put_ns.push(subject.measure(&puts, "max", CONNECTIONS)?.work.busy_ns());
        let unloaded = subject.measure(&gets, &UNLOADED_PER_S.to_string(), CONNECTIONS)?;
        self.unloaded_ns.push(unloaded.work.busy_ns());
        self.response_ns.push(1e3 * unloaded.small.p50_us);
        let driver = subject.measure(&gets, DRIVER_PER_S, CONNECTIONS)?;
        self.send_ns.push(driver.driver_sending_ns());
        self.receive_ns.push(driver.driver_receiving_ns());
        for (long, bytes) in self.long.iter_mut().zip(LONG_BYTES) {
            long.round(subject, bytes)?;
        }
        Ok(())
    }
}

impl LongFigures {
    fn round(&mut self, subject: &mut Subject<'_, '_>, bytes: u32) -> anyhow::Result<()> {
        let unloaded = subject.measure(&Items::mixed(bytes)?, &UNLOADED_PER_S.to_string(), CONNECTIONS)?;
        self.unloaded_ns.push(unloaded.work.large_ns());
        let gets = Items::of_one_size(bytes, 1.0)?;
        let busy = subject.measure(&gets, "max", LONG_CONNECTIONS)?.work;
        self.get_ns.push(busy.busy_ns());
        self.rest_ns.push(busy.rest_ns());
        let driver = subject.measure(&gets, DRIVER_LONG_PER_S, LONG_CONNECTIONS)?;
        self.receive_ns.push(driver.driver_receiving_ns());
        let puts = subject.measure(&Items::of_one_size(bytes, 0.0)?, "max", LONG_CONNECTIONS)?;
        self.put_ns.push(puts.work.busy_ns());
        self.send_ns.push(puts.driver_sending_ns());
        Ok(())
    }
}

/// What a long reply takes more than a short one, beside its bytes, and those.
#[derive(Clone, Copy, Debug)]
struct Long {
    more_ns: f64,
    byte_ns: f64,
}

impl Long {
    /// Through what values of `LONG_BYTES` take, if a short one takes `short_ns`. A longer value never takes less, and a
    /// long one no less than a short one.
    fn through(long_ns: [f64; 2], short_ns: f64) -> Self {
        let byte_ns = slope(long_ns);
        let more_ns = long_ns[0] - byte_ns * f64::from(LONG_BYTES[0]) - short_ns;
        if more_ns < 0.0 {
            return Self {
                more_ns: 0.0,
                byte_ns: (long_ns[1] - short_ns).max(0.0) / f64::from(LONG_BYTES[1]),
            };
        }
        Self { more_ns, byte_ns }
    }
}

/// Costs that follow from what was measured.
struct Derived {
    get_ns: f64,
    put_more_ns: f64,
    stored_byte_ns: f64,
    /// In closed loop, and of a worker that had nothing to do before.
    long: Long,
    unloaded: Long,
    unloaded_ns: f64,
    slice_ns: f64,
    network_ns: f64,
}

impl Derived {
    fn from(all: &Calibration, poll_ns: f64) -> Self {
        let Figures { long, .. } = &all.keyhash;
        let of_long = |figure: fn(&LongFigures) -> f64| long.each_ref().map(figure);
        let get_ns = all.of_both(|figures| &figures.get_ns);
        let mean_ns = all.of_both(|figures| &figures.unloaded_ns);
        // Some requests come while the worker is busy with another.
        let busy = (mean_ns * UNLOADED_PER_S / 1e9).min(0.9);
        let unloaded_ns = ((mean_ns - busy * get_ns) / (1.0 - busy)).max(get_ns);
        // What a long reply takes beside its bytes grows as a short one does.
        let rest_ns = all.of_both(|figures| &figures.long[0].rest_ns) * unloaded_ns / get_ns;
        let unloaded_long_ns = of_long(|long| long.unloaded_ns.median()).map(|ns| ns + rest_ns);
        let sliced_ns = all.size_aware.long[1].get_ns.median() - long[1].get_ns.median();
        // The kernel dates what comes, so that receiving is no part of a response.
        let sending_ns = all.of_both(|figures| &figures.send_ns);
        Self {
            get_ns,
            put_more_ns: (all.of_both(|figures| &figures.put_ns) - get_ns).max(0.0),
            stored_byte_ns: slope(of_long(|long| long.put_ns.median())),
            long: Long::through(of_long(|long| long.get_ns.median()), get_ns),
            unloaded: Long::through(unloaded_long_ns, unloaded_ns),
            unloaded_ns,
            slice_ns: (sliced_ns / slices(LONG_BYTES[1])).max(0.0),
            network_ns: all.of_both(|figures| &figures.response_ns) - unloaded_ns - poll_ns - sending_ns,
        }
    }

    fn after_idle(&self) -> Value {
        let Self { get_ns, unloaded_ns, long, unloaded, .. } = self;
        let long_reply_ns = unloaded_ns + unloaded.more_ns - get_ns - long.more_ns;
        Value::Table(table([
            ("request_ns", unloaded_ns - get_ns),
            ("long_reply_ns", long_reply_ns.max(0.0)),
            ("long_byte_ns", (unloaded.byte_ns - long.byte_ns).max(0.0)),
        ]))
    }
}

/// By how much a byte more makes something longer that values of `LONG_BYTES` take; not less than nothing.
fn slope([fewer, more]: [f64; 2]) -> f64 {
    ((more - fewer) / f64::from(LONG_BYTES[1] - LONG_BYTES[0])).max(0.0)
}

/// Slices of a value of so many bytes.
fn slices(bytes: u32) -> f64 {
    (bytes as usize).div_ceil(SLICE_BYTES) as f64
}

fn number(value: f64) -> Value {
    Value::Float((value * 1e4).round() / 1e4)
}

fn table<const N: usize>(entries: [(&str, f64); N]) -> Table {
    entries.into_iter().map(|(name, value)| (name.to_owned(), number(value))).collect()
}

/// A workload in a file that is removed again.
struct Items {
    name: String,
    path: String,
}

impl Items {
    /// Of values of one length.
    fn of_one_size(bytes: u32, get_ratio: f64) -> anyhow::Result<Self> {
        let keys = if bytes == SHORT_BYTES { 100_000 } else { 200 };
        let group = group(keys, bytes, 1.0);
        Self::write(format!("{bytes} bytes and {get_ratio} GETs"), get_ratio, &group)
    }

    /// Of short ones and a few long ones.
    fn mixed(bytes: u32) -> anyhow::Result<Self> {
        let groups = group(20_000, SHORT_BYTES, 1.0 - LONG_SHARE) + &group(200, bytes, LONG_SHARE);
        Self::write(format!("{bytes} bytes among short ones"), 1.0, &groups)
    }

    fn write(name: String, get_ratio: f64, groups: &str) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("minos-calibration-{}.toml", process::id()));
        let text = format!("name = \"calibration\"\n[[stream]]\nget_ratio = {get_ratio:?}\n{groups}");
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(Self { name, path: path.display().to_string() })
    }
}

fn group(keys: u32, bytes: u32, weight: f64) -> String {
    format!(
        "[[stream.group]]\nkeys = {keys}\nweight = {weight:?}\npopularity = \"uniform\"\n\
         value_bytes = {{ min = {bytes}, max = {bytes} }}\n"
    )
}

impl Drop for Items {
    fn drop(&mut self) {
        // A file that is gone already is what is wanted.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(value: f64) -> Samples {
        let mut samples = Samples::default();
        samples.push(value);
        samples
    }

    /// A worker for which a request takes 4 us, 5 after a pause, and a byte a tenth of a nanosecond.
    fn figures(slice_ns: f64) -> Figures {
        let long = LONG_BYTES.map(|bytes| {
            let byte_ns = 0.1 * f64::from(bytes);
            LongFigures {
                get_ns: once(6e3 + byte_ns + slices(bytes) * slice_ns),
                put_ns: once(4e3 + 1.5 * byte_ns),
                rest_ns: once(2e3),
                unloaded_ns: once(7e3 + 2.0 * byte_ns),
                send_ns: once(3e3 + byte_ns),
                receive_ns: once(2e3 + 0.2 * byte_ns),
            }
        });
        Figures {
            get_ns: once(4e3),
            put_ns: once(4.5e3),
            // A tenth of them come while the worker is busy.
            unloaded_ns: once(4.9e3),
            response_ns: once(1e4),
            send_ns: once(3e3),
            receive_ns: once(1e3),
            long,
        }
    }

    fn costs() -> Table {
        let base: Table = toml::from_str("poll_ns = 300.0\nlookup_ns = 50.0\nspread_percent = {}").unwrap();
        Calibration { keyhash: figures(0.0), size_aware: figures(1500.0) }.costs(base)
    }

    #[track_caller]
    fn assert_near(table: &Table, name: &str, wanted: f64) {
        let had = table[name].as_float().unwrap();
        assert!((had - wanted).abs() <= 0.01 * wanted.abs().max(0.1), "{name} = {had}, not {wanted}");
    }

    #[test]
    fn costs_are_what_the_figures_are_made_of() {
        let costs = costs();
        for (name, wanted) in [
            ("per_request_ns", 3950.0),
            ("per_put_ns", 500.0),
            ("per_byte_ns", 0.1),
            ("per_byte_in_ns", 0.15),
            ("per_long_reply_ns", 2000.0),
            ("per_slice_ns", 1500.0),
            // The response without the worker's 5 us, a look and the 3 us that the driver sends.
            ("network_ns", 1702.0),
        ] {
            assert_near(&costs, name, wanted);
        }
        assert!(!costs.contains_key("spread_percent"));
        let client = costs["client"].as_table().unwrap();
        for (name, wanted) in
            [("send_ns", 3000.0), ("sent_byte_ns", 0.1), ("receive_ns", 1000.0), ("received_byte_ns", 0.02)]
        {
            assert_near(client, name, wanted);
        }
    }

    #[test]
    fn what_is_dearer_without_load_is_told_apart() {
        let costs = costs();
        let after_idle = costs["after_idle"].as_table().unwrap();
        assert_near(after_idle, "request_ns", 998.0);
        // 7 us, and 2.5 us beside the moving of bytes, of which 6 us are there with load too.
        assert_near(after_idle, "long_reply_ns", 3499.0);
        assert_near(after_idle, "long_byte_ns", 0.1);
    }

    #[test]
    fn a_long_reply_costs_no_less_than_a_short_one() {
        // A line through both would begin below the short one.
        let Long { more_ns, byte_ns } = Long::through([8e3, 48e3], 4e3);
        assert_eq!(more_ns, 0.0);
        assert!((byte_ns - 44e3 / 5e5).abs() < 1e-9, "{byte_ns}");
        assert_eq!(slope([5.0, 4.0]), 0.0);
    }
}
