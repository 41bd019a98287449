//! The times of GETs of several sizes (Minos figure 1).

use anyhow::Result;

use super::{
    Scale,
    native::{Asks, Sink},
    samples::{Subject, measure},
    stats::Figure,
    table::Table,
    transfers::Transfers,
};

/// The table holds only the values that are read.
const SCALE: Scale = Scale { small_items: 0, rounds: 15, ..Scale::WHOLE };

/// The time of GETs of values of one size, one at a time.
pub(crate) struct ServiceTime {
    pub(crate) bytes: f64,
    pub(crate) ns: f64,
    /// The median absolute deviation.
    pub(crate) deviation_ns: f64,
}

/// Measures GETs from the datagram that has arrived to the datagrams that are composed, each value copied
/// into them once, in the worker's native part, without a kernel; `tick` is called after each round.
pub(crate) fn service_times(tick: impl Fn()) -> Result<Vec<ServiceTime>> {
    let table = Table::load(&SCALE, Transfers::room_bytes(&SCALE))?;
    let mut gets = Transfers::new(("GETs of sizes", Asks::Get), &table, &SCALE, Sink::copying())?;
    let places = gets.places().to_vec();
    let [samples] = measure([&mut gets], SCALE.rounds, tick)?;
    let time = |(place, &bytes): (usize, &f64)| {
        let Figure { value, deviation } = samples.at(place);
        ServiceTime { bytes, ns: value, deviation_ns: deviation }
    };
    Ok(places.iter().enumerate().map(time).collect())
}
