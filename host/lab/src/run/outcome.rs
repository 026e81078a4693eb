//! What came of trials, and what of it people are told: a cause that many trials share, once.

use loads::LoadError;

use crate::LabError;
use crate::plan::{System, Trial};
use crate::store::Measured;

/// What came of a trial.
pub enum Outcome {
    Measured(Measured),
    /// Why it failed, for people.
    Failed(String),
    /// It needs a file that nobody has made, by which its machine would boot.
    Unprepared(String),
    /// The same of the peer, which is for comparison: the rest can be measured without it.
    LeftOut(String),
    Nothing,
}

impl Outcome {
    /// Of a trial that was to be measured and was not.
    pub fn of_error(trial: &Trial, error: &LabError) -> Self {
        match error {
            LabError::Load(LoadError::Missing { .. }) | LabError::Missing { .. } if trial.system == System::Kvm => {
                Self::LeftOut(error.to_string())
            }
            LabError::Load(LoadError::Missing { .. }) | LabError::Missing { .. } => Self::Unprepared(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Causes in the order in which they came, each with the trials that it kept from a result.
#[derive(Debug, Default)]
pub struct Causes(Vec<(String, Vec<String>)>);

impl Causes {
    pub fn add(&mut self, cause: String, trial: String) {
        match self.0.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, trials)) => trials.push(trial),
            None => self.0.push((cause, vec![trial])),
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The causes alone.
    pub fn into_causes(self) -> Vec<String> {
        self.0.into_iter().map(|(cause, _)| cause).collect()
    }

    /// A text for each cause that begins with its trials.
    pub fn into_texts(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(cause, trials)| format!("{}: {cause}", some_of(&trials)))
    }
}

/// The first of these, and how many there are beside it.
fn some_of(trials: &[String]) -> String {
    match trials {
        [] => String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} and {other}"),
        [one, rest @ ..] => format!("{one} and {} other runs", rest.len()),
    }
}
