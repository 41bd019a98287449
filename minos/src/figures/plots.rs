//! How each figure is drawn: which column lies along which axis.

/// A paper whose figures can be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paper {
    Rackout,
    Vector,
}

/// How the numbers of an axis are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    /// Each mark is twice the last.
    Log2,
    /// Each mark is ten times the last.
    Log10,
}

/// A place for the names of lines.
#[derive(Clone, Copy, Debug)]
pub(super) enum Corner {
    UpperLeft,
    UpperRight,
    LowerRight,
}

/// How one figure is drawn.
#[derive(Debug)]
pub(super) struct Plot {
    pub(super) paper: Paper,
    pub(super) number: &'static str,
    /// Rows that differ here are drawn beside each other.
    pub(super) panel: Option<&'static str>,
    /// Rows that differ here are lines of their own.
    pub(super) series: Option<&'static str>,
    pub(super) x: (&'static str, Scale),
    /// Several columns are lines of their own.
    pub(super) y: &'static [&'static str],
    pub(super) y_scale: Scale,
}

impl Plot {
    /// The stem of its files.
    pub(super) fn name(&self) -> String {
        let paper = match self.paper {
            Paper::Rackout => "rackout",
            Paper::Vector => "vector",
        };
        format!("{paper}-{}", self.number)
    }

    /// What the numbers upwards are.
    pub(super) fn y_name(&self) -> &'static str {
        match self.number {
            "15" => "share of the requests",
            "19" => "speed-up",
            _ => self.y[0],
        }
    }

    /// Where the fewest lines run.
    pub(super) fn legend(&self) -> Corner {
        match (self.paper, self.number) {
            (Paper::Vector, _) | (_, "15" | "19") => Corner::UpperRight,
            (_, "7a" | "7b" | "9" | "11a" | "11b" | "11c" | "16") => Corner::LowerRight,
            _ => Corner::UpperLeft,
        }
    }

    const fn panels(mut self, column: &'static str) -> Self {
        self.panel = Some(column);
        self
    }

    const fn lines(mut self, column: &'static str) -> Self {
        self.series = Some(column);
        self
    }

    const fn log_y(mut self) -> Self {
        self.y_scale = Scale::Log10;
        self
    }
}

const fn rackout(number: &'static str, x: &'static str, x_scale: Scale, y: &'static [&'static str]) -> Plot {
    let (paper, x) = (Paper::Rackout, (x, x_scale));
    Plot { paper, number, panel: None, series: None, x, y, y_scale: Scale::Linear }
}

const VECTOR_13: Plot = Plot {
    paper: Paper::Vector,
    number: "13",
    panel: Some("gf"),
    series: Some("replicas"),
    x: ("nodes", Scale::Log2),
    y: &["vector width"],
    y_scale: Scale::Linear,
};

/// All that can be drawn. What the paper has as several figures of one table is here once, under the first number.
pub(super) const PLOTS: [Plot; 19] = [
    rackout("1", "server", Scale::Linear, &["load"]),
    rackout("2a", "servers", Scale::Log2, &["shard skew"]).lines("zipf").log_y(),
    rackout("2b", "servers", Scale::Log2, &["shard skew"]).lines("keys").log_y(),
    rackout("4a", "gf", Scale::Log2, &["speed-up"]).lines("servers"),
    rackout("4b", "gf", Scale::Log2, &["speed-up"]).lines("servers"),
    rackout("5", "gf", Scale::Log2, &["speed-up"]).lines("writes %"),
    rackout("7a", "utilization", Scale::Linear, &["p99 us"]).lines("gf").log_y(),
    rackout("7b", "utilization", Scale::Linear, &["p99 us"]).lines("gf").log_y(),
    rackout("8", "utilization", Scale::Linear, &["share of datasets"]).lines("gf"),
    rackout("9", "keys", Scale::Linear, &["share of the load"]).panels("zipf").lines("gf"),
    rackout("10", "gf", Scale::Log2, &["speed-up"]).lines("RR/LR"),
    rackout("11a", "steps", Scale::Linear, &["utilization"]).lines("gf"),
    rackout("11b", "steps", Scale::Linear, &["utilization"]).lines("gf"),
    rackout("11c", "steps", Scale::Linear, &["utilization"]).lines("gf"),
    rackout("15", "server", Scale::Linear, &["writes", "static", "adaptive"]),
    rackout("16", "utilization", Scale::Linear, &["p99 us"]).panels("writes %").lines("gf").log_y(),
    rackout("18", "utilization", Scale::Linear, &["p99 us"]).panels("slowdown").lines("algorithm").log_y(),
    rackout("19", "writes %", Scale::Linear, &["static", "algorithm 1", "equal load"]),
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
