//! Charts as experiments declare them.

use super::{Chart, Drawing, Series};
use crate::compare::Results;
use crate::report::Figure;

/// A chart to be drawn of results.
#[derive(Clone, Debug)]
pub struct ChartPlan {
    /// Its name in file names.
    pub id: &'static str,
    /// What it shows.
    pub title: String,
    /// How.
    pub content: Content,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// Figures with target, peer and paper beside each.
    Figures {
        /// The figures.
        figures: Vec<String>,
        /// What they count.
        y: &'static str,
        /// Whether each step up is ten times as much.
        logarithmic: bool,
    },
    /// Where time or instructions go: bars of parts, in per cent of the base of each.
    Split {
        /// The bars.
        bars: Vec<Bar>,
        /// The parts from below: what they are called, and their values' names behind the phase's.
        parts: Vec<(&'static str, &'static str)>,
        /// What the bars' height is.
        y: &'static str,
    },
    /// How a value grows with what is varied.
    Curve {
        /// What is varied.
        x: &'static str,
        /// What is measured.
        y: &'static str,
        /// Whether each step up is ten times as much.
        logarithmic: bool,
        /// The lines.
        lines: Vec<Line>,
    },
}

/// A line through the medians of a value.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// The value.
    pub value: String,
    /// The trials, each with what is varied.
    pub trials: Vec<(f64, String)>,
}

/// A bar of parts.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// The phase.
    pub phase: &'static str,
    /// The trial.
    pub trial: String,
    /// The trial whose total is 100 %.
    pub base: String,
}

impl ChartPlan {
    /// Figures with target, peer and paper beside each.
    #[must_use]
    pub fn figures(id: &'static str, title: &str, figures: &[&str], y: &'static str, logarithmic: bool) -> Self {
        let figures = figures.iter().map(ToString::to_string).collect();
        Self { id, title: title.to_owned(), content: Content::Figures { figures, y, logarithmic } }
    }

    /// Where time or instructions go.
    #[must_use]
    pub fn split(
        id: &'static str,
        title: &str,
        bars: Vec<Bar>,
        parts: &[(&'static str, &'static str)],
        y: &'static str,
    ) -> Self {
        Self { id, title: title.to_owned(), content: Content::Split { bars, parts: parts.to_vec(), y } }
    }

    /// The chart with its data. What was not measured is left out.
    #[must_use]
    pub fn fill(&self, results: &Results, figures: &[Figure]) -> Chart {
        let drawing = match &self.content {
            Content::Figures { figures: wanted, y, logarithmic } => grouped(wanted, figures, y, *logarithmic),
            Content::Split { bars, parts, y } => stacked(bars, parts, y, results),
            Content::Curve { x, y, logarithmic, lines } => {
                let point = |line: &Line, x: f64, trial: &str| Some((x, results.median(trial, &line.value).ok()?));
                let points = |line: &Line| line.trials.iter().filter_map(|(x, trial)| point(line, *x, trial)).collect();
                let series = |line: &Line| Series { name: line.label.clone(), points: points(line) };
                let series = lines.iter().map(series).collect();
                Drawing::Lines { x: (*x).to_owned(), y: (*y).to_owned(), logarithmic: *logarithmic, series }
            }
        };
        Chart { id: self.id.to_owned(), title: self.title.clone(), drawing }
    }
}

fn grouped(wanted: &[String], figures: &[Figure], y: &str, logarithmic: bool) -> Drawing {
    let found: Vec<_> = wanted.iter().filter_map(|id| figures.iter().find(|figure| figure.id == *id)).collect();
    let found: Vec<_> = found.into_iter().filter(|figure| figure.value.is_some()).collect();
    let series = |name: &str, of: fn(&Figure) -> Option<f64>| {
        (name.to_owned(), found.iter().map(|figure| of(figure)).collect::<Vec<_>>())
    };
    let mut all = vec![
        series("Mirrorball", |figure| figure.value),
        series("target", |figure| figure.target),
        series("KVM", |figure| figure.peer),
        series("paper", |figure| figure.paper),
    ];
    all.retain(|(_, values)| values.iter().any(Option::is_some));
    let groups = found.iter().map(|figure| figure.id.clone()).collect();
    Drawing::Groups { y: y.to_owned(), logarithmic, groups, series: all }
}

fn stacked(bars: &[Bar], parts: &[(&str, &str)], y: &str, results: &Results) -> Drawing {
    let total =
        |trial: &str, phase: &str| results.median(trial, &format!("{phase}.total")).ok().filter(|total| *total > 0.0);
    let there = |bar: &&Bar| total(&bar.trial, bar.phase).is_some() && total(&bar.base, bar.phase).is_some();
    let bars: Vec<_> = bars.iter().filter(there).collect();
    let height = |bar: &Bar, part: &str| {
        let value = results.median(&bar.trial, &format!("{}.{part}", bar.phase)).unwrap_or(0.0);
        100.0 * value / total(&bar.base, bar.phase).unwrap_or(1.0)
    };
    let part = |(label, part): &(&str, &str)| {
        ((*label).to_owned(), bars.iter().map(|bar| height(bar, part)).collect::<Vec<_>>())
    };
    let mut parts: Vec<_> = parts.iter().map(part).collect();
    parts.retain(|(_, heights)| heights.iter().any(|height| *height > 0.0));
    Drawing::Stacks { y: y.to_owned(), bars: bars.iter().map(|bar| bar.label.clone()).collect(), parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Measured, Value};

    fn results() -> Results {
        let mut results = Results::default();
        for (trial, values) in [("bare", [100.0, 60.0]), ("vm", [120.0, 90.0])] {
            let [total, user] = values;
            let values = vec![Value::new("a.total", total, "ns", 1), Value::new("a.user", user, "ns", 1)];
            results.add(trial, Measured { values, ..Measured::default() });
        }
        results
    }

    fn bar(trial: &str) -> Bar {
        Bar { label: trial.into(), phase: "a", trial: trial.into(), base: "bare".into() }
    }

    #[test]
    fn splits_are_in_per_cent_of_their_base() {
        let bars = vec![bar("bare"), bar("vm"), bar("never run")];
        let chart = ChartPlan::split("s", "", bars, &[("user", "user"), ("idle", "idle")], "%").fill(&results(), &[]);
        let Drawing::Stacks { bars, parts, .. } = chart.drawing else { panic!("no stacks") };
        assert_eq!(bars, ["bare", "vm"]);
        assert_eq!(parts, [("user".to_owned(), vec![60.0, 90.0])]);
    }

    #[test]
    fn curves_leave_out_what_was_not_measured() {
        let trials = vec![(1.0, "bare".to_owned()), (2.0, "vm".to_owned()), (4.0, "never run".to_owned())];
        let lines = vec![Line { label: "time".into(), value: "a.total".into(), trials }];
        let content = Content::Curve { x: "n", y: "ns", logarithmic: false, lines };
        let chart = ChartPlan { id: "c", title: String::new(), content }.fill(&results(), &[]);
        let Drawing::Lines { series, .. } = chart.drawing else { panic!("no lines") };
        assert_eq!(series[0].points, [(1.0, 100.0), (2.0, 120.0)]);
    }
}
