//! `minos bench --target tier:` as a user runs it: a store on a file and on modelled memory.

#![cfg(feature = "lab")]

#[path = "common/brief_bench.rs"]
mod brief_bench;

use brief_bench::{BriefBench, number};

/// A short run, which a process that stands still for a moment does not sleep through.
const BENCH: BriefBench = BriefBench {
    options: &[["--duration", "1s"], ["--warmup", "10ms"], ["--keys", "20000"], ["--block", "200"]],
};

#[test]
fn vectors_of_a_store_on_a_file_find_every_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let target = format!("tier:{}", path.display());
    let report = BENCH.json(&target, &["--width", "16"]);
    assert!(number(&report, "gets") > 0.0 && number(&report, "keys_per_s") > 0.0, "{report}");
    assert_eq!((&report["wrong"], &report["recovered_records"]), (&0.into(), &20_000.into()), "{report}");
    assert!(number(&report, "write_amplification") < 2.0, "{report}");
    // Of a record its page is read or, where it crosses into the next one, sectors of both.
    assert!((3500.0..4500.0).contains(&number(&report, "read_bytes_per_key")), "{report}");
    // What is on it is not destroyed unasked.
    assert!(BENCH.refusal(&target, &[]).contains("--device-write"));
    let report = BENCH.json(&target, &["--device-write", "--get-ratio", "0.5", "--threads", "2"]);
    assert!(number(&report, "gets") > 0.0 && number(&report, "puts") > 0.0, "{report}");
}

#[test]
fn a_store_on_modelled_memory_reads_in_vectors() {
    let output = BENCH.run("tier:memory", &["--width", "4", "--keys", "2000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["2000 keys with 200 bytes on tier:memory", "keys/s", "us a key", "p99.9"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let refused = BENCH.refusal("tier:memory", &["--zipf", "0.9"]);
    assert!(refused.contains("--zipf does not go with --target tier:"), "{refused}");
}
