//! Files on the disk, workloads, processor time, and runs of programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;

use crate::measure::{contestants::Contestant, driver};

use super::KEY_BYTES;

/// Time between two removals of a file's pages.
const UNCACHED_EVERY: Duration = Duration::from_millis(100);

/// A folder on the disk, gone with all its files when dropped.
pub(super) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// A folder of its own below `folder`.
    pub(super) fn at(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join(format!("flash-{}", process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { folder: folder.canonicalize()? })
    }

    /// A file that need not exist.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Removes a file, so that there is room for the next.
    pub(super) fn remove(&self, name: &str) {
        // It may not have been made.
        fs::remove_file(self.folder.join(name)).ok();
    }

    /// Writes a workload of uniform GETs or, by `get_ratio`, SETs; returns its file.
    pub(super) fn workload(&self, name: &str, items: &Items, get_ratio: f64) -> anyhow::Result<String> {
        let Items { keys, key_bytes, value_bytes, .. } = items;
        let text = format!(
            "name = \"{name}\"\n[[stream]]\nname = \"{name}\"\nget_ratio = {get_ratio:.3}\n[[stream.group]]\nkeys = {keys}\n\
             key_bytes = {key_bytes}\nvalue_bytes = {{ min = {value_bytes}, max = {value_bytes} }}\nclass = \"small\"\n"
        );
        self.toml(name, &text)
    }

    /// Writes a workload; returns its file.
    pub(super) fn toml(&self, name: &str, text: &str) -> anyhow::Result<String> {
        let file = self.file(&format!("{name}.toml"));
        fs::write(&file, text).with_context(|| file.clone())?;
        Ok(file)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// A thread that takes a file's clean pages out of the system's cache, again and again, so that a server that
/// reads through it reads from the disk. It ends when dropped.
pub(super) struct Uncached {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Uncached {
    pub(super) fn keep(file: String) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !seen.load(Relaxed) {
                let dd = ["iflag=nocache", "count=0", "status=none"];
                // Without it the figures of one server are better than they should be.
                Command::new("dd").arg(format!("if={file}")).args(dd).status().ok();
                thread::sleep(UNCACHED_EVERY);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Uncached {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            thread.join().ok();
        }
    }
}

/// Items of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items {
    /// The number of the first one.
    pub(super) first: u64,
    pub(super) keys: u64,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: u64,
}

impl Items {
    pub(super) fn new(keys: u64, value_bytes: u64) -> Self {
        Self { first: 0, keys, key_bytes: KEY_BYTES, value_bytes }
    }
}

/// Runs `minos bench` against a server for so many milliseconds after a warm-up of a fourth.
pub(super) fn bench(
    program: &Path,
    server: &Contestant,
    millis: u32,
    arguments: &[&str],
) -> anyhow::Result<Value> {
    bench_at(program, (&server.target(), server.pid()), millis, arguments)
}

/// The same of the server at `target` with this process.
pub(super) fn bench_at(
    program: &Path,
    server: (&str, u32),
    millis: u32,
    arguments: &[&str],
) -> anyhow::Result<Value> {
    driver::json(command(program, server, millis, &[arguments, &["--pin", "1"]].concat()))
}

/// The same without a place for the driver's threads.
pub(super) fn bench_command(program: &Path, server: &Contestant, millis: u32, arguments: &[&str]) -> Command {
    command(program, (&server.target(), server.pid()), millis, arguments)
}

fn command(program: &Path, (target, pid): (&str, u32), millis: u32, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["bench", "--json", "--target", target, "--server-pid", &pid.to_string()]);
    command.args(["--warmup", &format!("{}ms", millis / 4), "--duration", &format!("{millis}ms")]);
    command.args(arguments);
    command
}

/// A number in an output of `minos bench`, by its path.
pub(super) fn number(result: &Value, path: &[&str]) -> f64 {
    path.iter().fold(result, |value, name| &value[*name]).as_f64().unwrap_or(f64::NAN)
}

/// Processor time of a process, of all its threads.
pub(super) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let mut total = Duration::ZERO;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended meanwhile.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let ns = text.split(' ').next().and_then(|ns| ns.parse().ok()).context("no time in schedstat")?;
        total += Duration::from_nanos(ns);
    }
    Ok(total)
}

/// Calls `look` until it is true.
///
/// # Errors
/// It is not within `patience`.
pub(super) fn wait_until(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !look()? {
        anyhow::ensure!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
