//! `minos figures` as a user runs it: the files that it makes and keeps, and the options that it refuses.

#![cfg(feature = "lab")]

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

/// The output of a run that must succeed.
fn printed(paper: &str, out: &Path, options: &[&str]) -> String {
    let output = figures(paper, out, options);
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_figure_is_three_files_and_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let (out, brief) = (folder.path(), ["--figure", "13", "--trials", "20"]);
    assert!(printed("vector", out, &brief).contains(": 1 drawn, "));
    let csv = fs::read_to_string(out.join("vector-13.csv")).unwrap();
    assert!(csv.starts_with("# simulated; minos "), "{csv}");
    assert!(csv.contains("; trials 20; seed 1\ngf,replicas,nodes,"), "{csv}");
    assert!(fs::read_to_string(out.join("vector-13.svg")).unwrap().contains("(simulated)"));
    assert!(fs::read(out.join("vector-13.png")).unwrap().starts_with(b"\x89PNG"));

    // Existing files are kept, unless they have other parameters or are incomplete.
    assert!(printed("vector", out, &brief).contains(": 0 drawn, "));
    let again = |more: &[&str]| printed("vector", out, &[&brief, more].concat()).contains(": 1 drawn, ");
    assert!(again(&["--force"]));
    assert!(again(&["--seed", "2"]));
    fs::remove_file(out.join("vector-13.svg")).unwrap();
    assert!(again(&["--seed", "2"]));
}

#[test]
fn a_missing_png_is_made_of_the_svg() {
    let folder = tempfile::tempdir().unwrap();
    let (out, brief) = (folder.path(), ["--figure", "13", "--trials", "20"]);
    printed("vector", out, &brief);
    let (csv, png) = (out.join("vector-13.csv"), out.join("vector-13.png"));
    let pixels = fs::read(&png).unwrap();
    // The numbers are not computed again.
    let numbers = fs::read_to_string(&csv).unwrap() + "kept\n";
    fs::write(&csv, &numbers).unwrap();
    fs::remove_file(&png).unwrap();
    assert!(printed("vector", out, &brief).contains(": 0 drawn, 1 there already"));
    assert!(fs::read(&png).unwrap() == pixels && fs::read_to_string(&csv).unwrap() == numbers);
}

#[test]
fn seeds_give_the_same_files_again() {
    let files = || {
        let folder = tempfile::tempdir().unwrap();
        printed("vector", folder.path(), &["--figure", "13", "--trials", "20"]);
        ["csv", "svg", "png"]
            .map(|kind| fs::read(folder.path().join("vector-13").with_extension(kind)).unwrap())
    };
    assert!(files() == files());
}

#[test]
fn figures_of_devices_say_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    for (figure, evidence) in [("5", "measured on a modelled device"), ("6-file", "measured")] {
        let name = format!("vector-{figure}");
        let text = printed("vector", folder.path(), &["--figure", figure, "--window", "5ms"]);
        assert!(text.contains(&format!(", {evidence}: 1 drawn, ")), "{text}");
        let csv = folder.path().join(format!("{name}.csv"));
        let first = fs::read_to_string(&csv).unwrap();
        assert!(
            first.starts_with(&format!("# {evidence}; minos ")) && first.contains("; window 5ms; seed 1\n")
        );
        let rows = rows(&csv);
        // Threads, depth, and four kinds of requests by time and by processor time.
        assert_eq!((rows.len(), rows[0].len()), (4 * 4, 2 + 2 * 4));
        assert!((2..10).all(|at| any(&rows, at)), "{rows:?}");
    }
    // The file that was measured is gone.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
}

fn draw(figure: &str, window: &str, out: &Path) {
    let text = printed("vector", out, &["--figure", figure, "--window", window]);
    assert!(text.contains(", measured on a modelled device: 1 drawn, "), "{text}");
}

#[test]
fn figures_of_stores_have_all_widths() {
    let folder = tempfile::tempdir().unwrap();
    draw("8", "5ms", folder.path());
    let rows = rows(&folder.path().join("vector-8.csv"));
    assert_eq!((rows.len(), rows[0].len()), (4 * 6, 5));
    assert!((2..5).all(|at| any(&rows, at)), "{rows:?}");
}

#[test]
fn figures_of_servers_have_direct_and_gathered_reads() {
    let folder = tempfile::tempdir().unwrap();
    draw("12", "20ms", folder.path());
    let rows = rows(&folder.path().join("vector-12.csv"));
    assert_eq!((rows.len(), rows[0].len()), (6, 3));
    assert!(any(&rows, 1) && any(&rows, 2), "{rows:?}");
}

#[test]
fn figure_3_has_a_device_a_store_and_a_server() {
    let folder = tempfile::tempdir().unwrap();
    draw("3", "20ms", folder.path());
    let csv = folder.path().join("vector-3.csv");
    assert!(fs::read_to_string(&csv).unwrap().contains("\nwidth,device,store,server\n"));
    let rows = rows(&csv);
    assert!(rows.iter().map(|row| row[0].as_str()).eq(["1", "2", "4", "8", "16", "32"]), "{rows:?}");
    assert!((1..4).all(|at| any(&rows, at)), "{rows:?}");
}

#[test]
fn figures_of_tables_and_of_servers_on_them_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    for (figure, window) in [("11", "5ms"), ("16", "5ms"), ("13", "20ms")] {
        let text = printed("mica", folder.path(), &["--figure", figure, "--window", window]);
        assert!(text.contains(", measured: 1 drawn, "), "{text}");
    }
    let rows = |figure: &str| rows(&folder.path().join(format!("mica-{figure}.csv")));
    let threads = rows("11");
    assert!(threads.len().is_power_of_two() && any(&threads, 1) && any(&threads, 2), "{threads:?}");
    // Three modes of access, two popularities, two shares of GETs.
    assert_eq!((rows("16").len(), rows("16")[0].len()), (3 * 2 * 2, 3));
    // A curve for each protocol, and for memcached where it is installed.
    let curves = rows("13");
    assert!([10, 15].contains(&curves.len()) && (1..4).all(|at| any(&curves, at)), "{curves:?}");
}

/// True if a number of this column is above zero: a short window can be empty, but not all of them.
fn any(rows: &[Vec<String>], at: usize) -> bool {
    rows.iter().any(|row| row[at].parse().is_ok_and(|number: f64| number > 0.0))
}

/// The rows of a CSV file, without parameters and column names.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().skip(2).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_figure_of_minos_has_all_designs() {
    let folder = tempfile::tempdir().unwrap();
    let brief = ["--figure", "3", "--arrivals", "20000"];
    assert!(printed("minos", folder.path(), &brief).contains("simulated: 1 drawn, "));
    let csv = folder.path().join("minos-3.csv");
    assert!(fs::read_to_string(&csv).unwrap().starts_with("# simulated; minos "));
    let rows = rows(&csv);
    let rivals = ["HKH", "SHO", "HKH+WS"];
    let controls = rivals.map(|rival| format!("{rival} with large TX queue"));
    let designs = rivals.into_iter().chain(["Minos"]).chain(controls.iter().map(String::as_str));
    for design in designs {
        let mops: Vec<f64> =
            rows.iter().filter(|row| row[0] == design).map(|row| row[2].parse().unwrap()).collect();
        // The last row is the design's own peak.
        let (peak, rates) = mops.split_last().unwrap();
        assert!(rates.len() > 4 && rates.is_sorted() && *peak > 0.97 * rates[rates.len() - 1], "{mops:?}");
    }
    let svg = fs::read_to_string(csv.with_extension("svg")).unwrap();
    for text in ["Minos, figure 3 (simulated)", "costs kernel-bypass", "HKH+WS", "p99 us"] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(printed("minos", folder.path(), &brief).contains(": 0 drawn, 1 there already"));
}

#[test]
fn other_costs_make_other_figures_beside() {
    let folder = tempfile::tempdir().unwrap();
    let brief = ["--figure", "4", "--arrivals", "5000", "--costs", "sockets"];
    printed("minos", folder.path(), &brief);
    assert!(!folder.path().join("minos-4.csv").exists());
    let rows = rows(&folder.path().join("minos-4-sockets.csv"));
    assert!(rows.iter().any(|row| row[0] == "Minos helping"), "{rows:?}");
    // A figure that does not depend on costs is not made for other costs.
    let output = figures("minos", folder.path(), &["--figure", "2", "--costs", "sockets"]);
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (paper, options, expected) in [
        ("mica", &["--figure", "15"][..], "figure: there is no \"15\""),
        ("dynamo", &[], "rackout"),
        ("vector", &["--figure", "13", "--trials", "0"], "trials: 0 is not allowed"),
        ("rackout", &["--keys", "0"], "keys: 0 is not allowed"),
        ("vector", &["--figure", "14"], "figure: there is no \"14\""),
        ("minos", &["--figure", "2", "--arrivals", "10"], "arrivals: 50 is not allowed"),
        ("minos", &["--costs", "/nowhere.toml"], "/nowhere.toml"),
    ] {
        let output = figures(paper, folder.path(), options);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(expected), "{paper} {options:?}: {message}");
    }
}
