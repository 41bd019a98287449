//! The program with and without its laboratory: the commands it lists, its message for those left out, and
//! serving.

mod common;

use std::{
    env,
    process::{Command, Output},
};

use common::program;
use minos_testkit::Server;

const PRODUCT: [&str; 7] = ["ctl", "del", "get", "secret", "serve", "set", "stats"];
const LABORATORY: [&str; 5] = ["bench", "calibrate", "demo", "figures", "sim"];

/// True if the program has its laboratory. One that the environment names, as `cargo xtask asan` does, has none.
fn has_laboratory() -> bool {
    cfg!(feature = "lab") && env::var_os("MINOS_TEST_SERVER").is_none()
}

fn minos(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().unwrap()
}

/// The output of a command that must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = minos(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_help_lists_what_is_there() {
    let help = printed(&["--help"]);
    let is_listed = |command: &str| help.lines().any(|line| line.split_whitespace().next() == Some(command));
    assert!(PRODUCT.iter().all(|command| is_listed(command)), "{help}");
    assert!(LABORATORY.iter().all(|command| is_listed(command) == has_laboratory()), "{help}");
}

#[test]
fn the_laboratory_is_there_or_its_feature_is_named() {
    for command in LABORATORY {
        for arguments in
            [&["--help"][..], &["--target", "minos://127.0.0.1:1", "--help"], &["queues", "--help"]]
        {
            let output = minos(&[&[command], arguments].concat());
            let message = String::from_utf8_lossy(&output.stderr);
            let names_feature = !output.status.success() && message.contains("cargo feature `lab`");
            assert!(names_feature != has_laboratory(), "{command}: {message}");
        }
    }
}

#[test]
fn options_for_research_stand_apart() {
    let help = printed(&["serve", "--help"]);
    let below = help.lines().skip_while(|line| *line != "Research:").skip(1);
    let options = below
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .filter_map(|line| line.strip_prefix("      --")?.split(' ').next());
    let research = ["large-order", "large-wait-max", "prefetch-depth"];
    assert_eq!(options.collect::<Vec<_>>(), research, "{help}");
}

#[test]
fn a_value_comes_back() {
    let server = Server::start(&program(), |port, _| {
        let address = format!("127.0.0.1:{port}");
        let fixed =
            ["serve", "--memory", "64m", "--workers", "1", "--memcached", &address, "--native", &address];
        fixed.map(str::to_owned).to_vec()
    });
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let server = ["--server", &server.address().to_string(), "--timeout=60s"];
    printed(&[&["set", "greeting", "hello"], &server[..]].concat());
    assert_eq!(printed(&[&["get", "greeting"], &server[..]].concat()), "hello\n");
}
