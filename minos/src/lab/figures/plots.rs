//! The layout of each figure: the column on each axis.

use std::fmt;

pub(super) use minos_plot::{Corner, Scale};

/// A paper whose figures can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paper {
    Rackout,
    Vector,
    Minos,
    Mica,
}

impl Paper {
    /// The name on the command line and in file names.
    const fn name(self) -> &'static str {
        match self {
            Self::Rackout => "rackout",
            Self::Vector => "vector",
            Self::Minos => "minos",
            Self::Mica => "mica",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Rackout => "RackOut",
            Self::Vector => "Using vector interfaces",
            Self::Minos => "Minos",
            Self::Mica => "MICA",
        }
    }
}

/// The origin of a figure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Evidence {
    /// Measured on the machine where the figure was made.
    Measured,
    /// Measured there, on a device in memory with the paper's service times.
    Modelled,
    /// Computed by a simulator or from a model.
    Simulated,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Modelled => "measured on a modelled device",
            Self::Simulated => "simulated",
        })
    }
}

/// The layout of one figure.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) paper: Paper,
    pub(super) number: &'static str,
    /// The column whose values each have a panel.
    pub(super) panel: Option<&'static str>,
    /// The column whose values each have a line.
    pub(super) series: Option<&'static str>,
    pub(super) x: (&'static str, Scale),
    /// The columns on the y axis; several are a line each.
    pub(super) y: &'static [&'static str],
    pub(super) y_scale: Scale,
    /// The name of the y axis, if not that of its column.
    y_name: Option<&'static str>,
    /// The corner with the fewest lines.
    pub(super) legend: Corner,
    pub(super) evidence: Evidence,
}

impl Plot {
    /// One panel with one line.
    pub(super) const fn new(
        paper: Paper,
        number: &'static str,
        x: (&'static str, Scale),
        y: &'static [&'static str],
    ) -> Self {
        Self {
            paper,
            number,
            panel: None,
            series: None,
            x,
            y,
            y_scale: Scale::Linear,
            y_name: None,
            legend: Corner::UpperLeft,
            evidence: Evidence::Simulated,
        }
    }

    /// The stem of its file names.
    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.paper.name(), self.number)
    }

    /// The name of the y axis.
    pub(super) fn y_name(&self) -> &'static str {
        self.y_name.unwrap_or(self.y[0])
    }

    pub(super) const fn panels(mut self, column: &'static str) -> Self {
        self.panel = Some(column);
        self
    }

    pub(super) const fn lines(mut self, column: &'static str) -> Self {
        self.series = Some(column);
        self
    }

    pub(super) const fn log_y(mut self) -> Self {
        self.y_scale = Scale::Log10;
        self
    }

    pub(super) const fn y_called(mut self, name: &'static str) -> Self {
        self.y_name = Some(name);
        self
    }

    pub(super) const fn legend_at(mut self, corner: Corner) -> Self {
        self.legend = corner;
        self
    }

    pub(super) const fn evidence(mut self, evidence: Evidence) -> Self {
        self.evidence = evidence;
        self
    }
}

const fn rackout(number: &'static str, x: &'static str, x_scale: Scale, y: &'static [&'static str]) -> Plot {
    Plot::new(Paper::Rackout, number, (x, x_scale), y)
}

const VECTOR_13: Plot = Plot::new(Paper::Vector, "13", ("nodes", Scale::Log2), &["vector width"])
    .panels("gf")
    .lines("replicas")
    .legend_at(Corner::UpperRight);

/// The figures of racks. Several figures of the paper that share a table are here once, under the first
/// number.
pub(super) const PLOTS: [Plot; 19] = [
    rackout("1", "server", Scale::Linear, &["load"]),
    rackout("2a", "servers", Scale::Log2, &["shard skew"]).lines("zipf").log_y(),
    rackout("2b", "servers", Scale::Log2, &["shard skew"]).lines("keys").log_y(),
    rackout("4a", "gf", Scale::Log2, &["speed-up"]).lines("servers"),
    rackout("4b", "gf", Scale::Log2, &["speed-up"]).lines("servers"),
    rackout("5", "gf", Scale::Log2, &["speed-up"]).lines("writes %"),
    rackout("7a", "utilization", Scale::Linear, &["p99 us"])
        .lines("gf")
        .log_y()
        .legend_at(Corner::LowerRight),
    rackout("7b", "utilization", Scale::Linear, &["p99 us"])
        .lines("gf")
        .log_y()
        .legend_at(Corner::LowerRight),
    rackout("8", "utilization", Scale::Linear, &["share of datasets"]).lines("gf"),
    rackout("9", "keys", Scale::Linear, &["share of the load"])
        .panels("zipf")
        .lines("gf")
        .legend_at(Corner::LowerRight),
    rackout("10", "gf", Scale::Log2, &["speed-up"]).lines("RR/LR"),
    rackout("11a", "steps", Scale::Linear, &["utilization"]).lines("gf").legend_at(Corner::LowerRight),
    rackout("11b", "steps", Scale::Linear, &["utilization"]).lines("gf").legend_at(Corner::LowerRight),
    rackout("11c", "steps", Scale::Linear, &["utilization"]).lines("gf").legend_at(Corner::LowerRight),
    rackout("15", "server", Scale::Linear, &["writes", "static", "adaptive"])
        .y_called("share of the requests")
        .legend_at(Corner::UpperRight),
    rackout("16", "utilization", Scale::Linear, &["p99 us"])
        .panels("writes %")
        .lines("gf")
        .log_y()
        .legend_at(Corner::LowerRight),
    rackout("18", "utilization", Scale::Linear, &["p99 us"]).panels("slowdown").lines("algorithm").log_y(),
    rackout("19", "writes %", Scale::Linear, &["static", "algorithm 1", "equal load"])
        .y_called("speed-up")
        .legend_at(Corner::UpperRight),
    VECTOR_13,
];

#[cfg(test)]
mod tests {
    use minos_rackmodel::figures::NUMBERS;

    use super::*;

    #[test]
    fn every_figure_that_can_be_made_is_drawn() {
        let same = |number| match number {
            "17" => "15",
            "20" | "21" => "18",
            other => other,
        };
        let drawn = |number| PLOTS.iter().any(|plot| plot.paper == Paper::Rackout && plot.number == number);
        assert!(NUMBERS.into_iter().all(|number| drawn(same(number))));
        assert!(PLOTS.iter().all(|plot| plot.paper == Paper::Vector || NUMBERS.contains(&plot.number)));
    }
}
