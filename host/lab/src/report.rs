//! What an experiment gives: JSON for programs, a table for people.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::figure::Figure;

/// What an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The experiment.
    pub name: String,
    /// The machine that it ran on.
    pub machine: String,
    /// The commit that the monitor was built from, `-dirty` behind it if the tree was not as committed.
    pub commit: String,
    /// The figures, those with a target first in the order of the list.
    pub figures: Vec<Figure>,
}

impl Report {
    /// One object in JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The figure of this id.
    #[must_use]
    pub fn figure(&self, id: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.id == id)
    }
}

/// The table: figures with targets, then what they are made of.
impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}, commit {}", self.name, self.machine, self.commit)?;
        let (goals, parts): (Vec<_>, Vec<_>) = self.figures.iter().partition(|figure| figure.target.is_some());
        writeln!(f, "{:<20} {:>12} {:>10} {:>10}  {:<12}", "figure", "value", "target", "KVM*", "unit")?;
        for figure in goals {
            let mark = match figure.is_reached() {
                Some(true) => "reached",
                Some(false) => "MISSED",
                None => "not measured",
            };
            let (value, target, peer) = (number(figure.value), number(figure.target), number(figure.peer));
            writeln!(
                f,
                "{:<20} {value:>12} {target:>10} {peer:>10}  {:<12} {mark}: {}",
                figure.id, figure.unit, figure.note
            )?;
        }
        if !parts.is_empty() {
            writeln!(f, "breakdown")?;
        }
        for figure in parts {
            writeln!(
                f,
                "  {:<30} {:>14} {:<12} ({} samples) {}",
                figure.id,
                number(figure.value),
                figure.unit,
                figure.samples,
                figure.note
            )?;
        }
        writeln!(f, "* Linux 6.12 KVM on the same emulated machine, measured apart; see docs/claims.md")
    }
}

/// The commit in a monitor's version, as `0.1.0 (0123456789ab)` has it.
pub fn commit_of(version: &str) -> String {
    let commit = version.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    commit.unwrap_or("unknown").to_owned()
}

fn number(value: Option<f64>) -> String {
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

    fn report() -> Report {
        Report {
            name: "exits".into(),
            machine: "virt".into(),
            commit: commit_of("0.1.0 (0123456789ab)"),
            figures: vec![
                Figure::new("sbi_null", 131.0, "", 1_000),
                Figure::missing("blk_read_4k", "no disk"),
                Figure::new("mmio_store", 1_234_567.0, "instructions", 10),
            ],
        }
    }

    #[test]
    fn json_has_exactly_the_fields_promised() {
        let json: serde_json::Value = serde_json::from_str(&report().to_json()).expect("it is JSON");
        assert_eq!((&json["name"], &json["commit"]), (&"exits".into(), &"0123456789ab".into()));
        assert_eq!(commit_of("0.1.0"), "unknown");
        let first = json["figures"][0].as_object().expect("an object");
        let mut keys: Vec<_> = first.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["id", "peer", "samples", "target", "unit", "value"]);
        assert_eq!((&first["value"], &first["peer"]), (&131.0.into(), &1150.0.into()));
        assert!(json["figures"][1]["value"].is_null());
        assert!(json["figures"][2]["target"].is_null());
    }

    #[test]
    fn the_table_tells_what_is_reached() {
        let table = report().to_string();
        for part in ["reached: null SBI call", "not measured: no disk", "1,234,567", "breakdown"] {
            assert!(table.contains(part), "{part} is not in\n{table}");
        }
    }
}
