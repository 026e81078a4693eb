//! Comparisons: what figures are made of the values that trials measured.

use crate::report::{Figure, Goals};
use crate::store::{Measured, Value};

/// A quotient of counts; these are far below what a float holds exactly.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
#[must_use]
pub fn ratio(value: u64, of: u64) -> f64 {
    value as f64 / of as f64
}

/// A way from values to figures.
#[derive(Clone, Debug)]
pub enum Comparison {
    /// All values of a trial, under their own names.
    Values {
        /// The trial.
        trial: String,
    },
    /// Values of a trial as the peer's of the figures of the same name that stand before it.
    Peer {
        /// The trial.
        trial: String,
    },
    /// Some values of a trial, under names of their own.
    Parts {
        /// The trial.
        trial: String,
        /// Names of figures and values.
        parts: Vec<(String, String)>,
    },
    /// A value in one trial over the same in another.
    Ratio {
        /// The figure.
        figure: String,
        /// The value.
        value: String,
        /// The trial.
        of: String,
        /// The other.
        over: String,
        /// A trial whose ratio stands beside it as the peer's.
        peer: Option<String>,
    },
    /// What each one more costs: a value's growth from a trial of few to one of many.
    Each {
        /// The figure.
        figure: String,
        /// The value.
        value: String,
        /// The trial of few, and how many.
        few: (String, f64),
        /// The trial of many, and how many.
        many: (String, f64),
    },
    /// The sum of figures that stand before it.
    Sum {
        /// The figure.
        figure: String,
        /// Those that are added up.
        among: Vec<String>,
    },
    /// The geometric mean of figures that stand before it: of ratios.
    Mean {
        /// The figure.
        figure: String,
        /// Those that it is the mean of.
        among: Vec<String>,
    },
    /// The largest of figures that stand before it, beside the largest of their peers.
    Worst {
        /// The figure.
        figure: String,
        /// Those that it may be.
        among: Vec<String>,
    },
}

/// What was measured: trials by name, the repetitions of each.
#[derive(Debug, Default)]
pub struct Results(Vec<(String, Vec<Measured>)>);

impl Results {
    /// Adds a repetition.
    pub fn add(&mut self, trial: &str, measured: Measured) {
        match self.0.iter_mut().find(|(name, _)| name == trial) {
            Some((_, repetitions)) => repetitions.push(measured),
            None => self.0.push((trial.to_owned(), vec![measured])),
        }
    }

    /// The repetitions of a trial.
    #[must_use]
    pub fn of(&self, trial: &str) -> &[Measured] {
        self.0.iter().find(|(name, _)| name == trial).map_or(&[], |(_, repetitions)| repetitions)
    }

    /// All that was measured, in order.
    pub fn all(&self) -> impl Iterator<Item = &Measured> {
        self.0.iter().flat_map(|(_, repetitions)| repetitions)
    }

    /// A value in every repetition; the error says why there is none.
    fn values(&self, trial: &str, value: &str) -> Result<Vec<f64>, String> {
        let repetitions = self.of(trial);
        if repetitions.is_empty() {
            return Err(format!("{trial} has not been measured"));
        }
        repetitions.iter().map(|measured| measured.number(value).map_err(|why| format!("{trial}: {why}"))).collect()
    }

    /// The median of a value over the repetitions.
    ///
    /// # Errors
    /// Why there is none.
    pub fn median(&self, trial: &str, value: &str) -> Result<f64, String> {
        Ok(median(&mut self.values(trial, value)?))
    }
}

/// The figures that comparisons make, those with a goal first, in the order of the goals.
#[must_use]
pub fn figures(comparisons: &[Comparison], results: &Results, goals: Goals<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for comparison in comparisons {
        if let Comparison::Peer { trial } = comparison {
            put_beside(&mut figures, trial, results);
        }
        let found = compare(comparison, results, goals, &figures);
        figures.extend(found);
    }
    figures.sort_by_key(|figure| goals.place(&figure.id));
    figures
}

/// Without a value of the peer, what was measured apart stands there.
fn put_beside(figures: &mut [Figure], peer: &str, results: &Results) {
    for figure in figures {
        if let Ok(value) = results.median(peer, &figure.id) {
            figure.peer = Some(value);
            figure.peer_in_this_run = true;
        }
    }
}

fn compare(comparison: &Comparison, results: &Results, goals: Goals<'_>, before: &[Figure]) -> Vec<Figure> {
    match comparison {
        Comparison::Values { trial } => {
            let Some(first) = results.of(trial).first() else { return Vec::new() };
            first.values.iter().map(|value| repeated(results, trial, value, &value.name, goals)).collect()
        }
        Comparison::Peer { .. } => Vec::new(),
        Comparison::Parts { trial, parts } => {
            let Some(first) = results.of(trial).first() else { return Vec::new() };
            let part = |(figure, name): &(String, String)| match first.value(name) {
                Some(value) => repeated(results, trial, value, figure, goals),
                None => goals.missing(figure, format!("{trial} has no {name}")),
            };
            parts.iter().map(part).collect()
        }
        Comparison::Ratio { figure, value, of, over, peer } => {
            let mut ratio = match ratios(results, value, of, over) {
                Ok(ratios) => spread(goals.figure(figure, 0.0, "ratio", 1), ratios),
                Err(why) => return vec![goals.missing(figure, why)],
            };
            // Without it, what was measured apart stands there.
            if let Some(Ok(mut peer)) = peer.as_ref().map(|peer| ratios(results, value, peer, over)) {
                ratio.peer = Some(median(&mut peer));
                ratio.peer_in_this_run = true;
            }
            vec![ratio]
        }
        Comparison::Each { figure, value, few, many } => vec![
            growth(results, value, few, many)
                .map_or_else(|why| goals.missing(figure, why), |growth| goals.figure(figure, growth, "", 1)),
        ],
        Comparison::Sum { figure, among } => {
            let parts = before.iter().filter(|figure| among.contains(&figure.id));
            let values: Vec<_> = parts.clone().filter_map(|part| part.value).collect();
            if values.len() < among.len() {
                return vec![goals.missing(figure, "some have not been measured")];
            }
            let remarks: Vec<_> = parts.map(|part| part.remark.as_str()).filter(|remark| !remark.is_empty()).collect();
            vec![goals.figure(figure, values.iter().sum(), "", 1).remarked(&remarks.join("; "))]
        }
        Comparison::Mean { figure, among } => {
            let parts = before.iter().filter(|figure| among.contains(&figure.id));
            let values: Vec<_> = parts.filter_map(|part| part.value).collect();
            if values.len() < among.len() || values.is_empty() {
                return vec![goals.missing(figure, "some have not been measured")];
            }
            vec![goals.figure(figure, geometric_mean(&values), "ratio", 1)]
        }
        Comparison::Worst { figure, among } => {
            let candidates = before.iter().filter(|figure| among.contains(&figure.id));
            let Some(worst) =
                candidates.max_by(|a, b| a.value.partial_cmp(&b.value).unwrap_or(std::cmp::Ordering::Equal))
            else {
                return vec![goals.missing(figure, "nothing to choose among")];
            };
            let Some(value) = worst.value else { return vec![goals.missing(figure, worst.note.clone())] };
            let mut found = goals.figure(figure, value, &worst.unit, worst.samples);
            found.runs = worst.runs;
            found.spread = worst.spread;
            // The peer's worst may be another one.
            let peers = before.iter().filter(|figure| among.contains(&figure.id) && figure.peer_in_this_run);
            if let Some(peer) = peers.filter_map(|figure| figure.peer).max_by(f64::total_cmp) {
                found.peer = Some(peer);
                found.peer_in_this_run = true;
            }
            found.note = format!("{}: {}", found.note, worst.id);
            found.remark = format!("`{}`.", worst.id);
            vec![found]
        }
    }
}

/// The mean of ratios, of which there are some.
#[expect(clippy::cast_precision_loss, reason = "there are a few")]
fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

fn growth(results: &Results, value: &str, few: &(String, f64), many: &(String, f64)) -> Result<f64, String> {
    let more = many.1 - few.1;
    if more <= 0.0 {
        return Err(format!("{} has no more than {}", many.0, few.0));
    }
    Ok((results.median(&many.0, value)? - results.median(&few.0, value)?) / more)
}

/// A value with its spread over all repetitions, as a figure.
fn repeated(results: &Results, trial: &str, value: &Value, figure: &str, goals: Goals<'_>) -> Figure {
    match results.values(trial, &value.name) {
        Ok(numbers) => {
            let figure = goals.figure(figure, 0.0, &value.unit, value.samples).remarked(&value.note);
            spread(figure, numbers)
        }
        Err(why) => goals.missing(figure, if value.note.is_empty() { &why } else { &value.note }),
    }
}

/// Repetition by repetition where both have the same number of them, as runs of one seed belong together; otherwise all
/// over the median.
fn ratios(results: &Results, value: &str, of: &str, over: &str) -> Result<Vec<f64>, String> {
    let (of_values, mut over_values) = (results.values(of, value)?, results.values(over, value)?);
    if over_values.iter().any(|value| *value <= 0.0) {
        return Err(format!("{over}: {value} is 0"));
    }
    if of_values.len() != over_values.len() {
        let middle = median(&mut over_values);
        return Ok(of_values.iter().map(|value| value / middle).collect());
    }
    Ok(of_values.iter().zip(&over_values).map(|(of, over)| of / over).collect())
}

/// The median as the value; the extremes as the spread, where there is one.
fn spread(mut figure: Figure, mut numbers: Vec<f64>) -> Figure {
    figure.value = Some(median(&mut numbers));
    figure.runs = u64::try_from(numbers.len()).unwrap_or(u64::MAX);
    // Sorted by now.
    if let (Some(least), Some(most), true) = (numbers.first(), numbers.last(), numbers.len() > 1) {
        figure.spread = Some([*least, *most]);
    }
    figure
}

/// Sorts, and gives the middle one or the mean of the two middle ones; 0 of nothing.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.get(middle), middle.checked_sub(1).and_then(|below| numbers.get(below))) {
        (Some(upper), Some(lower)) if numbers.len().is_multiple_of(2) => f64::midpoint(*lower, *upper),
        (Some(value), _) => *value,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_of_ratios_is_geometric() {
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-12);
        assert!((geometric_mean(&[0.25, 1.0]) - 0.5).abs() < 1e-12);
    }
    use crate::report::{AtMost, Goal};

    const GOALS: &[Goal] = &[
        Goal::new("slow_ratio", "ratio", AtMost(1.05), "slow over bare"),
        Goal::new("worst", "ratio", AtMost(1.5), "the worst"),
    ];

    fn measured(values: &[(&str, f64)]) -> Measured {
        let values = values.iter().map(|(name, value)| Value::new(name, *value, "ns", 1)).collect();
        Measured { values, ..Measured::default() }
    }

    fn results() -> Results {
        let mut results = Results::default();
        for (slow, bare) in [(110.0, 100.0), (104.0, 100.0), (121.0, 110.0)] {
            results.add("slow", measured(&[("a.time", slow), ("b.time", 3.0)]));
            results.add("bare", measured(&[("a.time", bare), ("b.time", 2.0), ("zero", 0.0)]));
            results.add("peer", measured(&[("a.time", 2.0 * bare)]));
        }
        results
    }

    fn ratio(figure: &str, value: &str, of: &str) -> Comparison {
        let peer = Some("peer".to_owned());
        Comparison::Ratio { figure: figure.into(), value: value.into(), of: of.into(), over: "bare".into(), peer }
    }

    #[test]
    fn ratios_are_taken_seed_by_seed_with_their_spread_and_peer() {
        let figures = figures(&[ratio("slow_ratio", "a.time", "slow")], &results(), Goals(GOALS));
        let figure = &figures[0];
        assert!((figure.value.expect("measured") - 1.1).abs() < 1e-9);
        let [least, most] = figure.spread.expect("three seeds");
        assert!((least - 1.04).abs() < 1e-9 && (most - 1.1).abs() < 1e-9);
        assert_eq!(figure.runs, 3);
        assert_eq!((figure.peer, figure.peer_in_this_run, figure.is_reached()), (Some(2.0), true, Some(false)));
    }

    #[test]
    fn a_peer_stands_beside_figures_of_the_same_name() {
        let comparisons = [Comparison::Values { trial: "slow".into() }, Comparison::Peer { trial: "peer".into() }];
        let figures = figures(&comparisons, &results(), Goals(GOALS));
        let peer = |id: &str| figures.iter().find(|figure| figure.id == id).map(|figure| figure.peer);
        // The median of twice 100, 100 and 110; of the other the peer has nothing.
        assert_eq!((peer("a.time"), peer("b.time")), (Some(Some(200.0)), Some(None)));
        assert!(figures.iter().all(|figure| figure.peer_in_this_run == (figure.id == "a.time")));
    }

    #[test]
    fn what_cannot_be_compared_says_why() {
        let all = [
            ratio("slow_ratio", "c.time", "slow"),
            ratio("slow_ratio", "a.time", "absent"),
            ratio("slow_ratio", "zero", "bare"),
            Comparison::Worst { figure: "worst".into(), among: Vec::new() },
        ];
        for (comparison, why) in
            all.into_iter().zip(["has no c.time", "absent has not been measured", "is 0", "nothing"])
        {
            let figures = figures(&[comparison], &results(), Goals(GOALS));
            assert_eq!(figures[0].value, None);
            assert!(figures[0].note.contains(why), "{} does not say {why}", figures[0].note);
        }
    }

    #[test]
    fn the_worst_is_named_and_goals_come_first() {
        let comparisons = [
            Comparison::Values { trial: "peer".into() },
            ratio("a", "a.time", "slow"),
            ratio("b", "b.time", "slow"),
            Comparison::Worst { figure: "worst".into(), among: vec!["a".into(), "b".into()] },
        ];
        let figures = figures(&comparisons, &results(), Goals(GOALS));
        assert_eq!((figures[0].id.as_str(), figures[0].value), ("worst", Some(1.5)));
        assert!(figures[0].note.ends_with(": b"));
        assert_eq!((figures[0].peer, figures[0].peer_in_this_run), (Some(2.0), true));
        assert_eq!(figures[0].is_reached(), Some(true));
        assert_eq!(figures[1].id, "a.time");
    }

    #[test]
    fn parts_have_the_goals_of_their_new_names() {
        let parts = vec![("slow_ratio".to_owned(), "b.time".to_owned()), ("rest".to_owned(), "absent".to_owned())];
        let figures = figures(&[Comparison::Parts { trial: "bare".into(), parts }], &results(), Goals(GOALS));
        assert_eq!(
            (figures[0].id.as_str(), figures[0].value, figures[0].target),
            ("slow_ratio", Some(2.0), Some(1.05))
        );
        assert!(figures[1].note.contains("bare has no absent"));
    }

    #[test]
    fn growth_is_per_one_more() {
        let each = |few: (&str, f64), many: (&str, f64)| {
            let owned = |(trial, count): (&str, f64)| (trial.to_owned(), count);
            let (figure, value) = ("worst".to_owned(), "a.time".to_owned());
            let comparison = Comparison::Each { figure, value, few: owned(few), many: owned(many) };
            figures(&[comparison], &results(), Goals(GOALS)).remove(0)
        };
        assert_eq!(each(("bare", 1.0), ("peer", 5.0)).value, Some(25.0));
        assert!(each(("bare", 1.0), ("peer", 1.0)).note.contains("no more than bare"));
        assert!(each(("bare", 1.0), ("absent", 2.0)).note.contains("absent has not been measured"));
    }

    #[test]
    fn medians() {
        assert_eq!((median(&mut []), median(&mut [3.0]), median(&mut [4.0, 1.0])), (0.0, 3.0, 2.5));
        assert!((median(&mut [9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
