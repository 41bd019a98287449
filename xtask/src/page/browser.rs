//! A headless Chromium, driven over a pipe by the DevTools protocol.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
};

use anyhow::{Context, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{WITHIN, text};
use crate::{command::run, setup};

/// A running browser, which ends when this is dropped.
pub(super) struct Browser {
    process: Child,
    pipe: std::cell::RefCell<Pipe>,
    _folder: TempDir,
}

/// The ends of the pipes, and what the browser said unasked.
struct Pipe {
    commands: File,
    messages: Receiver<Value>,
    events: Vec<Value>,
    next: u64,
}

/// A tab with a page.
pub(super) struct Tab<'b> {
    browser: &'b Browser,
    session: String,
}

impl Browser {
    pub(super) fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let [commands, messages] = ["commands", "messages"].map(|name| folder.path().join(name));
        run(Command::new("mkfifo").args([&commands, &messages]))?;
        // The browser reads descriptor 3 and writes descriptor 4.
        let script = format!(
            "exec {} --headless --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe \
             --user-data-dir={} about:blank 3<{} 4>{}",
            setup::BROWSER,
            folder.path().join("profile").display(),
            commands.display(),
            messages.display()
        );
        let mut shell = Command::new("sh");
        let process = shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let commands = OpenOptions::new().write(true).open(commands)?;
        let mut reader = BufReader::new(File::open(messages)?);
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            while reader.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                let message = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes));
                if !message.is_ok_and(|message| sender.send(message).is_ok()) {
                    return;
                }
                bytes.clear();
            }
        });
        let pipe = Pipe { commands, messages, events: Vec::new(), next: 1 };
        Ok(Self { process, pipe: pipe.into(), _folder: folder })
    }

    /// Opens a page.
    pub(super) fn open(&self, url: &str, size: (u64, u64), scheme: &str) -> anyhow::Result<Tab<'_>> {
        let target = self.ask(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.ask(None, "Target.attachToTarget", attach)?;
        let mut tab = Tab { browser: self, session: text(&attached, "sessionId")?.to_owned() };
        for method in ["Page.enable", "Runtime.enable", "Log.enable"] {
            tab.ask(method, json!({}))?;
        }
        tab.resize(size, scheme)?;
        let gone = tab.ask("Page.navigate", json!({ "url": url }))?;
        ensure!(gone["errorText"].is_null(), "{url}: {gone}");
        Ok(tab)
    }

    /// Sends a command, and waits for its result.
    fn ask(&self, session: Option<&str>, method: &str, params: Value) -> anyhow::Result<Value> {
        let mut pipe = self.pipe.borrow_mut();
        let id = pipe.next;
        pipe.next += 1;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let mut bytes = serde_json::to_vec(&command)?;
        bytes.push(0);
        pipe.commands.write_all(&bytes)?;
        loop {
            let message =
                pipe.messages.recv_timeout(WITHIN).with_context(|| format!("{method}: no answer"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
            pipe.events.push(message);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Tab<'_> {
    fn ask(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.browser.ask(Some(&self.session), method, params)
    }

    /// Gives the page this size in pixels, and a colour scheme, `light` or `dark`.
    pub(super) fn resize(&mut self, (width, height): (u64, u64), scheme: &str) -> anyhow::Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.ask("Emulation.setDeviceMetricsOverride", size)?;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", features).map(drop)
    }

    /// The value of an expression in the page.
    pub(super) fn evaluate(&mut self, expression: &str) -> anyhow::Result<Value> {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let result = self.ask("Runtime.evaluate", asked)?;
        ensure!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// A picture of the page as far as it is in view, as WebP.
    pub(super) fn picture(&mut self) -> anyhow::Result<Vec<u8>> {
        let taken = self.ask("Page.captureScreenshot", json!({ "format": "webp", "quality": 80 }))?;
        Ok(BASE64_STANDARD.decode(text(&taken, "data")?)?)
    }

    /// Fails if the page has logged an error, or thrown one.
    pub(super) fn check_quiet(&mut self) -> anyhow::Result<()> {
        self.evaluate("0")?;
        let pipe = self.browser.pipe.borrow();
        let is_error = |event: &&Value| {
            let params = &event["params"];
            event["method"] == "Runtime.exceptionThrown"
                || (event["method"] == "Runtime.consoleAPICalled" && params["type"] == "error")
                || (event["method"] == "Log.entryAdded" && params["entry"]["level"] == "error")
        };
        let errors: Vec<_> = pipe.events.iter().filter(is_error).collect();
        ensure!(errors.is_empty(), "the page has errors: {errors:?}");
        Ok(())
    }
}
