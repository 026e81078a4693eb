//! What a whole experiment takes of its user's time. Only a run that measured every trial anew says it, and the result is stored
//! under the keys of all of them.

use std::time::Instant;

use super::Bench;
use crate::plan::{Plan, Size};
use crate::report::{Figure, Goals};
use crate::store::{Configuration, Found, Measured, Store, Value};
use crate::{Experiment, LabError};

/// The value's name in the store.
const MINUTES: &str = "minutes";
const UNIT: &str = "min";

/// What the figure is called.
pub fn name(experiment: &str, size: Size) -> String {
    format!("{experiment}_{}_minutes", size.label())
}

/// A run that has begun.
#[derive(Debug)]
pub struct Watch {
    begin: Instant,
    load: String,
}

impl Watch {
    /// Begins now, and looks at what else the host does.
    pub fn start() -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self { begin: Instant::now(), load: load.split_whitespace().next().unwrap_or("unknown").to_owned() }
    }

    /// The time until now.
    pub fn value(&self) -> Value {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let note = format!("On {cores} cores of the host, whose load was {} when it began.", self.load);
        Value { note, ..Value::new(MINUTES, self.begin.elapsed().as_secs_f64() / 60.0, UNIT, 1) }
    }
}

/// What the time of a whole run depends on: all that its trials depend on.
///
/// # Errors
/// A file that a trial needs is missing.
pub fn configuration(plan: &Plan, bench: &mut Bench) -> Result<Configuration, LabError> {
    let keys = plan.trials.iter().map(|trial| Ok(bench.configuration(trial)?.key()));
    let keys = keys.collect::<Result<Vec<String>, LabError>>()?;
    let run = serde_json::json!({"name": "wall-time", "seed": 0, "trials": keys});
    Ok(Configuration::new(run, bench.emulator.clone()))
}

/// The figure from what is stored. An experiment that has no such goal lacks it silently.
pub fn figure(experiment: &Experiment, size: Size, plan: &Plan, store: &Store, bench: &mut Bench) -> Option<Figure> {
    let (id, goals) = (name(experiment.name, size), Goals(experiment.goals));
    let stored = configuration(plan, bench).map(|wanted| store.find(&wanted));
    match stored {
        Ok(Found::Same(Measured { values, .. })) => {
            let value = values.into_iter().find(|value| value.name == MINUTES)?;
            Some(goals.figure(&id, value.number?, UNIT, value.samples).remarked(&value.note))
        }
        _ if goals.has(&id) => Some(goals.missing(&id, "only a whole run with --fresh, or the first one, measures it")),
        _ => None,
    }
}
