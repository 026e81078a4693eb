//! The page of claims.

use std::fmt::Write as _;

use crate::record::{Area, Comparand, Record, State, Target};

const HEAD: &str = "# Claims

<!-- Made from docs/results/*.json by `./x mirrorball bench report --write`; `./x check` refuses any other content. -->

Each line is one figure with the command that measures it again. [How to read the figures](measuring.md) explains the machine,
the systems that stand beside Mirrorball, and each column. The [notebook](notebook/README.md) tells what we expected, what we
saw, and which mistakes we found. Papers have the names that the [bibliography](bibliography.md) gives them.

`carried over` marks a figure that was measured before results were stored in the tree. Its date is the day on which the value
was written down; the commit that was measured is given only where it is known. `by hand` marks a value that was read off a run of the command.
";

const COLUMNS: &str = "
| figure | value | target | peer | paper | spread | command | commit | date | state |
| --- | ---: | ---: | ---: | ---: | --- | --- | --- | --- | --- |
";

/// The page of all areas.
pub fn page<'a>(areas: impl Iterator<Item = &'a Area>) -> String {
    let mut text = HEAD.to_owned();
    for area in areas {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {}\n\n{}\n{COLUMNS}", area.title, area.intro.trim_end());
        area.records.iter().for_each(|record| row(&mut text, record));
    }
    text
}

fn row(text: &mut String, record: &Record) {
    let notes = [&record.note, &record.seen].into_iter().filter(|note| !note.is_empty());
    let note: String = notes.map(|note| format!(" {note}")).collect();
    let cells = [
        format!("`{}`: {}{note}", record.id, record.says),
        format!("{} {}", record.shown(), record.unit).trim_end().to_owned(),
        record.target.map_or_else(String::new, target),
        record.peer.as_ref().map_or_else(String::new, |peer| comparand(record, peer)),
        record.paper.as_ref().map_or_else(String::new, |paper| comparand(record, paper)),
        spread(record),
        format!("`{}`", record.command),
        record.commit.clone().unwrap_or_default(),
        record.date.clone().unwrap_or_default(),
        state(record),
    ];
    let _ = writeln!(text, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
}

fn target(target: Target) -> String {
    let number = target.number();
    match target {
        Target::AtMost(_) => format!("<= {number}"),
        Target::AtLeast(_) => format!(">= {number}"),
    }
}

fn comparand(record: &Record, other: &Comparand) -> String {
    let apart = if other.apart { ", measured apart" } else { "" };
    format!("{} ({}{apart})", record.beside(other.value), other.of)
}

fn spread(record: &Record) -> String {
    let runs = record.runs.map(|runs| if runs == 1 { "one run".to_owned() } else { format!("{runs} runs") });
    let range = record.spread.map(|[least, most]| format!("{} to {}", record.beside(least), record.beside(most)));
    match (range, runs) {
        (Some(range), Some(runs)) => format!("{range}, {runs}"),
        (range, runs) => range.or(runs).unwrap_or_default(),
    }
}

fn state(record: &Record) -> String {
    let verdict = match record.is_reached() {
        Some(true) => "reached",
        Some(false) => "missed",
        None => "measured",
    };
    match record.state {
        State::Measured => verdict.to_owned(),
        State::ByHand => format!("{verdict}, by hand"),
        State::CarriedOver => format!("{verdict}, carried over"),
    }
}
