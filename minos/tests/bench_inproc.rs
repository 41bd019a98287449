//! `minos bench --target inproc://` as a user runs it: every mode and access mode, and the refused options.

#![cfg(feature = "lab")]

#[path = "common/brief_bench.rs"]
mod brief_bench;

use brief_bench::{BriefBench, number};

/// A small and short run, unless a test overrides it.
const BENCH: BriefBench = BriefBench {
    options: &[["--workload", "mica-tiny"], ["--keys", "5000"], ["--duration", "50ms"], ["--warmup", "10ms"]],
};

#[test]
fn every_mode_and_access_mode_keeps_what_it_was_given() {
    for (target, mode) in [("inproc://store", "store"), ("inproc://cache", "cache"), ("inproc://", "cache")] {
        for access in ["erew", "crew", "crcw"] {
            let report = BENCH.json(target, &["--access", access, "--threads", "2", "--partitions", "4"]);
            let engine = &report["engine"];
            assert_eq!((&engine["mode"], &engine["access"]), (&mode.into(), &access.into()));
            assert_eq!((&report["errors"], &report["lost"]), (&0.into(), &0.into()), "{report}");
            assert_eq!(engine["threads"].as_array().unwrap().len(), 2);
            assert_eq!(engine["partitions"], 4);
            assert!(number(engine, "hit_ratio") > if mode == "store" { 0.999_999 } else { 0.99 }, "{report}");
            assert!(number(&engine["stats"], "items") > 4950.0, "{report}");
            assert!(number(engine, "bytes_per_item") > 16.0 && number(engine, "mops") > 0.0, "{report}");
        }
    }
}

#[test]
fn json_has_the_shape_that_scripts_rely_on() {
    let report = BENCH.json("inproc://store", &["--multiget", "8", "--seed", "7"]);
    assert!(number(&report, "offered_rps") > 0.0);
    assert_eq!(report["offered_rps"], report["achieved_rps"]);
    assert_eq!((&report["target"], &report["seed"]), (&"inproc://store".into(), &7.into()));
    let (completed, gets) = (number(&report, "completed"), number(&report["engine"], "gets"));
    assert!(completed % 8.0 == 0.0 && (0.9..1.0).contains(&(gets / completed)), "{report}");
    for class in ["all", "small", "large"] {
        for name in ["p50", "p90", "p99", "p999", "max"] {
            assert!(report["latency_us"][class][name].is_f64(), "{class} {name}: {report}");
        }
    }
    let all = &report["latency_us"]["all"];
    assert!(number(all, "p50") > 0.0 && number(all, "p50") <= number(all, "max"), "{report}");
}

#[test]
fn options_keep_their_meaning() {
    let report = BENCH.json("inproc://", &["--get-ratio", "0", "--zipf", "0", "--hash", "inline"]);
    assert_eq!((&report["engine"]["gets"], &report["engine"]["hash"]), (&0.into(), &"inline".into()));
    let options =
        ["--get-ratio", "1", "--prefetch-depth", "1", "--multiget", "1", "--backing", "small-pages"];
    let report = BENCH.json("inproc://store", &options);
    let engine = &report["engine"];
    assert_eq!(engine["gets"], report["completed"]);
    assert_eq!((&engine["prefetch_depth"], &engine["burst"]), (&1.into(), &1.into()));
    assert!(engine["backing"].as_str().unwrap().contains("4 KiB"), "{engine}");
    // Keys of two sizes, and values of many, some of them too large for the log.
    let mixed = ["--workload", "etc", "--large-keys", "20", "--large-percent", "1", "--multiget", "40"];
    assert_eq!(BENCH.json("inproc://", &mixed)["errors"], 0);
    assert_eq!(BENCH.json("inproc://store", &mixed)["errors"], 0);
}

#[test]
fn a_cache_without_room_loses_items_and_no_more() {
    let full =
        BENCH.json("inproc://", &["--keys", "200000", "--memory", "4m", "--evict", "fifo", "--zipf", "0"]);
    let engine = &full["engine"];
    assert!((0.05..0.9).contains(&number(engine, "hit_ratio")), "{full}");
    assert!(number(&engine["stats"], "evictions_log") > 0.0 && full["errors"] == 0, "{full}");
    let text = BENCH.refusal("inproc://store", &["--keys", "200000", "--memory", "4m"]);
    assert!(text.contains("--memory 4m: there is no room for"), "{text}");
}

#[test]
fn what_cannot_be_done_is_said() {
    for (target, arguments, message) in [
        ("inproc://store", &["--access", "shared"][..], "possible values: crcw, crew, erew"),
        ("inproc://store", &["--evict", "lru"], "--target inproc://cache"),
        ("inproc://store", &["--rate", "20k"], "--rate does not go with --target inproc://"),
        ("inproc://", &["--pipeline", "4"], "--pipeline does not go with --target inproc://"),
        ("inproc://", &["--load-only"], "--load-only does not go with"),
        ("inproc://", &["--prefetch-depth", "33"], "1..=32"),
        ("inproc://", &["--workload", "ycsb-f"], "GETs and SETs"),
        ("inproc://", &["--partitions", "3"], "power of two"),
        ("inproc://", &["--threads", "2", "--partitions", "1"], "--threads or more --keys"),
        (
            "inproc://",
            &["--access", "erew", "--threads", "2", "--partitions", "1"],
            "--threads or more --keys",
        ),
        ("inproc://", &["--backing", "paper"], "small-pages"),
        ("inproc://tree", &[], "inproc://store"),
        ("memcached://127.0.0.1:1", &["--access", "erew"], "--access goes with --target inproc://"),
    ] {
        let text = BENCH.refusal(target, arguments);
        assert!(text.contains(message), "{target} {arguments:?}: {text}");
    }
}

#[test]
fn people_get_a_table() {
    let output = BENCH.run("inproc://store", &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for part in ["mica-tiny on inproc://store, crew", "Mops/s in all", "hits 100.000 %", "5000 items"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
