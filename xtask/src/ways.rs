//! The way of a request through the server: the functions of ours that every request executes, inlined ones too, and
//! their instructions, counted by callgrind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use minos_client::{Config, blocking};
use minos_testkit::{Client, Server};

use crate::{
    command::{root, run},
    instructions::FLAGS,
    suites::cargo_apart,
};

/// Requests sent in a run, one by one.
const REQUESTS: u64 = 200;
const PIPELINED: usize = 16;
/// Pause before each request of a run, so that the worker sleeps; and of another, in which time does more.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(8)];
/// Longest time in which the server ends.
pub(crate) const END_WITHIN: Duration = Duration::from_secs(60);
/// Options of the server that is counted.
pub(crate) const SERVED: &str = "--workers=1 --poll=sleep --memory=64m --pin=off";

/// The function that only the thread of a worker runs.
const WORKER: &str = "minos_node::worker::Worker<M,I>::run";

/// What to count and print.
#[derive(clap::Args, Debug)]
pub(crate) struct WaysOptions {
    /// Ways to count [default: all]
    #[arg(value_enum)]
    ways: Vec<Way>,
    /// List the functions
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    /// GET of 32 bytes over TCP
    Small,
    /// Sixteen of them at once
    Pipelined,
    /// Sixteen of them at once by Redis' protocol
    Resp,
    /// GET of a megabyte over TCP
    Large,
    /// GET of 32 bytes by the native protocol
    Native,
}

/// Executions of each instruction, by object file and address.
pub(crate) type Counts = BTreeMap<(String, u64), u64>;

/// Counts the ways and prints them.
pub(crate) fn print(options: &WaysOptions) -> anyhow::Result<()> {
    run(&mut cargo_apart("ways", FLAGS, &["build", "--release", "-p", "minos", "--no-default-features"]))?;
    let program = root().join("target/ways/release/minos");
    let ways = if options.ways.is_empty() { Way::value_variants() } else { &options.ways };
    for &way in ways {
        let idle = count(&program, way, 0, PAUSES[0])?;
        let quick = count(&program, way, REQUESTS, PAUSES[0])?;
        let slow = count(&program, way, REQUESTS, PAUSES[1])?;
        let steps = steps(&idle, &quick, &slow);
        let gets = if matches!(way, Way::Pipelined | Way::Resp) { PIPELINED } else { 1 };
        let gets = REQUESTS * gets as u64;
        let instructions = steps.values().sum::<u64>() / gets;
        let addresses = steps.keys().filter(|(object, _)| Path::new(object) == program);
        let functions = functions(&program, addresses.map(|&(_, address)| address))?;
        let files: BTreeSet<&str> = functions.keys().map(|(file, _)| file.as_str()).collect();
        let crates: BTreeSet<_> = files.iter().map(|file| file.split("/src/").next()).collect();
        let long = functions.values().filter(|&&lines| lines > 3).count();
        let (all, files, crates) = (functions.len(), files.len(), crates.len());
        println!(
            "{way:?}: {all} functions, {long} of them with more than three lines, in {files} files of {crates} crates; \
             {instructions} instructions a GET"
        );
        if options.list {
            functions.iter().for_each(|((file, name), lines)| println!("{file} {name} {lines}"));
        }
    }
    Ok(())
}

/// Runs the server under callgrind with so many requests of a way, each after a pause.
fn count(program: &Path, way: Way, requests: u64, pause: Duration) -> anyhow::Result<Counts> {
    let listens = match way {
        Way::Native => " --native=127.0.0.1:0",
        Way::Resp => " --resp=127.0.0.1:0",
        _ => "",
    };
    count_served(program, &format!("{SERVED}{listens}"), |server| ask(server, way, requests, pause))
}

/// Runs the server with these options under callgrind, while `ask` sends it requests. Counts its worker's thread.
pub(crate) fn count_served(
    program: &Path,
    options: &str,
    ask: impl FnOnce(&mut Server) -> anyhow::Result<()>,
) -> anyhow::Result<Counts> {
    let valgrind = |port: u16, folder: &Path| -> Vec<String> {
        let output = folder.join("counts");
        let callgrind = format!(
            "--quiet --tool=callgrind --separate-threads=yes --dump-instr=yes --dump-line=no --compress-pos=no \
             --compress-strings=no --callgrind-out-file={} {} serve --memcached=127.0.0.1:{port} {options}",
            output.display(),
            program.display()
        );
        callgrind.split(' ').map(str::to_owned).collect()
    };
    let mut server = Server::start(Path::new("valgrind"), valgrind)?;
    ask(&mut server)?;
    ensure!(server.terminate(END_WITHIN)?.is_some_and(|status| status.success()), "{}", server.log());
    parse(&of_the_worker(server.folder())?)
}

/// Callgrind's output for the thread of the only worker.
fn of_the_worker(folder: &Path) -> anyhow::Result<String> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_output = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("counts-"));
        let text = if is_output { fs::read_to_string(path)? } else { String::new() };
        if text.contains(WORKER) {
            return Ok(text);
        }
    }
    anyhow::bail!("callgrind shows no thread that runs {WORKER}")
}

/// Stores an item and reads it again and again.
fn ask(server: &mut Server, way: Way, requests: u64, pause: Duration) -> anyhow::Result<()> {
    let value = vec![b'v'; if matches!(way, Way::Large) { 1_000_000 } else { 32 }];
    let mut client = Client::connect(server.address())?;
    ensure!(client.set("key", &value)? == "STORED", "the value was not stored");
    if let Way::Native = way {
        let (address, config) = (server.native_address()?.to_string(), Config::new().timeout(END_WITHIN));
        let mut client = blocking::Client::connect(&address, config)?;
        for _ in 0..requests {
            thread::sleep(pause);
            client.get("key")?.context("no value")?;
        }
        return Ok(());
    }
    if let Way::Resp = way {
        return ask_in_resp(server.resp_address()?, requests, pause);
    }
    let gets = if let Way::Pipelined = way { PIPELINED } else { 1 };
    for _ in 0..requests {
        thread::sleep(pause);
        client.send("get key\r\n".repeat(gets))?;
        for _ in 0..gets {
            client.found()?.context("no value")?;
        }
    }
    Ok(())
}

/// Reads callgrind's output.
fn parse(text: &str) -> anyhow::Result<Counts> {
    let (mut counts, mut object, mut lines) = (Counts::new(), String::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("ob=") {
            name.clone_into(&mut object);
        } else if line.starts_with("calls=") {
            // The next line is the cost of what was called, which has lines of its own.
            lines.next();
        } else if let Some((address, cost)) = line.strip_prefix("0x").and_then(|line| line.split_once(' ')) {
            let address = u64::from_str_radix(address, 16).context("no address")?;
            *counts.entry((object.clone(), address)).or_default() +=
                cost.parse::<u64>().context("no count")?;
        }
    }
    Ok(counts)
}

/// The instructions that every request executes, with their executions in the quick run.
fn steps(idle: &Counts, quick: &Counts, slow: &Counts) -> Counts {
    let more = |counts: &Counts, key| {
        let count = counts.get(key).copied().unwrap_or(0);
        count.saturating_sub(idle.get(key).copied().unwrap_or(0))
    };
    // A worker that is held up finds the next request before it sleeps.
    let is_step = |quick: u64, slow: u64| quick.min(slow) >= REQUESTS - REQUESTS / 10 && slow < 2 * quick;
    let counts = quick.keys().map(|key| (key, more(quick, key), more(slow, key)));
    let steps = counts.filter(|&(_, quick, slow)| is_step(quick, slow));
    steps.map(|(key, quick, _)| (key.clone(), quick)).collect()
}

/// Reads an item of 32 bytes sixteen times at once, again and again.
fn ask_in_resp(address: SocketAddr, requests: u64, pause: Duration) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(END_WITHIN))?;
    let gets = b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(PIPELINED);
    let mut replies = vec![0; PIPELINED * b"$32\r\n\r\n".len() + PIPELINED * 32];
    for _ in 0..requests {
        thread::sleep(pause);
        stream.write_all(&gets)?;
        stream.read_exact(&mut replies)?;
    }
    ensure!(requests == 0 || replies.starts_with(b"$32\r\nvvv"), "other replies came");
    Ok(())
}

/// The functions of our crates at these addresses, by file and name, each with the lines of its body. A closure is part
/// of its function.
fn functions(
    program: &Path,
    addresses: impl Iterator<Item = u64>,
) -> anyhow::Result<BTreeMap<(String, String), usize>> {
    let (list, root) = (root().join("target/ways/addresses"), root());
    fs::write(&list, addresses.map(|address| format!("{address:#x}\n")).collect::<String>())?;
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["--inlines", "--functions", "--demangle", "--exe"]).arg(program);
    let output = addr2line.stdin(fs::File::open(&list)?).output().context("cannot run addr2line")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut lines, mut functions) = (text.lines(), BTreeMap::new());
    while let (Some(name), Some(place)) = (lines.next(), lines.next()) {
        let file = Path::new(place.split(':').next().unwrap_or(place));
        let file = file.strip_prefix(&root).unwrap_or(file);
        if file.starts_with("crates") || file.starts_with("minos") {
            let key = (file.display().to_string(), short(name));
            // addr2line may give an inlined function the name of the one around it.
            let lines = body_lines(&fs::read_to_string(root.join(file))?, &key.1);
            functions.extend(lines.map(|lines| (key, lines)));
        }
    }
    ensure!(!functions.is_empty(), "addr2line knows no function of ours");
    Ok(functions)
}

/// The last part of a function's name, without types.
fn short(name: &str) -> String {
    let (mut plain, mut depth) = (String::new(), 0);
    for character in name.replace("->", "").chars() {
        depth += i32::from(character == '<') - i32::from(character == '>');
        plain.extend(Some(character).filter(|&character| depth == 0 && character != '>'));
    }
    plain.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Lines of the body of function `name` in a formatted source file, if it has one.
fn body_lines(text: &str, name: &str) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| {
        let behind = line.split_once("fn ").and_then(|(_, rest)| rest.strip_prefix(name));
        behind.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let begin = lines.iter().position(begins)?;
    let head = lines[begin..].iter().position(|line| line.ends_with(['{', '}', ';']))?;
    let end = format!("{}}}", " ".repeat(lines[begin].len() - lines[begin].trim_start().len()));
    let is_one_line = !lines[begin + head].ends_with('{');
    let length = lines[begin + head..].iter().position(|line| is_one_line || *line == end)?;
    Some(length.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_request_executes_is_told_from_the_rest() {
        let text = "ob=a\nfn=f\n0x10 200\ncalls=200 0x20\n0x10 900\nfn=g\n0x20 250\n0x30 300\nob=b\n0x10 1\n";
        let quick = parse(text).unwrap();
        let key = |address| ("a".to_owned(), address);
        assert_eq!((quick.len(), quick[&key(0x10)]), (4, 200));
        // What the start executes, and what time alone brings, is on no way.
        let idle = Counts::from([(key(0x20), 100)]);
        let mut slow = quick.clone();
        slow.insert(key(0x30), 900);
        assert_eq!(steps(&idle, &quick, &slow), Counts::from([(key(0x10), 200)]));
    }

    #[test]
    fn functions_are_named_without_their_types() {
        for name in ["read<a::B, {closure}>", "a::<impl b::C<D, E>>::read", "<a::B as b::C>::read", "a::read"]
        {
            assert_eq!(short(name), "read");
        }
    }

    #[test]
    fn bodies_are_measured() {
        let text = "impl A {\n    fn long<T>(\n        a: u8,\n    ) {\n        b();\n        c();\n    }\n    fn short() {}\n}\n";
        assert_eq!(["long", "short", "lon"].map(|name| body_lines(text, name)), [Some(2), Some(0), None]);
    }
}
