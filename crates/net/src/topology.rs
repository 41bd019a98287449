//! The NUMA nodes of the machine, as the kernel shows them below `/sys/devices/system/node`.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use rustix::thread::CpuSet;

/// Where the kernel shows the nodes.
pub const NODES: &str = "/sys/devices/system/node";

/// Most nodes that a kernel of Linux has.
const NODES_MAX: usize = 1024;
/// Most bytes of a file that are read; the kernel's are far shorter.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// The kernel's number. Numbers may have gaps.
    pub number: usize,
    /// Its processors that are online, in ascending order, each below [`CpuSet::MAX_CPU`]. May be none.
    pub cpus: Vec<usize>,
    /// Bytes of its memory. May be none.
    pub memory_bytes: u64,
}

/// The NUMA nodes shown below `root`, by their numbers; normally [`NODES`]. A processor is only on the first node that
/// names it. What cannot be read as the kernel writes it counts as absent.
///
/// # Errors
/// `root` cannot be read: a kernel without NUMA has no such folder.
pub fn numa_nodes(root: &Path) -> io::Result<Vec<NumaNode>> {
    let mut numbers: Vec<usize> = fs::read_dir(root)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .filter(|&number| number < NODES_MAX)
        .collect();
    if let Some(online) = text(&root.join("online")) {
        let online = list(&online, NODES_MAX);
        numbers.retain(|number| online.contains(number));
    }
    numbers.sort_unstable();
    // "node1" and "node01" would be the same.
    numbers.dedup();
    let mut seen = CpuSet::new();
    Ok(numbers.into_iter().map(|number| node(root, number, &mut seen)).collect())
}

fn node(root: &Path, number: usize, seen: &mut CpuSet) -> NumaNode {
    let file = |name| text(&root.join(format!("node{number}")).join(name)).unwrap_or_default();
    let mut cpus = list(&file("cpulist"), CpuSet::MAX_CPU);
    cpus.retain(|&cpu| !seen.is_set(cpu));
    cpus.iter().for_each(|&cpu| seen.set(cpu));
    NumaNode { number, cpus, memory_bytes: memory_bytes(&file("meminfo")).unwrap_or(0) }
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The numbers below `max` of a list such as `0-3,8-11`, in ascending order.
fn list(text: &str, max: usize) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(first..=last.min(max - 1))
    };
    let mut numbers = vec![false; max];
    for range in text.split(',').filter_map(range).filter(|range| !range.is_empty()) {
        numbers[range].fill(true);
    }
    (0..max).filter(|&number| numbers[number]).collect()
}

/// The total in a node's `meminfo`, as in `Node 0 MemTotal: 1024 kB`.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.split_once("MemTotal:"))?.1;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowed_cpus;

    fn put(root: &Path, path: &str, text: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn found(root: &Path) -> Vec<(usize, Vec<usize>, u64)> {
        let nodes = numa_nodes(root).unwrap();
        nodes.into_iter().map(|node| (node.number, node.cpus, node.memory_bytes)).collect()
    }

    #[test]
    fn lists_have_gaps_and_odd_parts() {
        assert_eq!(list("0-3,8-11\n", 1024), [0, 1, 2, 3, 8, 9, 10, 11]);
        assert_eq!(list("5", 1024), [5]);
        assert_eq!(list("3,1-2,2", 1024), [1, 2, 3]);
        assert_eq!(list("0-99999999999", 3), [0, 1, 2]);
        for odd in ["", "\n", "4-2", "-", "-3", "1-", "x", "1:2", "1,,", "99999999999999999999", "5-7"] {
            assert!(list(odd, 5).iter().all(|&number| number == 1), "{odd}");
        }
    }

    #[test]
    fn nodes_have_gaps_and_may_lack_processors_or_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        put(root, "online", b"0,2-3\n");
        put(root, "node0/cpulist", b"0-3,8-11\n");
        put(root, "node0/meminfo", b"Node 0 MemTotal:       2048 kB\nNode 0 MemFree: 1 kB\n");
        put(root, "node2/cpulist", b"4-7,3\n");
        put(root, "node3/cpulist", b"\n");
        put(root, "node3/meminfo", b"Node 3 MemTotal: 4 kB\n");
        put(root, "node4/cpulist", b"12\n");
        put(root, "node/cpulist", b"13\n");
        put(root, "node02/cpulist", b"14\n");
        put(root, "node2000/cpulist", b"15\n");
        put(root, "has_cpu", b"0,2\n");
        let expected =
            [(0, vec![0, 1, 2, 3, 8, 9, 10, 11], 2 << 20), (2, vec![4, 5, 6, 7], 0), (3, vec![], 4096)];
        assert_eq!(found(root), expected);
    }

    #[test]
    fn anything_may_stand_in_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(numa_nodes(&root.join("absent")).is_err());
        assert_eq!(found(root), []);
        put(root, "online", b"\xff");
        put(root, "node0/cpulist", &[b'0'; 200_000]);
        put(root, "node0/meminfo", b"Node 0 MemTotal: 99999999999999999999 kB");
        put(root, "node1/cpulist", b"0-18446744073709551615");
        put(root, "node1/meminfo", b"Node 1 MemTotal: 18446744073709551615 kB");
        put(root, "node5", b"a file");
        let nodes = numa_nodes(root).unwrap();
        // As many zeros as are read are a zero.
        assert_eq!((&nodes[0].cpus[..], nodes[0].memory_bytes), (&[0][..], 0));
        assert_eq!((nodes[1].cpus.len(), nodes[1].memory_bytes), (CpuSet::MAX_CPU - 1, 0));
        assert!(nodes[2].cpus.is_empty());
    }

    #[test]
    fn this_machine_has_its_processors_on_nodes() {
        let Ok(nodes) = numa_nodes(Path::new(NODES)) else { return };
        let on_nodes = |cpu: &usize| nodes.iter().any(|node| node.cpus.contains(cpu));
        assert!(allowed_cpus().iter().all(on_nodes), "{nodes:?}");
    }
}
