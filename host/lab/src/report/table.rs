//! A report as a table for people.

use std::fmt::{self, Display, Formatter};

use super::{Figure, Report, Target};

/// The table: figures with a goal, then what they are made of.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({}) on {}, commit {}", self.name, self.size.label(), self.machine, self.commit)?;
        let (goals, parts): (Vec<_>, Vec<_>) = self.figures.iter().partition(|figure| figure.goal.is_some());
        let has_paper = goals.iter().any(|figure| figure.paper.is_some());
        let paper = |text: &str| if has_paper { format!("{text:>8}") } else { String::new() };
        writeln!(
            f,
            "{:<20} {:>12} {:>10} {:>10}{}  {:<12}",
            "figure",
            "value",
            "target",
            "KVM",
            paper("paper"),
            "unit"
        )?;
        for figure in &goals {
            let (value, target, peer) = (number(figure.value), target(figure), peer(figure));
            writeln!(
                f,
                "{:<20} {value:>12} {target:>10} {peer:>10}{}  {:<12} {}: {}",
                figure.id,
                paper(&number(figure.paper)),
                figure.unit,
                verdict(figure),
                notes(figure)
            )?;
        }
        if !parts.is_empty() {
            writeln!(f, "breakdown")?;
        }
        for figure in parts {
            let (value, notes) = (number(figure.value), notes(figure));
            let line =
                format!("  {:<30} {value:>14} {:<12} ({} samples) {notes}", figure.id, figure.unit, figure.samples);
            writeln!(f, "{}", line.trim_end())?;
        }
        if goals.iter().any(|figure| figure.peer.is_some() && !figure.peer_in_this_run) {
            writeln!(f, "* Linux 6.12 KVM on the same emulated machine, measured apart; see docs/claims.md")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {}", failure.lines().next().unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Whether the figure is as wanted, in a word.
pub fn verdict(figure: &Figure) -> &'static str {
    match (figure.is_reached(), figure.value) {
        (Some(true), _) => "reached",
        (Some(false), _) => "MISSED",
        (None, None) => "not measured",
        (None, Some(_)) if figure.goal.is_some_and(|goal| goal.below_peer) => "no peer measured",
        (None, Some(_)) => "measured",
    }
}

/// The target with its side, where that is not the usual one.
pub fn target(figure: &Figure) -> String {
    match figure.goal.map(|goal| goal.target) {
        Some(Target::AtLeast(least)) => format!(">= {}", number(Some(least))),
        _ => number(figure.target),
    }
}

/// The peer's figure, with a star where it is from elsewhere.
pub fn peer(figure: &Figure) -> String {
    let star = if figure.peer.is_some() && !figure.peer_in_this_run { "*" } else { "" };
    format!("{}{star}", number(figure.peer))
}

/// Its note, spread, and where the paper's figure is from.
pub fn notes(figure: &Figure) -> String {
    let mut notes = figure.note.clone();
    if let Some([least, most]) = figure.spread {
        notes.push_str(&format!(" ({} to {} over seeds)", number(Some(least)), number(Some(most))));
    }
    if let Some(paper) = figure.goal.and_then(|goal| goal.paper) {
        notes.push_str(&format!(" [paper: {}]", paper.place));
    }
    notes
}

/// A number as people read it.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.fract() == 0.0 || value >= 1_000.0 => group(value.round()),
        Some(value) if value >= 20.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.4}"),
    }
}

/// Thousands apart.
fn group(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Size;
    use crate::report::{AtMost, Goal, Goals, commit_of};

    const GOALS: Goals<'static> = Goals(&[
        Goal::new("sbi_null", "instructions", AtMost(150.0), "null SBI call").peer(1_150.0),
        Goal::new("blk_read_4k", "instructions", AtMost(3_000.0), "read"),
        Goal::new("speed", "x", Target::AtLeast(2.0), "speed-up").paper(1.5, "Disco, Fig. 9"),
    ]);

    fn report() -> Report {
        let spread = Some([1.5, 2.5]);
        Report {
            name: "exits".into(),
            machine: "virt".into(),
            commit: commit_of("0.1.0 (0123456789ab)"),
            figures: vec![
                GOALS.figure("sbi_null", 131.0, "", 1_000),
                GOALS.missing("blk_read_4k", "no disk"),
                Figure { spread, ..GOALS.figure("speed", 1.9, "", 3) },
                GOALS.figure("mmio_store", 1_234_567.0, "instructions", 10),
            ],
            size: Size::Quick,
            failures: vec!["two-harts: it hung\nits log".to_owned()],
            measured_at: None,
            charts: Vec::new(),
        }
    }

    #[test]
    fn json_has_exactly_the_fields_promised() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).expect("it is JSON");
        assert_eq!(
            (&json["name"], &json["commit"], &json["size"]),
            (&"exits".into(), &"0123456789ab".into(), &"quick".into())
        );
        assert_eq!(commit_of("0.1.0"), "unknown");
        let keys = |figure: usize| {
            let object = json["figures"][figure].as_object().expect("an object");
            let mut keys: Vec<_> = object.keys().cloned().collect();
            keys.sort_unstable();
            keys
        };
        assert_eq!(keys(0), ["id", "peer", "samples", "target", "unit", "value"]);
        assert_eq!(keys(2), ["id", "paper", "peer", "samples", "spread", "target", "unit", "value"]);
        let first = &json["figures"][0];
        assert_eq!((&first["value"], &first["peer"]), (&131.0.into(), &1150.0.into()));
        assert!(json["figures"][1]["value"].is_null());
        assert!(json["figures"][3]["target"].is_null());
    }

    #[test]
    fn the_table_tells_what_is_reached() {
        let table = report().to_string();
        for part in [
            "reached: null SBI call",
            "not measured: no disk",
            "MISSED: speed-up (1.5000 to 2.5000 over seeds) [paper: Disco, Fig. 9]",
            ">= 2",
            "1,150*",
            "1,234,567",
            "breakdown",
            "measured apart",
            "failed: two-harts: it hung\n",
        ] {
            assert!(table.contains(part), "{part} is not in\n{table}");
        }
    }
}
