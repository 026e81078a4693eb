//! What a person sees while long steps run: a spinner or bar on a terminal, plain lines elsewhere.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One named step with a beginning and an end. Dropping it unfinished leaves a line that says so.
pub struct Step {
    title: String,
    started: Instant,
    /// None where standard error is not a terminal.
    bar: Option<ProgressBar>,
    finished: bool,
}

impl Step {
    /// Begins a step whose length is not known.
    pub fn begin(title: impl Display) -> Self {
        Self::with_style(title, None, "{spinner} {prefix}: {wide_msg} [{elapsed}]")
    }

    /// Begins a step of `total` equal parts.
    pub fn begin_counted(title: impl Display, total: u64) -> Self {
        Self::with_style(title, Some(total), "{spinner} {prefix} [{bar:30}] {pos}/{len} {wide_msg} [{elapsed}]")
    }

    fn with_style(title: impl Display, total: Option<u64>, template: &str) -> Self {
        let title = title.to_string();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let style = ProgressStyle::with_template(template).expect("the templates above are well formed");
            bar.set_style(style.progress_chars("=> "));
            bar.set_prefix(title.clone());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_none() {
            eprintln!("{title} ...");
        }
        Self { title, started: Instant::now(), bar, finished: false }
    }

    /// Shows what the step is busy with; nothing is printed where there is no terminal.
    pub fn note(&self, text: impl Display) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_string());
        }
    }

    /// Counts one part of a counted step as done.
    pub fn advance(&self, text: impl Display) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            bar.set_message(text.to_string());
        }
    }

    /// Ends the step and prints its one remaining line.
    pub fn finish(mut self, outcome: impl Display) {
        self.finished = true;
        self.close(&format!("{}: {outcome} ({:.1} s)", self.title, self.started.elapsed().as_secs_f64()));
    }

    fn close(&mut self, line: &str) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        eprintln!("{line}");
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.finished {
            let line = format!("{}: not finished", self.title);
            self.close(&line);
        }
    }
}
