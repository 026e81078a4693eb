//! What each VM was at, and when: the picture of time under the table.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::output::units;

/// Characters of the whole time.
const COLUMNS: usize = 64;

/// What a VM is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Until its guest agent answers.
    Boots,
    /// The command.
    Runs,
    /// Its cell is lost, and with it the VM.
    Lost,
}

/// A stretch of a VM's time.
#[derive(Clone, Debug, Serialize)]
pub struct Span {
    /// What it was at.
    pub phase: Phase,
    /// Seconds from the machine's start.
    pub from_s: f64,
    /// Seconds from the machine's start.
    pub to_s: f64,
}

/// The spans of one VM, the last of which is under way.
#[derive(Debug, Default)]
pub struct Timeline(Vec<Span>);

impl Timeline {
    /// The VM is at this from `now` on.
    pub fn enter(&mut self, phase: Phase, now: Duration) {
        self.end(now);
        let at_s = now.as_secs_f64();
        self.0.push(Span { phase, from_s: at_s, to_s: at_s });
    }

    /// It is at nothing any more.
    pub fn end(&mut self, now: Duration) {
        if let Some(last) = self.0.last_mut() {
            last.to_s = now.as_secs_f64();
        }
    }

    /// How long it took to boot, from the machine's start on, and how long the command took, the last time.
    pub fn latest(&self) -> (Duration, Duration) {
        let last = self.0.last().filter(|span| span.phase == Phase::Runs);
        last.map_or_else(Default::default, |span| {
            (Duration::from_secs_f64(span.from_s), Duration::from_secs_f64(span.to_s - span.from_s))
        })
    }

    /// All that it was at.
    pub fn into_spans(self) -> Vec<Span> {
        self.0
    }
}

impl Phase {
    const fn letter(self) -> char {
        match self {
            Self::Boots => '.',
            Self::Runs => '#',
            Self::Lost => 'x',
        }
    }
}

/// Draws VMs by time. `total` is the end of the picture, `marks` are moments with what happened then.
pub fn draw<'a>(vms: impl Iterator<Item = (&'a str, &'a [Span])>, total: Duration, marks: &[(f64, String)]) -> String {
    let total_s = total.as_secs_f64().max(f64::MIN_POSITIVE);
    let column = |at_s: f64| ((at_s / total_s * COLUMNS as f64) as usize).min(COLUMNS);
    let mut text = String::new();
    // Text that cannot be written to is no text.
    let _ = writeln!(text, "{:12} 0{:>width$}", "TIME", units::duration(total), width = COLUMNS - 1);
    for (name, spans) in vms {
        let mut bar = vec![' '; COLUMNS];
        let (lost, others): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.phase == Phase::Lost);
        for span in others.into_iter().chain(lost) {
            let (from, to) = (column(span.from_s), column(span.to_s));
            // What is short is seen, too.
            let to = to.max(from + 1).min(COLUMNS);
            bar.iter_mut().take(to).skip(from.min(COLUMNS - 1)).for_each(|place| *place = span.phase.letter());
        }
        let bar: String = bar.into_iter().collect();
        let _ = writeln!(text, "{name:12} {}", bar.trim_end());
    }
    for (at_s, what) in marks {
        let _ = writeln!(text, "{:12} {:>width$} {:.1} s  {what}", "", "^", at_s, width = column(*at_s) + 1);
    }
    let _ = writeln!(text, "{:12} . boots   # runs the command   x lost with its cell", "");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_each_other() {
        let mut line = Timeline::default();
        line.enter(Phase::Boots, Duration::from_secs(1));
        line.enter(Phase::Runs, Duration::from_secs(11));
        line.end(Duration::from_secs(20));
        let spans = line.into_spans();
        let times: Vec<_> = spans.iter().map(|span| (span.phase, span.from_s, span.to_s)).collect();
        assert_eq!(times, [(Phase::Boots, 1.0, 11.0), (Phase::Runs, 11.0, 20.0)]);
    }

    #[test]
    fn the_picture_reads_well() {
        let span = |phase, from_s, to_s| Span { phase, from_s, to_s };
        let one = [span(Phase::Boots, 0.0, 20.0), span(Phase::Runs, 20.0, 64.0)];
        let two = [
            span(Phase::Boots, 0.0, 22.0),
            span(Phase::Runs, 22.0, 40.0),
            span(Phase::Lost, 40.0, 40.2),
            span(Phase::Boots, 40.2, 100.0),
        ];
        let vms = [("debian-1", &one[..]), ("debian-2", &two[..])];
        let marks = [(40.0, "node-power 1".to_owned())];
        insta::assert_snapshot!(draw(vms.into_iter(), Duration::from_secs(100), &marks));
    }
}
