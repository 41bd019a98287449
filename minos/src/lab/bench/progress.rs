//! A progress line, on a terminal only.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use minos_workload::{Moment, Target};

/// The line. Dropping it clears it.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
}

impl ProgressLine {
    /// A line for a run of `total`.
    pub(crate) fn of_run(target: &Target, total: Duration, is_quiet: bool) -> Self {
        let line = Self::new(total.as_millis() as u64, is_quiet);
        line.bar.set_style(style("{prefix} {bar:30} {msg}"));
        line.bar.set_prefix(target.to_string());
        line
    }

    /// A line for a load of so many items.
    pub(crate) fn of_load(target: &Target, items: u64, is_quiet: bool) -> Self {
        let line = Self::new(items, is_quiet);
        line.bar.set_style(style("{prefix} {bar:30} {human_pos} of {human_len} items stored"));
        line.bar.set_prefix(target.to_string());
        line
    }

    fn new(len: u64, is_quiet: bool) -> Self {
        // The line goes to stderr, and only if that is a terminal.
        let target =
            if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
        Self { bar: ProgressBar::with_draw_target(Some(len), target) }
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

    pub(crate) fn show_items(&self, moment: Moment) {
        self.bar.set_position(moment.answered);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; a wrong one would only cost the style.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}
