//! Progress: a line per VM that changes in place on a terminal, or a printed line per stage.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::harmless;

/// Time between two pictures of a spinner.
const SPIN: Duration = Duration::from_millis(120);

/// Lines of progress.
#[derive(Debug)]
pub struct Progress {
    bars: MultiProgress,
    is_terminal: bool,
}

/// The progress of one VM, or of the machine.
#[derive(Debug)]
pub struct ProgressLine {
    bar: ProgressBar,
    name: String,
    is_terminal: bool,
}

impl Progress {
    pub fn new() -> Self {
        let is_terminal = stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), is_terminal }
    }

    /// Another line.
    pub fn line(&self, name: &str) -> ProgressLine {
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:12} {elapsed:>4}  {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(SPIN);
        ProgressLine { bar, name: name.to_owned(), is_terminal: self.is_terminal }
    }

    /// Takes the lines away: the final table says it all.
    pub fn clear(&self) {
        // A terminal that cannot be cleared keeps them.
        let _ = self.bars.clear();
    }
}

impl ProgressLine {
    /// A new stage.
    pub fn stage(&self, text: &str) {
        self.bar.set_message(text.to_owned());
        self.print(text);
    }

    /// Something within the stage: only for those who watch.
    pub fn detail(&self, text: &str) {
        self.bar.set_message(harmless(text));
    }

    pub fn done(&self, text: &str) {
        self.bar.finish_with_message(text.to_owned());
        self.print(text);
    }

    pub fn failed(&self, text: &str) {
        let text = format!("FAILED: {}", harmless(text));
        self.bar.finish_with_message(text.clone());
        self.print(&text);
    }

    fn print(&self, text: &str) {
        if !self.is_terminal {
            // Progress that nobody reads is no reason to fail.
            let _ = writeln!(stderr(), "{}: {text}", self.name);
        }
    }
}
