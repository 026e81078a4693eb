//! The experiments, each a file or folder of its own.

mod bootscale;
mod exits;
mod locality;
mod machine;
mod overhead;
mod pagecost;
mod scalability;
mod sharing;

use crate::plan::Experiment;

/// All experiments, in the order of `mirrorball bench list`.
pub const EXPERIMENTS: &[Experiment] = &[
    machine::EXPERIMENT,
    exits::EXPERIMENT,
    locality::EXPERIMENT,
    overhead::EXPERIMENT,
    bootscale::EXPERIMENT,
    pagecost::EXPERIMENT,
    scalability::EXPERIMENT,
    sharing::EXPERIMENT,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Comparison;
    use crate::plan::Size;

    #[test]
    fn plans_are_consistent() {
        for experiment in EXPERIMENTS {
            for size in [Size::Quick, Size::Full] {
                let plan = (experiment.plan)(size);
                let mut names: Vec<_> = plan.trials.iter().map(|trial| (trial.name.clone(), trial.seed)).collect();
                let is_file_name = |name: &str| {
                    name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) && !name.starts_with('.')
                };
                assert!(names.iter().all(|(name, _)| is_file_name(name)), "{names:?}");
                let known =
                    |trial: &String| assert!(names.iter().any(|(name, _)| name == trial), "{trial} is no trial");
                for comparison in &plan.comparisons {
                    match comparison {
                        Comparison::Values { trial } | Comparison::Peer { trial } | Comparison::Parts { trial, .. } => {
                            known(trial)
                        }
                        Comparison::Ratio { of, over, peer, .. } => {
                            [of, over].into_iter().chain(peer).for_each(known);
                        }
                        Comparison::Each { few, many, .. } => [&few.0, &many.0].into_iter().for_each(known),
                        Comparison::Worst { .. } => {}
                    }
                }
                let all = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), all, "{}: two trials of one name and seed", experiment.name);
            }
        }
    }
}
