//! The output of the demo: a bar for each percentile, coloured on a terminal.

use std::io::IsTerminal;

use minos_workload::Quantiles;

use super::{Act, Round, Score};
use crate::lab::bench::{bar, log_share};

const BAR_WIDTH: usize = 44;

/// Colours of a terminal; empty elsewhere.
#[derive(Clone, Copy)]
struct Palette {
    is_on: bool,
}

impl Palette {
    /// The colours for standard output, by the rules of <https://no-color.org>.
    fn of_stdout() -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { is_on: is_wanted && std::io::stdout().is_terminal() }
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// The percentiles shown, each with its colour.
const SHOWN: [(&str, &str); 3] = [("p50", "32"), ("p99", "33"), ("p99.9", "31")];

pub(super) fn opening(acts: &[Act], cpus: usize) -> String {
    let place = match cpus {
        0 | 1 => "one processor for server and driver".to_owned(),
        2 => "one processor for the server, one for the driver".to_owned(),
        _ => format!("{} processors for the server, one for the driver", cpus - 1),
    };
    format!(
        "{}\nEach server is measured with {} workloads, in rounds that take turns; {place}.\n",
        Palette::of_stdout().bold("Small requests never wait for large ones."),
        acts.len()
    )
}

/// The line for a server that is not installed.
pub(super) fn absent(name: &str) -> String {
    Palette::of_stdout().dim(&format!("{name} is not installed: left out"))
}

/// Bars and a verdict for each act.
pub(super) fn results(acts: &[Act], scores: &[Score]) -> String {
    let palette = Palette::of_stdout();
    let mut text = String::new();
    for act in acts {
        let of_act: Vec<&Score> = scores.iter().filter(|score| score.act == act.title).collect();
        text.push_str(&palette.bold(act.title));
        text.push('\n');
        text.push_str(&palette.dim("latency of small requests in microseconds: median of the rounds (best round); bars are logarithmic"));
        text.push_str("\n\n");
        text.push_str(&bars(&of_act, palette));
        text.push_str(&verdict(&of_act).unwrap_or_default());
        text.push_str(&neighbour(&of_act));
        text.push_str("\n\n");
    }
    text.trim_end().to_owned()
}

/// Accessors for the percentiles of [`SHOWN`].
const READ: [fn(&Quantiles) -> f64; 3] = [|small| small.p50, |small| small.p99, |small| small.p999];

/// The median and the best over the rounds, for each percentile.
fn percentiles(score: &Score) -> [(f64, f64); 3] {
    READ.map(|read| {
        let small = |round: &Round| round.report.latency_us.small;
        let mut values: Vec<f64> = score
            .rounds
            .iter()
            .map(small)
            .filter(|small| small.count > 0)
            .map(|small| read(&small))
            .collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
        (at(values.len() / 2), at(0))
    })
}

fn has_answered(score: &Score) -> bool {
    score.report.latency_us.small.count > 0
}

/// A warning if other load may have distorted the results.
fn neighbour(scores: &[&Score]) -> String {
    let rounds = || scores.iter().flat_map(|score| &score.rounds).map(|round| round.disturbance);
    let disturbed = rounds().filter(|disturbance| disturbance.is_notable()).count();
    let Some(worst) = rounds().reduce(|a, b| a.worst(b)).filter(|_| disturbed > 0) else {
        return String::new();
    };
    let all = rounds().count();
    let is_most = 2 * disturbed > all;
    let said = if is_most {
        "This is the neighbour, not the servers: do it again on a quieter machine."
    } else {
        "They are fewer than half, so that the medians hold."
    };
    format!("\n{disturbed} of {all} rounds were disturbed: {worst}. {said}")
}

fn bars(scores: &[&Score], palette: Palette) -> String {
    let values = || {
        scores
            .iter()
            .filter(|score| has_answered(score))
            .flat_map(|score| percentiles(score))
            .map(|pair| pair.0)
    };
    // The scale begins at a power of ten below the least value, so that its bar is visible too.
    let least = 10f64.powf((values().fold(f64::MAX, f64::min).max(1.0) / 2.0).log10().floor());
    let most = values().fold(0.0, f64::max);
    let mut text = String::new();
    for score in scores {
        text.push_str(&format!("  {}", palette.bold(&format!("{:<17}", score.contestant))));
        if has_answered(score) {
            text.push_str(&score_bars(score, least, most, palette));
        } else {
            text.push_str(" no answer\n");
        }
        text.push_str(&trouble(score));
        text.push('\n');
    }
    text
}

/// The bars of one server; its name stands before the first.
fn score_bars(score: &Score, least: f64, most: f64, palette: Palette) -> String {
    let mut text = String::new();
    for ((label, colour), (value, best)) in SHOWN.iter().zip(percentiles(score)) {
        let indent = if text.is_empty() { 0 } else { 19 };
        let bar = palette.paint(colour, &bar(log_share(value, least, most), BAR_WIDTH));
        text.push_str(&format!("{:indent$} {label:<5} {bar} {value:.0} ({best:.0})\n", ""));
    }
    text
}

/// The errors and losses, if any: a fast server that loses requests is not fast.
fn trouble(score: &Score) -> String {
    let sum = |of: fn(&Round) -> u64| score.rounds.iter().map(of).sum::<u64>();
    match sum(|round| round.report.errors + round.report.lost) {
        0 => String::new(),
        count => {
            format!("{:20}{count} of {} requests failed\n", "", sum(|round| round.report.completed) + count)
        }
    }
}

/// The others' p99 as multiples of the first contestant's.
fn verdict(scores: &[&Score]) -> Option<String> {
    let p99 = |score: &Score| percentiles(score)[1].0;
    let (first, others) = scores.split_first().filter(|(first, _)| has_answered(first))?;
    let ours = p99(first);
    let times = others.iter().filter(|score| has_answered(score));
    let times: Vec<String> =
        times.map(|score| format!("{} {:.1}x", score.contestant, p99(score) / ours.max(0.1))).collect();
    let rest =
        if times.is_empty() { String::new() } else { format!(" Relative to that: {}.", times.join(", ")) };
    Some(format!("p99 with {}: {ours:.0} us.{rest}", first.contestant))
}
