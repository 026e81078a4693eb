//! How far an experiment is, on standard error: a bar on a terminal, lines elsewhere.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Tells people how far an experiment is.
pub struct Progress {
    /// `None` where nobody looks, or only a file.
    bar: Option<ProgressBar>,
    lines: bool,
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl Progress {
    /// For so many trials; says nothing unless `verbose`.
    #[must_use]
    pub fn new(verbose: bool, trials: usize) -> Self {
        if !verbose || !stderr().is_terminal() {
            return Self { bar: None, lines: verbose };
        }
        let length = u64::try_from(trials).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:20} {pos}/{len} {elapsed} {prefix}: {wide_msg}")
        {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar: Some(bar), lines: false }
    }

    /// Nobody is told.
    #[must_use]
    pub const fn silent() -> Self {
        Self { bar: None, lines: false }
    }

    /// A trial begins.
    pub fn begin(&self, trial: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(trial.to_owned());
            bar.set_message("");
        } else {
            self.line(trial);
        }
    }

    /// What the trial does now.
    pub fn say(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => self.line(what),
        }
    }

    /// Something to remember, which stays on the terminal.
    pub fn note(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("bench: {what}")),
            None => self.line(what),
        }
    }

    /// A trial has ended.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn line(&self, what: &str) {
        if self.lines {
            eprintln!("bench: {what}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
