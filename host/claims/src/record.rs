//! A figure as it is stored in the tree.

use serde::{Deserialize, Serialize};

/// One file of records: figures that answer one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// The heading.
    pub title: String,
    /// Its place on the page.
    pub order: u32,
    /// The question that the figures answer, for a reader who knows no paper. Markdown.
    pub intro: String,
    /// The figures.
    pub records: Vec<Record>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name, as the experiment has it.
    pub id: String,
    /// What it says, in a sentence.
    pub says: String,
    /// The value; with several runs, their median.
    pub value: f64,
    /// Digits behind the point that mean something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub digits: usize,
    /// What it counts.
    pub unit: String,
    /// What it is to reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// What another system reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Comparand>,
    /// What a paper reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Comparand>,
    /// The least and the most over runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// How many runs the value and the spread are of, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u64>,
    /// The experiment of `mirrorball bench` that measures it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experiment: Option<String>,
    /// The size of the experiment: `quick` or `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The command that measures it again.
    pub command: String,
    /// The machine, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The commit that was measured, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The day: of the measurement, or (carried over) of the commit that first wrote the value down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Where the value comes from.
    pub state: State,
    /// What a reader has to know beside it, whoever measures it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What is to be known of this very measurement. The next one that is taken over replaces it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub seen: String,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A finished run stored it, `bench report --write` took it over.
    Measured,
    /// Somebody ran the command and read the value off; no result is stored.
    ByHand,
    /// It was measured before there were records, and stood in `docs/claims.md`.
    CarriedOver,
}

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Target {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> f64 {
        match self {
            Self::AtMost(number) | Self::AtLeast(number) => number,
        }
    }
}

/// A value that stands beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparand {
    /// The value.
    pub value: f64,
    /// Whose: a system, or a paper of the bibliography.
    pub of: String,
    /// Whether it was measured apart from this run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
}

impl Record {
    /// Whether it reaches its target; `None` without one.
    #[must_use]
    pub fn is_reached(&self) -> Option<bool> {
        Some(match self.target? {
            Target::AtMost(most) => self.value <= most,
            Target::AtLeast(least) => self.value >= least,
        })
    }

    /// The value, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        self.show(self.value)
    }

    /// A time in words; nothing of what is no time.
    #[must_use]
    pub fn time(&self) -> Option<String> {
        let seconds = match self.unit.as_str() {
            "s" => self.value,
            "min" => self.value * 60.0,
            _ => return None,
        };
        let whole = seconds.round();
        let (minutes, rest) = ((whole / 60.0).floor(), whole % 60.0);
        Some(match (minutes > 0.0, rest > 0.0) {
            (false, _) => format!("{rest} s"),
            (true, false) => format!("{minutes} min"),
            (true, true) => format!("{minutes} min {rest} s"),
        })
    }

    /// Another's value beside this one, for people: no more digits than this one has, and no zeroes that nobody measured.
    #[must_use]
    pub fn beside(&self, value: f64) -> String {
        trimmed(self.show(value))
    }

    /// A value like this one's, for people: thousands apart, as many digits as mean something.
    #[must_use]
    pub fn show(&self, value: f64) -> String {
        let text = format!("{:.*}", self.digits, value.abs());
        let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
        let mut grouped = if value < 0.0 { "-".to_owned() } else { String::new() };
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        rest.map_or(grouped.clone(), |rest| format!("{grouped}.{rest}"))
    }
}

/// Without zeroes at the end that say nothing.
fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(digits: &usize) -> bool {
    *digits == 0
}
