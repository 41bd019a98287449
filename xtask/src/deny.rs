//! `cargo deny`: checks the dependencies against `deny.toml`.

use std::process::Command;

use crate::{
    command::{root, run},
    setup,
};

/// Checks licences, sources and bans, and advisories if their database can be fetched.
pub(crate) fn check() -> anyhow::Result<()> {
    let program = setup::cargo_deny()?;
    let deny = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir(root());
        command
    };
    run(&mut deny(&["check", "bans", "licenses", "sources"]))?;
    if let Err(error) = run(&mut deny(&["fetch", "db"])) {
        println!("skipped: advisories were not checked, their database cannot be fetched: {error:#}");
        return Ok(());
    }
    run(&mut deny(&["check", "--disable-fetch", "advisories"]))
}
