//! `cargo xtask page`: the page of the admin endpoint in a headless Chromium, and pictures of it and of `minos top`.

mod browser;

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use minos_testkit::{Client, Server};
use serde_json::{Value, json};

use self::browser::{Browser, Tab};
use crate::{
    command::{cargo, root, run, target},
    setup,
};

/// Longest time for anything.
const WITHIN: Duration = Duration::from_secs(60);
/// Time in which the charts get something to show.
const SHOWN: Duration = Duration::from_secs(45);
/// A key that would run as a script if the page took it for HTML.
const HOSTILE: &str = "<script>throw'hostile'</script><img/src=x/onerror=alert(1)>";
const PHONE_WIDTH: u64 = 360;

/// Installs the browser if it is missing, checks the page, and writes the pictures to docs/figures.
pub(crate) fn test() -> anyhow::Result<()> {
    setup::install_browser()?;
    run(&mut cargo(&["build", "-p", "minos"]))?;
    let program = target().join("debug/minos");
    let options = [
        "--workers=2",
        "--memory=256m",
        "--pin=off",
        "--admin=127.0.0.1:0",
        "--watch=4",
        "--slow-threshold=2ms",
    ];
    let server = Server::minos(&program, &options)?;
    let admin = admin_address(&server)?;
    let _load = Load::start(&program, server.address())?;
    name_hostile_key(server.address())?;
    let browser = Browser::start()?;
    let figures = root().join("docs/figures");
    let mut tab = browser.open(&format!("http://{admin}/"), (1100, 1150), "light")?;
    thread::sleep(SHOWN);
    check_numbers(&mut tab)?;
    fs::write(figures.join("page.webp"), tab.picture()?)?;
    let text = top(&program, admin)?;
    fs::write(figures.join("top.svg"), as_svg(&text))?;
    tab.resize((PHONE_WIDTH, 1100), "dark")?;
    thread::sleep(Duration::from_secs(3));
    check_phone(&mut tab)?;
    fs::write(figures.join("page-phone.webp"), tab.picture()?)?;
    check_buttons(&mut tab)?;
    tab.check_quiet()?;
    println!(
        "page: numbers, keys as text, phone width, dark, buttons; no error; three pictures in docs/figures"
    );
    Ok(())
}

fn admin_address(server: &Server) -> anyhow::Result<SocketAddr> {
    let deadline = Instant::now() + WITHIN;
    loop {
        let log = server.log();
        if let Some(address) = log.lines().find_map(|line| line.strip_prefix("listening on admin ")) {
            return Ok(address.parse()?);
        }
        ensure!(Instant::now() < deadline, "no admin endpoint was announced:\n{log}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn name_hostile_key(server: SocketAddr) -> anyhow::Result<()> {
    let mut client = Client::connect(server)?;
    ensure!(client.set(HOSTILE, &vec![b'x'; 4_000_000])? == "STORED", "the key was not stored");
    for _ in 0..3 {
        client.get(HOSTILE)?;
    }
    Ok(())
}

/// The page shows what the server does, and keys as text.
fn check_numbers(tab: &mut Tab<'_>) -> anyhow::Result<()> {
    for (what, question) in [
        ("requests", "parseFloat(at('rate').textContent) > 0"),
        ("percentiles", "/[µm]s/.test(at('percentiles').rows[1].cells[2].textContent)"),
        ("lines of both sizes", "document.querySelectorAll('#latency path').length === 6"),
        ("workers", "at('workers').rows.length === 3 && document.querySelectorAll('#roles rect').length > 1"),
        ("sizes", "document.querySelectorAll('#sizes rect').length > 4"),
        ("hot keys", "at('hot').rows.length > 1"),
        ("memory", "at('memorytable').rows.length > 3"),
        ("no flash", "at('flashsection').hidden"),
        ("no trouble", "at('trouble').hidden"),
        ("one script", "document.scripts.length === 1 && document.images.length === 0"),
    ] {
        ensure!(tab.evaluate(question)? == json!(true), "the page shows no {what}: {question}");
    }
    let key = tab.evaluate("at('large').rows[1].cells[0].textContent")?;
    ensure!(key == json!(HOSTILE), "the large key is shown as {key}");
    Ok(())
}

/// Nothing is wider than a phone, and the page is dark where that is wanted.
fn check_phone(tab: &mut Tab<'_>) -> anyhow::Result<()> {
    let width = tab.evaluate("document.documentElement.scrollWidth")?;
    ensure!(width.as_u64().is_some_and(|width| width <= PHONE_WIDTH), "{width} pixels wide on a phone");
    let ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")?;
    ensure!(ground == json!("rgb(16, 21, 28)"), "the ground is {ground} in the dark");
    Ok(())
}

fn check_buttons(tab: &mut Tab<'_>) -> anyhow::Result<()> {
    let click =
        "[...document.querySelectorAll('#designs button')].find((b) => b.textContent === 'keyhash').click()";
    tab.evaluate(click)?;
    let deadline = Instant::now() + WITHIN;
    while tab.evaluate("at('about').textContent.includes('keyhash')")? != json!(true) {
        let said = tab.evaluate("at('answer').textContent")?;
        ensure!(Instant::now() < deadline, "the design did not change: {said}");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Requests of `minos bench` until dropped.
struct Load(Child);

impl Load {
    fn start(program: &Path, server: SocketAddr) -> anyhow::Result<Self> {
        let target = format!("memcached://{server}");
        let mut bench = Command::new(program);
        bench.args([
            "bench",
            "--target",
            &target,
            "--rate",
            "2k",
            "--duration",
            "10m",
            "--warmup",
            "1s",
            "--load",
        ]);
        bench.args(["--keys", "20000", "--large-keys", "50", "--connections", "8", "--pace", "sleep"]);
        Ok(Self(bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn top(program: &Path, admin: SocketAddr) -> anyhow::Result<String> {
    let mut top = Command::new(program);
    let output = top.args(["top", "--once", "--interval=3s", &format!("--admin={admin}")]).output()?;
    let text = String::from_utf8(output.stdout).context("no text")?;
    if !output.status.success() || !text.contains("Latency in the server") {
        bail!("minos top: {text}{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(text)
}

/// A picture of a terminal with this text.
fn as_svg(text: &str) -> String {
    let (advance, line_height) = (8.4, 17);
    let columns = text.lines().map(|line| line.chars().count()).max().unwrap_or(1);
    let width = (columns as f64 * advance) as usize + 24;
    let height = text.lines().count() * line_height + 20;
    let escaped = |line: &str| line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let lines = text.lines().enumerate().map(|(number, line)| {
        let y = 22 + number * line_height;
        let length = line.chars().count() as f64 * advance;
        format!(
            "<text x=\"12\" y=\"{y}\" textLength=\"{length:.1}\" xml:space=\"preserve\">{}</text>\n",
            escaped(line)
        )
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" fill=\"#d7dee6\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>\n{}</svg>\n",
        lines.filter(|line| !line.contains("\"0.0\"")).collect::<String>()
    )
}

/// A field of a message, as text.
fn text<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    value[name].as_str().with_context(|| format!("no {name} in {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_a_picture() {
        let svg = as_svg("a <b>\n\nc\n");
        assert!(svg.contains(">a &lt;b&gt;</text>") && svg.contains(">c</text>"));
        assert_eq!(svg.matches("<text").count(), 2);
    }
}
