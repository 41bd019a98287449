//! The memory that is available to a server.

use std::path::{Path, PathBuf};

use minos_base::SizeText;

/// The default of `--memory`, unless the machine is small.
const MEMORY_DEFAULT: u64 = 1 << 30;

/// Memory that the server may use, and the source of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Available {
    bytes: u64,
    of: &'static str,
}

impl Available {
    /// The memory of the machine, or the limit of this process's control group if that is less; `None` if
    /// neither is known.
    pub(super) fn read() -> Option<Self> {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let machine = machine_bytes(&text("/proc/meminfo"));
        let group = group_bytes(Path::new("/sys/fs/cgroup"), &text("/proc/self/cgroup"));
        Self::least(machine, group)
    }

    fn least(machine: Option<u64>, group: Option<u64>) -> Option<Self> {
        let machine = machine.map(|bytes| Self { bytes, of: "this machine" });
        let group = group.map(|bytes| Self { bytes, of: "this process's control group" });
        machine.into_iter().chain(group).min_by_key(|available| available.bytes)
    }

    /// An error text if the store's memory is more than is available.
    pub(super) fn excess(self, memory: SizeText) -> Option<String> {
        let Self { bytes, of } = self;
        let is_too_much = memory.0 > bytes;
        is_too_much.then(|| format!("--memory {memory} is more than the {} that {of} has", SizeText(bytes)))
    }
}

/// The default of `--memory`: 1 GiB, or half of a small machine's memory, in whole MiB.
pub(super) fn memory_default(available: Option<Available>) -> SizeText {
    let half = available.map_or(u64::MAX, |available| available.bytes / 2);
    SizeText(half.min(MEMORY_DEFAULT) >> 20 << 20)
}

/// Bytes of memory of the machine, or of this process's control group if that has less; `None` if nobody knows.
pub(crate) fn memory_of_machine() -> Option<u64> {
    Available::read().map(|available| available.bytes)
}

/// The total in `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit of the control groups in `membership` (`/proc/self/cgroup`) and of their parents.
///
/// In a container the names may be those of the host; then the directories that exist count.
fn group_bytes(root: &Path, membership: &str) -> Option<u64> {
    let files = membership.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let is_memory = controllers.split(',').any(|name| name == "memory");
        match (controllers, is_memory) {
            // cgroup version 2.
            ("", _) => Some((root.to_owned(), "memory.max", path)),
            (_, true) => Some((root.join("memory"), "memory.limit_in_bytes", path)),
            _ => None,
        }
    });
    files.flat_map(|(root, file, path)| limits(&root, file, path)).min()
}

/// The limits in `file` in the directory `path` below `root` and in its parents up to `root`.
fn limits(root: &Path, file: &str, path: &str) -> Vec<u64> {
    let below = PathBuf::from(path.trim_start_matches('/'));
    let texts =
        below.ancestors().filter_map(|folder| std::fs::read_to_string(root.join(folder).join(file)).ok());
    // "max" is not a number.
    texts.filter_map(|text| text.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_least_limit_of_all_groups_around_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(group_bytes(root, "0::/a/b\n"), None);
        put(root, "a/b/memory.max", "max\n");
        assert_eq!(group_bytes(root, "0::/a/b\n"), None);
        put(root, "a/memory.max", "1048576\n");
        assert_eq!(group_bytes(root, "0::/a/b\n"), Some(MIB));
        put(root, "a/b/memory.max", "4096\n");
        assert_eq!(group_bytes(root, "0::/a/b\n"), Some(4096));
        assert_eq!(group_bytes(root, "0::/elsewhere\n"), None);
        // cgroup version 1, with the name that the container's group has on the host.
        put(root, "memory/memory.limit_in_bytes", "2097152\n");
        assert_eq!(group_bytes(root, "3:cpu,cpuacct:/x\n4:memory:/docker/1234\n0::/\n"), Some(2 * MIB));
        assert_eq!(group_bytes(root, "3:cpu,cpuacct:/x\n"), None);
    }

    #[test]
    fn more_than_there_is_is_said() {
        let machine = machine_bytes("MemTotal:       24684096 kB\nMemFree: 1 kB\n");
        assert_eq!(machine, Some(24_684_096 << 10));
        assert_eq!(Available::least(None, None), None);
        let excess = |group, memory: &str| Available::least(machine, group)?.excess(memory.parse().unwrap());
        assert_eq!(excess(None, "1g"), None);
        let text = excess(None, "200g").unwrap();
        assert!(text.contains("--memory 200g") && text.contains("this machine"), "{text}");
        let text = excess(Some(512 * MIB), "1g").unwrap();
        assert!(text.contains("512m") && text.contains("control group"), "{text}");
        // Version 1 reports a group without a limit as a number larger than any memory.
        assert_eq!(excess(Some(1 << 62), "20g"), None);
    }

    #[test]
    fn a_small_machine_keeps_half_of_its_memory() {
        let default = |bytes| memory_default(Available::least(Some(bytes), None)).0;
        assert_eq!(default(100 << 30), 1 << 30);
        assert_eq!(default(512 * MIB), 256 * MIB);
        assert_eq!(default(101 * MIB), 50 * MIB);
        assert_eq!(memory_default(None).0, 1 << 30);
    }
}
