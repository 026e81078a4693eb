//! The experiments, each a file or folder of its own.

mod bootscale;
mod debian;
mod exits;
mod faults;
mod hostile;
mod locality;
mod machine;
mod odd;
mod overhead;
mod pagecost;
mod scalability;
mod sharing;
mod splash;
mod stretches;

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
    splash::EXPERIMENT,
    stretches::EXPERIMENT,
    odd::EXPERIMENT,
    faults::EXPERIMENT,
    hostile::EXPERIMENT,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Comparison;
    use crate::plan::Size;
    use crate::report::Target;

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
                        Comparison::Worst { .. } | Comparison::Sum { .. } | Comparison::Mean { .. } => {}
                    }
                }
                let all = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), all, "{}: two trials of one name and seed", experiment.name);
            }
        }
    }

    #[test]
    fn records_in_the_tree_are_of_goals_and_have_their_targets() {
        let claims = claims::Claims::find(std::path::Path::new(env!("CARGO_MANIFEST_DIR"))).expect("good records");
        let mut seen = 0;
        for record in claims.records() {
            // The demonstration is a command of its own.
            let Some(name) = record.experiment.as_ref().filter(|name| *name != "demo") else { continue };
            let experiment = crate::find(name).expect("an experiment");
            let goal = experiment.goals.iter().find(|goal| goal.id == record.id);
            let goal = goal.unwrap_or_else(|| panic!("{} has no goal in {name}", record.id));
            let target = match goal.target {
                Target::AtMost(number) => Some(claims::Target::AtMost(number)),
                Target::AtLeast(number) => Some(claims::Target::AtLeast(number)),
                Target::Compare => None,
            };
            assert_eq!(record.target, target, "{}", record.id);
            let is_size = |size: Size| record.size.as_deref() == Some(size.label());
            assert!(is_size(Size::Quick) || is_size(Size::Full), "{}: no such size", record.id);
            seen += 1;
        }
        assert!(seen > 40, "{seen} records name an experiment");
    }
}
