//! A progress line, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minos_workload::{Moment, Target};

/// The line. Dropping it clears it.
pub(crate) struct ProgressLine {
    pub(super) bar: ProgressBar,
}

impl ProgressLine {
    /// A line for `len` steps on `target`, which ends as the template `end` says.
    pub(super) fn new(target: &Target, len: u64, end: &str, is_quiet: bool) -> Self {
        // The line goes to stderr, and only if that is a terminal.
        let place =
            if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        // The templates are constants; a wrong one would only cost the style.
        let style = ProgressStyle::with_template(&format!("{{prefix}} {{bar:30}} {end}"))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::with_draw_target(Some(len), place).with_style(style.progress_chars("━╸─"));
        Self { bar: bar.with_prefix(target.to_string()) }
    }

    pub(crate) fn show(&self, moment: Moment, warmup: Duration) {
        self.bar.set_position(moment.elapsed.as_millis() as u64);
        if moment.elapsed < warmup {
            self.bar.set_message("warming up");
        } else {
            let seconds = (moment.elapsed - warmup).as_secs_f64().max(0.05);
            self.bar.set_message(format!("{:.0} answers/s", moment.answered as f64 / seconds));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
