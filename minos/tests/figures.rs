//! `minos figures` as a user runs it: what it leaves, what it leaves alone, and what it refuses.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn figures(paper: &str, out: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["figures", "--paper", paper, "--out"]).arg(out).args(options);
    command.env("XDG_CACHE_HOME", out).output().unwrap()
}

/// What a run that must succeed prints.
fn printed(paper: &str, out: &Path, options: &[&str]) -> String {
    let output = figures(paper, out, options);
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_figure_is_three_files_and_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let (out, brief) = (folder.path(), ["--trials", "20"]);
    assert!(printed("vector", out, &brief).contains(": 1 drawn, "));
    let csv = fs::read_to_string(out.join("vector-13.csv")).unwrap();
    assert!(csv.starts_with("# simulated; minos "), "{csv}");
    assert!(csv.contains("; trials 20; seed 1\ngf,replicas,nodes,"), "{csv}");
    assert!(fs::read_to_string(out.join("vector-13.svg")).unwrap().contains("(simulated)"));
    assert!(fs::read(out.join("vector-13.png")).unwrap().starts_with(b"\x89PNG"));

    // What is there stays, unless it was made otherwise, or is only half there.
    assert!(printed("vector", out, &brief).contains(": 0 drawn, "));
    assert!(printed("vector", out, &["--trials", "20", "--force"]).contains(": 1 drawn, "));
    assert!(printed("vector", out, &["--trials", "20", "--seed", "2"]).contains(": 1 drawn, "));
    fs::remove_file(out.join("vector-13.png")).unwrap();
    assert!(printed("vector", out, &["--trials", "20", "--seed", "2"]).contains(": 1 drawn, "));
}

#[test]
fn seeds_give_the_same_files_again() {
    let files = || {
        let folder = tempfile::tempdir().unwrap();
        printed("vector", folder.path(), &["--trials", "20"]);
        ["csv", "svg", "png"]
            .map(|kind| fs::read(folder.path().join("vector-13").with_extension(kind)).unwrap())
    };
    assert!(files() == files());
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (paper, options, expected) in [
        ("minos", &[][..], "the figures of minos are not there yet"),
        ("mica", &[], "the figures of mica are not there yet"),
        ("dynamo", &[], "rackout"),
        ("vector", &["--trials", "0"], "trials: 0 is not allowed"),
        ("rackout", &["--keys", "0"], "keys: 0 is not allowed"),
    ] {
        let output = figures(paper, folder.path(), options);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(expected), "{paper} {options:?}: {message}");
    }
}
