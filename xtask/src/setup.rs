//! Installation of the programs that the tests need.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::command::{cargo, root, run};

/// A program that tests or their builds run, its Debian packages, and the service that they start.
pub(crate) struct Need {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) service: Option<&'static str>,
}

const NEEDS: [Need; 10] = [
    Need { program: "memcached", package: "memcached", service: Some("memcached") },
    Need { program: "redis-server", package: "redis-server", service: Some("redis-server") },
    Need { program: "memccapable", package: "libmemcached-tools", service: None },
    Need { program: "python3", package: "python3", service: None },
    Need { program: "c++", package: "g++", service: None },
    Need { program: "pkg-config", package: "pkg-config", service: None },
    Need { program: "valgrind", package: "valgrind", service: None },
    Need { program: "ip", package: "iproute2", service: None },
    Need { program: "nft", package: "nftables", service: None },
    Need { program: "ethtool", package: "ethtool", service: None },
];

/// The browser of `cargo xtask page`, which is also the name of its package.
pub(crate) const BROWSER: &str = "chromium-headless-shell";

/// The virtual environment with clients for Python.
const ENVIRONMENT: &str = "venv";
/// Packages that pymemcache's own tests, `load_files.py`, `binary_clients.py` and `redis_clients.py` import.
const PYTHON_PACKAGES: [&str; 8] = [
    "pymemcache==4.0.0",
    "pytest",
    "faker",
    "zstd",
    "xxhash",
    "pylibmc==1.6.3",
    "python-binary-memcached==0.33.0",
    "redis==5.2.1",
];
const PYTHON_IMPORTS: &str = "import pymemcache, pytest, faker, zstd, xxhash, pylibmc, bmemcached, redis";

/// Installs missing programs. A failed installation is only reported: the test that needs it fails with the
/// reason, and the others still run.
pub(crate) fn install() -> anyhow::Result<()> {
    install_programs(&NEEDS);
    tell(environment(ENVIRONMENT, &PYTHON_PACKAGES, PYTHON_IMPORTS).map(drop));
    Ok(())
}

/// Installs those of the programs that are missing.
pub(crate) fn install_programs(needs: &[Need]) {
    let missing: Vec<&Need> = needs.iter().filter(|need| !is_there(need.program)).collect();
    if !missing.is_empty() {
        tell(install_packages(&missing.iter().flat_map(|need| need.package.split(' ')).collect::<Vec<_>>()));
        // Debian starts installed services; the tests start their own on free ports.
        for service in missing.iter().filter_map(|need| need.service) {
            tell(run(Command::new("service").args([service, "stop"])));
        }
    }
}

/// Installs the browser, unless it is there.
pub(crate) fn install_browser() -> anyhow::Result<()> {
    if is_there(BROWSER) {
        return Ok(());
    }
    install_packages(&[BROWSER, "fonts-dejavu-core"])
}

/// True if `PATH` has the program.
fn is_there(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Built without optimization: the optimized build would take longer than it saves.
const CARGO_DENY: [&str; 5] = ["install", "--locked", "--debug", "--version=0.20.2", "cargo-deny"];

/// `cargo deny`, installed if it is missing, in the target folder.
pub(crate) fn cargo_deny() -> anyhow::Result<PathBuf> {
    let folder = root().join("target/tools");
    let program = folder.join("bin/cargo-deny");
    if !program.is_file() {
        run(cargo(&CARGO_DENY).arg("--root").arg(&folder))?;
    }
    Ok(program)
}

fn tell(result: anyhow::Result<()>) {
    if let Err(error) = result {
        eprintln!("xtask setup: {error:#}");
    }
}

pub(crate) fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    run(Command::new("apt-get").args(["update", "-q"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-q", "--no-install-recommends"]).args(packages);
    run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// The interpreter with the packages that the tests import, after [`install`].
pub(crate) fn python() -> PathBuf {
    root().join("target").join(ENVIRONMENT).join("bin/python")
}

/// A virtual environment with `packages`, created unless it exists and `imports` succeed; in the target
/// folder, so that the system is not changed.
pub(crate) fn environment(name: &str, packages: &[&str], imports: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join(name);
    let mut python = Command::new(folder.join("bin/python"));
    python.args(["-c", imports]).stdout(Stdio::null()).stderr(Stdio::null());
    if python.status().is_ok_and(|status| status.success()) {
        return Ok(folder);
    }
    let make = || run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    if make().is_err() {
        // Debian packages venv separately from Python.
        install_packages(&["python3-venv"])?;
        make()?;
    }
    run(Command::new(folder.join("bin/pip")).args(["install", "-q"]).args(packages))?;
    Ok(folder)
}
