//! Tests of coordinators that etcd elects: a build of their own, because without the cargo feature nothing of it is built.

use crate::{
    command::{Totals, cargo, run, run_tests},
    setup::{Need, install_programs},
};

/// The crates that have tests with the feature.
const CRATES: [&str; 6] = ["-p", "minos-node", "-p", "minos", "--features", "minos-node/etcd,minos/etcd"];

/// What only these tests and their build need.
const NEEDS: [Need; 2] = [
    Need { program: "etcd", package: "etcd-server", service: Some("etcd") },
    Need { program: "protoc", package: "protobuf-compiler libprotobuf-dev", service: None },
];

/// Installs etcd and protoc, then checks and tests what the feature adds.
pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    install_programs(&NEEDS);
    let check = [&["clippy"], &CRATES[..], &["--all-targets", "--", "-D", "warnings"]].concat();
    run(&mut cargo(&check))?;
    let tests = [&["test"], &CRATES[..], &["--lib", "--test", "rack", "etcd"]].concat();
    run_tests(&mut cargo(&tests), totals)
}
