//! Results stay the same as when this was written. Another value means that old results cannot be repeated.

use minos_rackmodel::{Dataset, Fabric, Load, Model, Popularity, PopularitySpec, Random, multiget, simulate};

#[test]
fn the_same_on_every_machine() {
    let mut random = Random::new(1, 2);
    let drawn = [random.bits(), random.exponential().to_bits(), random.normal().to_bits()];
    assert_eq!(drawn, [5021438485817027901, 4598973228874215950, 13830162122806250353]);
    let spec = PopularitySpec { keys: 1_000_000, alpha: 0.99, micro_shards: 640, seed: 1 };
    let popularity = Popularity::exact(spec, 2, |_| ()).unwrap();
    let sum = |weights: &[u64]| weights.iter().fold(0u64, |sum, weight| sum.rotate_left(7) ^ weight);
    assert_eq!(sum(popularity.weights()), 10597764770714117444);
    assert_eq!(sum(Popularity::sketch(spec, 1_000).unwrap().weights()), 2941102883866148211);
    let model = Model::new(Dataset::new(popularity, 64).unwrap().shares(), 16, 0.05, Fabric::RDMA).unwrap();
    let load = Load { rate: 0.9 * model.saturation(), arrivals: 100_000, seed: 1 };
    assert_eq!(simulate(&model, &load).unwrap().mean().to_bits(), 4633370071953911432);
}

#[test]
fn the_same_multigets() {
    let spec =
        multiget::Spec { width: 32, nodes: 64, gf: 1, replicas: 3, trials: 100, exact: false, seed: 1 };
    assert_eq!(multiget::run(&spec).unwrap().nodes, 14.08);
}
