//! Figures that need no queues.

use super::{Figure, Study};
use crate::{
    CacheError,
    skew::{hottest, ideal_speedup, rack_skew, unit_shares},
};

const GROUPINGS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) fn figure_1(study: &Study<'_>) -> Result<Figure, CacheError> {
    let servers = 128;
    let mut shares = study.dataset_of(study.keys, study.alpha, servers)?.shares().to_vec();
    shares.sort_by(|a, b| b.total_cmp(a));
    let row = |(place, share): (usize, &f64)| vec![(place + 1) as f64, share * f64::from(servers)];
    Ok(Figure {
        figure: "1",
        title: "Load of 128 servers over the average one, the hottest first",
        columns: vec!["server", "load"],
        rows: shares.iter().enumerate().map(row).collect(),
    })
}

pub(super) fn figure_2a(study: &Study<'_>) -> Result<Figure, CacheError> {
    let mut rows = Vec::new();
    for alpha in [0.6, 0.9, 0.99, 1.01] {
        for servers in (4..=11).map(|power| 1 << power) {
            let dataset = study.dataset_of(study.keys, alpha, servers)?;
            rows.push(vec![alpha, f64::from(servers), rack_skew(dataset.shares(), 1)]);
        }
    }
    let columns = vec!["zipf", "servers", "shard skew"];
    Ok(Figure { figure: "2a", title: "Shard skew by servers and exponent", columns, rows })
}

pub(super) fn figure_2b(study: &Study<'_>) -> Result<Figure, CacheError> {
    let mut rows = Vec::new();
    for keys in [study.keys / 100, study.keys / 10, study.keys].into_iter().filter(|keys| *keys > 0) {
        for servers in (4..=11).map(|power| 1 << power) {
            let dataset = study.dataset_of(keys, study.alpha, servers)?;
            rows.push(vec![keys as f64, f64::from(servers), rack_skew(dataset.shares(), 1)]);
        }
    }
    let columns = vec!["keys", "servers", "shard skew"];
    Ok(Figure { figure: "2b", title: "Shard skew by servers and keys", columns, rows })
}

pub(super) fn figure_4(
    figure: &'static str,
    study: &Study<'_>,
    write_share: f64,
) -> Result<Figure, CacheError> {
    let mut rows = Vec::new();
    for servers in [64, 128, 256, 512, 1024] {
        let dataset = study.dataset_of(study.keys, study.alpha, servers)?;
        for gf in GROUPINGS {
            let speedup = ideal_speedup(dataset.shares(), gf, write_share);
            rows.push(vec![f64::from(servers), f64::from(gf), rack_skew(dataset.shares(), gf), speedup]);
        }
    }
    let columns = vec!["servers", "gf", "rack skew", "speed-up"];
    Ok(Figure { figure, title: "Ideal speed-up by unit size (equation 1)", columns, rows })
}

pub(super) fn figure_5(study: &Study<'_>) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let mut rows = Vec::new();
    for percent in [0, 1, 2, 5, 10, 20, 50, 100] {
        for gf in study.groupings(&GROUPINGS) {
            let writes = f64::from(percent) / 100.0;
            rows.push(vec![f64::from(percent), f64::from(gf), ideal_speedup(dataset.shares(), gf, writes)]);
        }
    }
    let columns = vec!["writes %", "gf", "speed-up"];
    Ok(Figure { figure: "5", title: "Ideal speed-up by writes", columns, rows })
}

pub(super) fn figure_9(study: &Study<'_>) -> Result<Figure, CacheError> {
    let mut rows = Vec::new();
    for alpha in [0.99, 0.9] {
        let dataset = study.dataset_of(study.keys, alpha, study.servers)?;
        for gf in study.groupings(&[1, 4, 16]) {
            let unit = hottest(&unit_shares(dataset.shares(), gf));
            let mut sum = 0.0;
            for (place, share) in dataset.top_keys(gf, unit, 50).into_iter().enumerate() {
                sum += share;
                rows.push(vec![alpha, f64::from(gf), (place + 1) as f64, sum]);
            }
        }
    }
    let columns = vec!["zipf", "gf", "keys", "share of the load"];
    Ok(Figure { figure: "9", title: "Load of the hottest unit by its most popular keys", columns, rows })
}
