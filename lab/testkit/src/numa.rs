//! A folder that is like the one in which the kernel shows NUMA nodes.

use std::{fs, io};

use tempfile::TempDir;

/// A folder that shows a node with a mebibyte of memory for each list of processors, such as "0-3,8".
///
/// # Errors
/// The system refuses a file.
pub fn numa_folder(lists: &[String]) -> io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    for (number, list) in lists.iter().enumerate() {
        let node = folder.path().join(format!("node{number}"));
        fs::create_dir(&node)?;
        fs::write(node.join("cpulist"), format!("{list}\n"))?;
        fs::write(node.join("meminfo"), format!("Node {number} MemTotal:  1024 kB\n"))?;
    }
    Ok(folder)
}
