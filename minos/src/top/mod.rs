//! `minos top`: a running server in the terminal, by its admin endpoint.

mod draw;
mod view;

use std::{
    io::{self, IsTerminal},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use minos_node::settings::parse_time;
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::Buffer,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers},
};

use self::view::{Answers, Now};
use crate::{
    client::show,
    ctl::{http::Question, server::AdminServer},
};

/// Show a running server live: latencies of small and large requests, workers, memory, and which keys are hot or large.
///
/// The server is one that was started with --admin. `q` ends it.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    server: AdminServer,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    interval: Duration,
    /// Print one picture as text after one interval, and end
    #[arg(long)]
    once: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    timeout: Duration,
}

/// Width and height of the picture that `--once` prints, in characters.
const ONCE: (u16, u16) = (100, 40);

/// Shows the server until the user ends it.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<()> {
    ensure!(!args.interval.is_zero(), "--interval: some time must pass; it must not be 0");
    let mut answers = Answers::new(args.ask()?);
    if args.once {
        thread::sleep(args.interval);
        answers.take(args.ask()?);
        return Ok(show(|out| out.write_all(picture(&answers, ONCE)?.as_bytes()))?);
    }
    ensure!(io::stdout().is_terminal(), "the output is no terminal; --once prints one picture");
    let mut terminal = ratatui::try_init().context("cannot use this terminal; --once prints one picture")?;
    let watched =
        args.watch(&mut answers, |answers| terminal.draw(|frame| draw::draw(frame, answers)).map(drop));
    ratatui::restore();
    watched
}

impl TopArgs {
    /// Draws what the server answers until the user ends it.
    fn watch(
        &self,
        answers: &mut Answers,
        mut draw: impl FnMut(&Answers) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        loop {
            draw(answers)?;
            let next = Instant::now() + self.interval;
            while event::poll(next.saturating_duration_since(Instant::now()))? {
                match event::read()? {
                    Event::Key(key) if is_end(&key) => return Ok(()),
                    Event::Resize(..) => draw(answers)?,
                    _ => {}
                }
            }
            answers.take(self.ask()?);
        }
    }

    fn ask(&self) -> anyhow::Result<Now> {
        let answer = self.server.ask(None, self.timeout, Question::get("/now".to_owned()))?;
        let object = crate::ctl::object(self.server.address(), &answer)?;
        let read = serde_json::from_value(object.into());
        read.with_context(|| format!("{}: is it a Minos of this version?", self.server.address()))
    }
}

fn is_end(key: &KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

/// A picture as text, without empty lines at its end.
fn picture(answers: &Answers, (width, height): (u16, u16)) -> io::Result<String> {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::draw(frame, answers));
    Ok(text_of(terminal.backend().buffer()))
}

fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let lines = buffer.content.chunks(width).map(|cells| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect::<String>().trim_end().to_owned() + "\n"
}
