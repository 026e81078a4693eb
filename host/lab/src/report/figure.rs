//! Figures: what is measured, what it must reach, what the papers and others reach.

use serde::Serialize;

/// A figure that an experiment is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Its id.
    pub id: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// What must be reached.
    pub target: Target,
    /// Whether the peer's figure must be undercut as well.
    pub below_peer: bool,
    /// What Linux KVM reaches, where that was measured apart from this program (docs/claims.md says how). A peer that is
    /// measured in the same run takes its place.
    pub peer: Option<f64>,
    /// What a paper reports.
    pub paper: Option<Paper>,
    /// What it is, for people.
    pub meaning: &'static str,
}

/// What must be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Nothing; only the peer's or the paper's figure stands beside it.
    Compare,
}

pub use Target::AtMost;

/// A figure in a paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paper {
    /// The figure.
    pub value: f64,
    /// Where.
    pub place: &'static str,
}

impl Goal {
    /// A goal without paper and peer.
    #[must_use]
    pub const fn new(id: &'static str, unit: &'static str, target: Target, meaning: &'static str) -> Self {
        Self { id, unit, target, below_peer: false, peer: None, paper: None, meaning }
    }

    /// With a peer that was measured apart.
    #[must_use]
    pub const fn peer(self, value: f64) -> Self {
        Self { peer: Some(value), ..self }
    }

    /// The peer's figure must be undercut.
    #[must_use]
    pub const fn below_peer(self) -> Self {
        Self { below_peer: true, ..self }
    }

    /// With a paper's figure.
    #[must_use]
    pub const fn paper(self, value: f64, place: &'static str) -> Self {
        Self { paper: Some(Paper { value, place }), ..self }
    }

    const fn number(&self) -> Option<f64> {
        match self.target {
            Target::AtMost(value) | Target::AtLeast(value) => Some(value),
            Target::Compare => None,
        }
    }
}

/// The goals of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Goals<'a>(pub &'a [Goal]);

impl Goals<'_> {
    /// A figure with what its goal says; a figure without goal is a part of others, for the breakdown.
    #[must_use]
    pub fn figure(self, id: &str, value: f64, unit: &str, samples: u64) -> Figure {
        let goal = self.0.iter().find(|goal| goal.id == id);
        Figure {
            id: id.to_owned(),
            value: Some(value),
            unit: goal.map_or(unit, |goal| goal.unit).to_owned(),
            target: goal.and_then(Goal::number),
            peer: goal.and_then(|goal| goal.peer),
            samples,
            spread: None,
            peer_in_this_run: false,
            paper: goal.and_then(|goal| goal.paper).map(|paper| paper.value),
            runs: 1,
            note: goal.map_or("", |goal| goal.meaning).to_owned(),
            remark: String::new(),
            goal: goal.copied(),
        }
    }

    /// A figure that could not be measured.
    #[must_use]
    pub fn missing(self, id: &str, why: impl AsRef<str>) -> Figure {
        Figure { value: None, note: first_line(why.as_ref()), ..self.figure(id, 0.0, "", 0) }
    }

    /// Whether there is one for this figure.
    #[must_use]
    pub fn has(self, id: &str) -> bool {
        self.0.iter().any(|goal| goal.id == id)
    }

    /// Where a figure stands in the list; parts of the breakdown go last.
    #[must_use]
    pub fn place(self, id: &str) -> usize {
        self.0.iter().position(|goal| goal.id == id).unwrap_or(usize::MAX)
    }
}

/// One figure of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its id.
    pub id: String,
    /// Its value, the median over seeds; `None` if it could not be measured, see `note`.
    pub value: Option<f64>,
    /// What it counts.
    pub unit: String,
    /// What it must reach, if there is a target.
    pub target: Option<f64>,
    /// What Linux KVM reaches, if measured.
    pub peer: Option<f64>,
    /// How many operations the value is the mean of.
    pub samples: u64,
    /// The least and the most over seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// Whether the peer was measured in this run, on the same machine; otherwise apart from this program.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub peer_in_this_run: bool,
    /// What the paper reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// How many runs the value is the median of, and the spread the extremes.
    #[serde(skip)]
    pub runs: u64,
    /// Why there is no value, or what to know about it. Only for people.
    #[serde(skip)]
    pub note: String,
    /// What this very measurement says beside the number, as what the longest was. Part of the note.
    #[serde(skip)]
    pub remark: String,
    /// What it is to reach. The JSON has the numbers.
    #[serde(skip)]
    pub goal: Option<Goal>,
}

impl Figure {
    /// With a remark, which goes behind its note.
    #[must_use]
    pub fn remarked(mut self, remark: &str) -> Self {
        if !remark.is_empty() {
            self.note = if self.note.is_empty() { remark.to_owned() } else { format!("{}; {remark}", self.note) };
        }
        Self { remark: remark.to_owned(), ..self }
    }

    /// Whether it reaches its goal; `None` without value or without target, or where it is to undercut a peer that has no
    /// figure: nobody knows.
    #[must_use]
    pub fn is_reached(&self) -> Option<bool> {
        let (value, goal) = (self.value?, self.goal?);
        let within = match goal.target {
            Target::AtMost(most) => value <= most,
            Target::AtLeast(least) => value >= least,
            Target::Compare if goal.below_peer => true,
            Target::Compare => return None,
        };
        if !within || !goal.below_peer {
            return Some(within);
        }
        Some(value < self.peer?)
    }
}

/// Enough for a table: the rest of an error is logs.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOALS: Goals<'static> = Goals(&[
        Goal::new("most", "ratio", AtMost(1.04), ""),
        Goal::new("least", "x", Target::AtLeast(2.0), ""),
        Goal::new("peer", "ratio", AtMost(1.04), "").below_peer(),
        Goal::new("only_peer", "ratio", Target::Compare, "").below_peer(),
        Goal::new("free", "ns", Target::Compare, "").peer(3.0),
    ]);

    fn reached(id: &str, value: f64, peer: Option<f64>) -> Option<bool> {
        Figure { peer, ..GOALS.figure(id, value, "", 1) }.is_reached()
    }

    #[test]
    fn goals_are_met_on_their_own_side() {
        assert_eq!(reached("most", 1.04, None), Some(true));
        assert_eq!(reached("most", 1.041, None), Some(false));
        assert_eq!((reached("least", 2.0, None), reached("least", 1.9, None)), (Some(true), Some(false)));
        assert_eq!((reached("free", 9.0, Some(3.0)), reached("part", 9.0, None)), (None, None));
        assert_eq!(GOALS.missing("most", "why").is_reached(), None);
    }

    #[test]
    fn a_peer_must_be_known_and_undercut() {
        assert_eq!(reached("peer", 1.03, Some(1.035)), Some(true));
        assert_eq!(reached("peer", 1.03, Some(1.03)), Some(false));
        assert_eq!(reached("peer", 1.05, Some(1.2)), Some(false));
        assert_eq!((reached("peer", 1.03, None), reached("peer", 1.05, None)), (None, Some(false)));
        assert_eq!(
            (reached("only_peer", 5.0, Some(6.0)), reached("only_peer", 7.0, Some(6.0))),
            (Some(true), Some(false))
        );
    }

    #[test]
    fn only_the_first_line_of_an_error_is_noted() {
        assert_eq!(GOALS.missing("most", "it died\nlog\nlog").note, "it died");
    }
}
