//! Dependencies between crates point one way (ARCHITECTURE.md).

use super::SourceFile;

/// The crates of ours that each crate may depend on. Tests may depend on anything.
const ALLOWED: [(&str, &[&str]); 28] = [
    ("base", &[]),
    ("access", &[]),
    ("sync", &["base"]),
    ("region", &["sync"]),
    ("engine", &["base", "sync", "region"]),
    ("fabric", &["engine", "region"]),
    ("flash", &["base"]),
    ("sched", &["base"]),
    ("proto", &["base"]),
    ("net", &["base", "sync"]),
    ("sealed", &["net", "proto"]),
    ("tls", &["net"]),
    ("device", &["base"]),
    ("tier", &["base", "device", "engine", "flash", "sync"]),
    (
        "node",
        &[
            "access", "base", "sync", "engine", "fabric", "sched", "sealed", "proto", "net", "rack", "tier",
            "tls", "unit",
        ],
    ),
    ("client", &["base", "net", "proto", "rack", "unit"]),
    ("c", &["client"]),
    ("python", &["client"]),
    ("workload", &["base", "client", "proto", "net"]),
    ("plot", &[]),
    ("testkit", &["base", "net"]),
    ("rack", &["base"]),
    ("unit", &["base", "rack"]),
    ("rackmodel", &["base", "rack", "sim"]),
    ("sim", &["base", "sched"]),
    (
        "minos",
        &[
            "access",
            "base",
            "client",
            "device",
            "engine",
            "net",
            "node",
            "plot",
            "proto",
            "rackmodel",
            "sched",
            "sim",
            "sync",
            "tier",
            "workload",
        ],
    ),
    ("rivals", &["base", "device", "engine", "region", "tier"]),
    ("xtask", &["client", "plot", "rackmodel", "testkit"]),
];

/// A line for each dependency that points the wrong way.
pub(super) fn check(manifests: &[SourceFile]) -> Vec<String> {
    manifests.iter().flat_map(faults_of).collect()
}

fn faults_of(manifest: &SourceFile) -> Vec<String> {
    let name = crate_name(&manifest.path);
    let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{}: the crate {name} has no place among the rooms", manifest.path)];
    };
    let wrong = dependencies(&manifest.text).filter(|dependency| !allowed.contains(dependency));
    wrong.map(|dependency| format!("{}: {name} must not depend on {dependency}", manifest.path)).collect()
}

/// The folder of a manifest.
fn crate_name(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or(path)
}

/// The crates of ours that the built crate (not its tests) depends on.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut counts = false;
    manifest.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end().trim_end_matches(']');
            counts = section.ends_with("dependencies") && !section.ends_with("dev-dependencies");
        }
        let name = line.strip_prefix("minos-")?.split(['.', ' ', '=']).next()?;
        counts.then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn arrows_the_wrong_way_are_found() {
        let good = "[dependencies]\nminos-base.workspace = true\nserde = \"1\"\n[dev-dependencies]\nminos-engine.workspace = true\n";
        assert!(faults("crates/sched/Cargo.toml", good).is_empty());
        let bad = "[dependencies]\nminos-engine.workspace = true\nminos-base = { path = \"../base\" }\n";
        assert_eq!(faults("crates/proto/Cargo.toml", bad).len(), 1);
        assert_eq!(faults("crates/base/Cargo.toml", bad).len(), 2);
        let by_target = "[target.'cfg(unix)'.dependencies]\nminos-node = { workspace = true }\n";
        assert_eq!(faults("crates/net/Cargo.toml", by_target).len(), 1);
        assert_eq!(faults("crates/cellar/Cargo.toml", "").len(), 1);
    }
}
