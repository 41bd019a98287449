//! What cargo says of a package to its programs and tests.

use std::{env, process::Command};

/// How the names of the variables begin in which it says so.
const OF_A_PACKAGE: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];

/// Keeps from `cargo` what the outer cargo says of this program or test. Build scripts that read it would run again, and what
/// depends on them be built again, programs under other tests among it.
pub fn forget_package(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| OF_A_PACKAGE.iter().any(|begin| name.starts_with(begin))) {
            cargo.env_remove(name);
        }
    }
}
