//! A command whose output is read line by line, and that is ended where it hangs.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    io::{self, BufRead, BufReader, PipeReader},
    os::fd::AsRawFd,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Longest silence of running tests. libtest names a test that has run for a minute; the longest take four.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(600);
/// Time that other processes may keep the output open after the command has ended.
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(20);

pub(crate) struct Watched {
    child: Child,
    lines: Receiver<io::Result<String>>,
    /// The link in `/proc` of the pipe that both outputs go to.
    pipe: PathBuf,
    /// When the command was seen to have ended.
    ended: Option<Instant>,
    silence_max: Duration,
    linger_max: Duration,
}

/// What the next look at a command brings.
pub(crate) enum Seen {
    Line(String),
    End,
    /// It hung and was ended: these are the processes that it had, and the waits of their threads.
    Hung(String),
}

impl Watched {
    /// Starts `command` with both outputs in one pipe, so that a failure follows the program that it belongs to.
    pub(crate) fn start(
        command: &mut Command,
        silence_max: Duration,
        linger_max: Duration,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let pipe = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd()))?;
        let child = command.spawn();
        // Closes this process' ends of the pipe; otherwise reading would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: child?, lines: read_lines(reader), pipe, ended: None, silence_max, linger_max })
    }

    /// Waits for the next line. Silence is no sign of a hang unless a test `is_running`: a build may be silent for long.
    pub(crate) fn next(&mut self, is_running: bool) -> io::Result<Seen> {
        let begin = Instant::now();
        loop {
            // A process that is left behind may go on to write.
            let lingers = self.ended.is_some_and(|ended| ended.elapsed() > self.linger_max);
            let hangs = self.ended.is_none() && is_running && begin.elapsed() > self.silence_max;
            if lingers || hangs {
                let what = if lingers {
                    "these processes outlive the command"
                } else {
                    "the tests hang in these processes"
                };
                // Whoever is killed has closed the output before so long again.
                self.ended = None;
                return Ok(Seen::Hung(format!("{what}:\n{}", self.end_all())));
            }
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => return Ok(Seen::Line(line?)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Seen::End),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.ended.is_none() && self.child.try_wait()?.is_some() {
                self.ended = Some(Instant::now());
            }
        }
    }

    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Kills the command, what it has started, and all that keeps its output open. Returns what they were doing.
    fn end_all(&mut self) -> String {
        // This process has the other end of the pipe.
        let others = || processes().filter(|&process| process != std::process::id());
        let mut found: BTreeSet<u32> = others().filter(|&process| self.is_open_in(process)).collect();
        // The number of one that has ended may be another's now.
        found.extend(matches!(self.child.try_wait(), Ok(None)).then_some(self.child.id()));
        let is_child =
            |process: u32, found: &BTreeSet<u32>| parent(process).is_some_and(|it| found.contains(&it));
        while let Some(process) = others().find(|&it| !found.contains(&it) && is_child(it, &found)) {
            found.insert(process);
        }
        let said = found.iter().map(|&process| describe(process)).collect();
        for process in found.into_iter().filter_map(|process| Pid::from_raw(process.cast_signed())) {
            // It may have ended meanwhile.
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = self.child.wait();
        said
    }

    fn is_open_in(&self, process: u32) -> bool {
        let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        files.map(|file| fs::read_link(file.path())).any(|link| link.is_ok_and(|link| link == self.pipe))
    }
}

fn read_lines(reader: PipeReader) -> Receiver<io::Result<String>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(reader).split(b'\n');
        for line in lines.map(|line| line.map(|line| String::from_utf8_lossy(&line).into_owned())) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn processes() -> impl Iterator<Item = u32> {
    numbers("/proc")
}

/// The entries of a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The command line of a process, and where each of its threads waits in the kernel.
fn describe(process: u32) -> String {
    let read = |path: &str| fs::read(format!("/proc/{process}/{path}")).unwrap_or_default();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned();
    let mut said = format!("process {process}: {}\n", text(read("cmdline")));
    for thread in numbers(&format!("/proc/{process}/task")) {
        let [name, wait, call] =
            ["comm", "wchan", "syscall"].map(|file| text(read(&format!("task/{thread}/{file}"))));
        let _ = writeln!(said, "  {name}: {wait}, call {call}");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIEF: Duration = Duration::from_millis(400);
    const LONG: Duration = Duration::from_secs(60);

    /// Waits until the process that was begun last executes another program.
    const EXECUTES: &str = "until grep -qa ^sleep /proc/$!/cmdline; do :; done";

    /// The lines of a script, and what is said of those that hang. The longest silence, and the longest life of processes
    /// after the end.
    fn ends(script: &str, is_running: bool, times: (Duration, Duration)) -> (Vec<String>, Option<String>) {
        let mut command = Command::new("sh");
        let mut watched = Watched::start(command.args(["-c", script]), times.0, times.1).unwrap();
        let mut lines = Vec::new();
        let mut hung = None;
        loop {
            // The shell may begin late.
            match watched.next(is_running && !lines.is_empty()).unwrap() {
                Seen::Line(line) => lines.push(line),
                Seen::End => break,
                // The end follows once nobody has the pipe any more.
                Seen::Hung(said) => {
                    hung.get_or_insert(said);
                }
            }
        }
        watched.wait().unwrap();
        (lines, hung)
    }

    #[test]
    fn a_test_that_hangs_is_ended_and_described() {
        let script = format!("sleep 1001 & {EXECUTES}; echo before; wait; echo after");
        let (lines, hung) = ends(&script, true, (BRIEF, BRIEF));
        let hung = hung.unwrap();
        assert_eq!(lines, ["before"]);
        assert!(hung.contains("hang in these") && hung.contains(": sleep 1001\n"), "{hung}");
    }

    #[test]
    fn what_stays_behind_is_ended_and_described() {
        let script = format!("sleep 1002 & {EXECUTES}; echo done");
        let (lines, hung) = ends(&script, true, (LONG, BRIEF));
        let hung = hung.unwrap();
        assert_eq!(lines, ["done"]);
        assert!(hung.contains("outlive the command") && hung.contains(": sleep 1002\n"), "{hung}");
    }

    #[test]
    fn who_is_slow_or_builds_is_let_be() {
        let slow = "for n in 1 2 3; do sleep 0.3; echo $n; done";
        assert_eq!(ends(slow, true, (LONG, LONG)), (["1", "2", "3"].map(str::to_owned).to_vec(), None));
        assert_eq!(ends("sleep 1; echo built", false, (BRIEF, LONG)), (vec!["built".to_owned()], None));
    }
}
