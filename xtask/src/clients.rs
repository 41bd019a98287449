//! The tests of the clients for other languages, each against a server.

use std::{path::Path, process::Command};

use crate::{
    command::{Totals, cargo, root, run, run_tests, target},
    setup,
    suites::checked,
};

/// Packages that the tests of the client for Python import; xxhash and blake3 are for a client written in
/// Python itself.
const PYTHON_PACKAGES: [&str; 4] = ["pytest", "xxhash", "blake3", "mypy"];
const PYTHON_IMPORTS: &str = "import pytest, xxhash, blake3, mypy";

pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    run_tests(&mut cargo(&["test", "-p", "minos-client-c"]), totals)?;
    python(totals)?;
    println!("{}", totals.summary());
    Ok(())
}

/// Installs the package for Python as a user would and runs its tests. Without a Python to install it for,
/// prints a message and tests nothing.
pub(crate) fn python(totals: &mut Totals) -> anyhow::Result<()> {
    let folder = match setup::environment("clients-venv", &PYTHON_PACKAGES, PYTHON_IMPORTS) {
        Ok(folder) => folder,
        Err(error) => {
            println!("skipped: the client for Python: {error:#}");
            totals.skip("the client for Python");
            return Ok(());
        }
    };
    checked(totals, || python_in(&folder))
}

/// Installs the package for Python into a virtual environment and runs its tests there.
fn python_in(folder: &Path) -> anyhow::Result<()> {
    // With a test, so that dependencies have the same features as for the other tests.
    run(&mut cargo(&["build", "--workspace", "--bin", "minos", "--test", "native_client"]))?;
    // A persistent target folder makes the next installation fast.
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "-q", "./python"]).current_dir(root());
    run(install.env("CARGO_TARGET_DIR", target().join("python")))?;
    let mut tests = Command::new(folder.join("bin/python"));
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python"]).current_dir(root());
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    run(tests.env("MINOS_TEST_SERVER", target().join("debug/minos")))
}
