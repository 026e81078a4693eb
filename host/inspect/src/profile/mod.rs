//! Where a VM's vCPUs spend their time: samples of their program counters and callers.
//!
//! The monitor asks vCPUs that run, so a vCPU that waits is in no sample. Asking calls it out of its guest for a moment: the number of
//! samples a second is bounded, and so is what one costs.

mod flame;
mod symbols;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use control::{Name, Reply, Request};
use machine::{Client, ClientError};

pub use flame::svg;
pub use symbols::{SymbolMap, Symbols};

use crate::InspectError;

/// Looks a second, at most.
pub const MAX_HZ: u32 = 500;

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// How often each stack was: whether the vCPU was in its kernel, and its program counters, the innermost first.
    stacks: BTreeMap<(bool, Vec<u64>), u64>,
    /// Samples.
    pub samples: u64,
    /// Looks: each could have brought a sample of each vCPU.
    pub looks: u64,
}

impl Profile {
    /// Looks at a VM for so long, so often a second.
    ///
    /// # Errors
    /// If there is no such VM, or it does not run; if it ends meanwhile, what was seen is the answer.
    pub fn take(client: &Client, vm: &Name, time: Duration, hz: u32) -> Result<Self, InspectError> {
        let pause = Duration::from_secs(1) / hz.clamp(1, MAX_HZ);
        let mut profile = Self::default();
        // What others have left is not of this time.
        sample(client, vm)?;
        let begin = Instant::now();
        while begin.elapsed() < time {
            thread::sleep(pause);
            match sample(client, vm) {
                Ok(samples) => {
                    profile.looks += 1;
                    samples.into_iter().for_each(|sample| profile.add(sample.is_supervisor, sample.stack));
                }
                Err(InspectError::Client(ClientError::Refused(_))) if profile.looks > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(profile)
    }

    /// Adds a sample.
    pub fn add(&mut self, is_supervisor: bool, stack: Vec<u64>) {
        self.samples += 1;
        *self.stacks.entry((is_supervisor, stack)).or_default() += 1;
    }

    /// Stacks of names, the outermost first, with how often each was.
    #[must_use]
    pub fn named(&self, symbols: &Symbols) -> BTreeMap<Vec<String>, u64> {
        let mut named = BTreeMap::new();
        for ((is_supervisor, stack), count) in &self.stacks {
            let mut frames = vec![if *is_supervisor { "kernel" } else { "user" }.to_owned()];
            frames.extend(stack.iter().rev().map(|address| symbols.name(*address)));
            *named.entry(frames).or_default() += count;
        }
        named
    }

    /// One line for each stack, as tools for flame graphs read it: frames from the outermost on, then how often.
    #[must_use]
    pub fn folded(&self, symbols: &Symbols) -> String {
        let mut text = String::new();
        for (frames, count) in self.named(symbols) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {count}", frames.join(";"));
        }
        text
    }

    /// The innermost functions, the most frequent first.
    #[must_use]
    pub fn hottest(&self, symbols: &Symbols) -> Vec<(String, u64)> {
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for ((is_supervisor, stack), count) in &self.stacks {
            let place = stack.first().map_or_else(String::new, |address| symbols.name(*address));
            let world = if *is_supervisor { "" } else { " (user)" };
            *by_name.entry(place + world).or_default() += count;
        }
        let mut hottest: Vec<_> = by_name.into_iter().collect();
        hottest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        hottest
    }
}

fn sample(client: &Client, vm: &Name) -> Result<Vec<control::Sample>, InspectError> {
    match client.call(Request::Sample { vm: vm.clone() })? {
        Reply::Samples(samples) => Ok(samples),
        _ => Err(ClientError::WrongAnswer { request: "Sample".into() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_folded_by_name() {
        let symbols = Symbols::new([SymbolMap::parse("1000 T outer\n2000 t inner\n3000 D data\n")]);
        let mut profile = Profile::default();
        profile.add(true, vec![0x2004, 0x1010]);
        profile.add(true, vec![0x2008, 0x1020]);
        profile.add(false, vec![0x10]);
        assert_eq!(profile.folded(&symbols), "kernel;outer;inner 2\nuser;0x10 1\n");
        assert_eq!(profile.hottest(&symbols), [("inner".into(), 2), ("0x10 (user)".into(), 1)]);
        assert_eq!(profile.samples, 3);
    }
}
