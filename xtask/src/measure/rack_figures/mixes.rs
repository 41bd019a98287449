//! The ways in which the rack is used, the requests that each node gets then, and the model of it.

use minos_rackmodel::{BadParameter, Fabric, Model};

use super::keys::{NODES, Part};

/// Percentages of writes (RackOut §6.3).
pub(super) const WRITES: [u32; 4] = [0, 5, 20, 50];

/// How requests find their nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Units of one: each node answers for its keys.
    Alone,
    /// One unit, each node of which reads as much as any other.
    Static,
    /// One unit, whose reads follow its writes.
    Algorithm1,
}

/// A way at a percentage of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) way: Way,
    pub(super) writes: u32,
}

/// Every way at every percentage. Without writes, algorithm 1 is static.
pub(super) fn all() -> impl Iterator<Item = Mix> {
    let ways = [Way::Alone, Way::Static, Way::Algorithm1];
    let mixes = WRITES.into_iter().flat_map(move |writes| ways.map(|way| Mix { way, writes }));
    mixes.filter(|mix| (mix.way, mix.writes) != (Way::Algorithm1, 0))
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Alone => "units of 1",
            Self::Static => "one unit, static",
            Self::Algorithm1 => "one unit, algorithm 1",
        }
    }

    /// Nodes of a unit.
    pub(super) fn gf(self) -> u32 {
        if self == Self::Alone { 1 } else { NODES as u32 }
    }
}

impl Mix {
    /// The model of a rack whose nodes have these shares.
    pub(super) fn model(self, shares: &[f64], fabric: Fabric) -> Result<Model, BadParameter> {
        let model = Model::new(shares, self.way.gf(), f64::from(self.writes) / 100.0, fabric)?;
        if self.way == Way::Algorithm1 { model.with_algorithm_1() } else { Ok(model) }
    }

    /// What a node gets of all requests, which it reads and writes in these parts.
    pub(super) fn parts(self, model: &Model, shares: &[f64], node: usize) -> Vec<Part> {
        let (reads, writes) = model.distribution()[node];
        let read = |owner: usize, weight| Part { owner, writes: false, weight };
        let mut parts = vec![Part { owner: node, writes: true, weight: writes }];
        match self.way {
            Way::Alone => parts.push(read(node, reads)),
            _ => parts.extend((0..shares.len()).map(|owner| read(owner, reads * shares[owner]))),
        }
        parts.retain(|part| part.weight > 0.0);
        parts
    }
}

/// The part of all requests that a node gets.
pub(super) fn share(parts: &[Part]) -> f64 {
    parts.iter().map(|part| part.weight).sum()
}

/// The model's fabric with these service times in microseconds.
pub(super) fn fabric(local_read: f64, remote_read: f64, local_write: f64) -> Fabric {
    let mut fabric = Fabric::SONUMA;
    (fabric.times.lr_us, fabric.times.rr_us, fabric.times.lw_us) = (local_read, remote_read, local_write);
    fabric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_get_all_requests_in_parts_that_cost_what_the_model_says() {
        let shares: Vec<f64> = (1..=NODES).map(|number| number as f64 / 136.0).collect();
        let fabric = fabric(2.0, 3.0, 5.0);
        for mix in all() {
            let model = mix.model(&shares, fabric).unwrap();
            let mut sum = 0.0;
            for node in 0..NODES {
                let parts = mix.parts(&model, &shares, node);
                assert!(parts.iter().all(|part| part.owner == node || !part.writes));
                let cost = |part: &Part| match (part.writes, part.owner == node) {
                    (true, _) => 5.0,
                    (false, true) => 2.0,
                    (false, false) => 3.0,
                };
                let busy: f64 = parts.iter().map(|part| part.weight * cost(part)).sum();
                assert!((busy - model.busy_us(node)).abs() < 1e-9, "{mix:?} {node}");
                sum += share(&parts);
            }
            assert!((sum - 1.0).abs() < 1e-9, "{mix:?}");
        }
    }
}
