//! The clients for other languages, each against a server.

use std::{path::Path, process::Command};

use crate::{
    command::{Totals, cargo, root, run, run_tests, target},
    setup,
    suites::checked,
};

/// What the tests of the client for Python import; hashes for a client that is written in Python itself.
const PYTHON_PACKAGES: [&str; 4] = ["pytest", "xxhash", "blake3", "mypy"];
const PYTHON_IMPORTS: &str = "import pytest, xxhash, blake3, mypy";

/// All of them.
pub(crate) fn test(totals: &mut Totals) -> anyhow::Result<()> {
    run_tests(&mut cargo(&["test", "-p", "minos-client-c"]), totals)?;
    python(totals)?;
    println!("{totals}");
    Ok(())
}

/// Installs the package for Python as a user would and runs its tests. Where there is no Python to install it for, says
/// so, and shows nothing.
pub(crate) fn python(totals: &mut Totals) -> anyhow::Result<()> {
    let folder = match setup::environment("clients-venv", &PYTHON_PACKAGES, PYTHON_IMPORTS) {
        Ok(folder) => folder,
        Err(error) => {
            println!("skipped: the client for Python: {error:#}");
            return Ok(());
        }
    };
    checked(totals, || python_in(&folder))
}

/// Installs the package for Python into a virtual environment and runs its tests there.
fn python_in(folder: &Path) -> anyhow::Result<()> {
    // With a test, so that dependencies have the features that the other tests built them with.
    run(&mut cargo(&["build", "--workspace", "--bin", "minos", "--test", "native_client"]))?;
    // A target folder that stays, so that the next installation is a short one.
    let mut install = Command::new(folder.join("bin/pip"));
    install.args(["install", "-q", "./python"]).current_dir(root());
    run(install.env("CARGO_TARGET_DIR", target().join("python")))?;
    let mut tests = Command::new(folder.join("bin/python"));
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "python"]).current_dir(root());
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    run(tests.env("MINOS_TEST_SERVER", target().join("debug/minos")))
}
