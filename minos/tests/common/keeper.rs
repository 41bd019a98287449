//! A keeper as a process of its own.

use std::{
    fs::File,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// A keeper; killed when dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

impl Keeper {
    /// Starts one whose socket and log lie in the folder.
    pub(crate) fn start(folder: &Path, options: &[&str]) -> Self {
        let (socket, log) = (folder.join("keeper"), folder.join("keeper.log"));
        let file = File::create(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.args(["keeper", "--listen"]).arg(&socket).args(options);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let mut keeper = Self { child: command.spawn().unwrap(), socket, log };
        keeper.wait_until("it listens", |keeper| UnixStream::connect(&keeper.socket).is_ok());
        keeper
    }

    /// The option of a server whose memory it keeps under this name.
    pub(crate) fn region(&self, name: &str) -> String {
        format!("keeper:{}={name}", self.socket.display())
    }

    /// Runs `minos keeper` with this keeper.
    pub(crate) fn operate(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        command.arg("keeper").args(arguments).arg("--keeper").arg(&self.socket).output().unwrap()
    }

    pub(crate) fn list(&self) -> String {
        let output = self.operate(&["list"]);
        assert!(output.status.success(), "{output:?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Asks it to end, which it must do well; returns its log.
    pub(crate) fn terminate(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
        self.log()
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "not {what}: {ended:?}\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Either call fails only for a process that has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
