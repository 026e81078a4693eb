//! One VM's work: wait until its guest is up, build, keep the result.

use std::time::{Duration, Instant};

use control::{Name, VmState};
use machine::{Client, GuestAgent};

use crate::live::Live;

/// The workload's program in the root image, and the line that it ends with.
const PROGRAM: &str = "/usr/local/bin/mirrorball-build";
const RESULT_LINE: &str = "mirrorball-build: ok ";

/// Work for one VM.
pub struct Job {
    /// A session of its own with the machine.
    pub client: Client,
    /// The VM.
    pub vm: Name,
    /// Longest time for each of its steps.
    pub limit: Duration,
}

/// What came of it.
pub struct Outcome {
    /// The VM.
    pub vm: Name,
    /// Until the guest's agent answered.
    pub boot: Duration,
    /// The build, or what went wrong.
    pub build: Result<Build, String>,
}

/// A finished build, as the guest reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// Of all that was built.
    pub checksum: String,
    /// By the guest's clock.
    pub seconds: f64,
}

impl Job {
    /// Does the work.
    pub fn run(self, live: &Live) -> Outcome {
        let started = Instant::now();
        live.now(&self.vm, "booting");
        let agent = self.boot();
        let boot = started.elapsed();
        let build = agent.and_then(|mut agent| {
            live.now(&self.vm, &format!("up after {:.0} s, building", boot.as_secs_f64()));
            self.build(&mut agent)
        });
        match &build {
            Ok(build) => live.ended(&self.vm, &format!("built in {:.1} s (guest time)", build.seconds)),
            Err(error) => live.ended(&self.vm, &format!("FAILED: {error}")),
        }
        Outcome { vm: self.vm, boot, build }
    }

    fn boot(&self) -> Result<GuestAgent, String> {
        let vm = self.client.vm(&self.vm).map_err(|error| error.to_string())?;
        if vm.state != VmState::Running {
            let reason = vm.reason.map_or_else(|| "it was never started".to_owned(), |reason| reason.to_string());
            return Err(format!("it does not run: {reason}"));
        }
        GuestAgent::connect(&self.client, &self.vm, self.limit).map_err(|error| error.to_string())
    }

    fn build(&self, agent: &mut GuestAgent) -> Result<Build, String> {
        let result = agent.exec(PROGRAM, &[], &[], Some(self.limit)).map_err(|error| error.to_string())?;
        let output = String::from_utf8_lossy(&result.stdout);
        if !result.status.is_success() {
            return Err(format!("the build ended with {}: {}", result.status.code(), output.trim()));
        }
        parse(&output).ok_or_else(|| format!("the build's output has no result: {}", output.trim()))
    }
}

/// Reads `mirrorball-build: ok sha256=HASH seconds=S ...`.
fn parse(output: &str) -> Option<Build> {
    let line = output.lines().find_map(|line| line.strip_prefix(RESULT_LINE))?;
    let field = |name: &str| line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(Build { checksum: field("sha256")?.to_owned(), seconds: field("seconds")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_by_name() {
        let output = "noise\nmirrorball-build: ok sha256=04b4 seconds=61.25 user=1.00 system=0.10 jobs=2\n";
        assert_eq!(parse(output), Some(Build { checksum: "04b4".into(), seconds: 61.25 }));
    }

    #[test]
    fn failures_are_no_results() {
        assert_eq!(parse("mirrorball-build: failed: make\n"), None);
        assert_eq!(parse("mirrorball-build: ok sha256=04b4\n"), None);
        assert_eq!(parse(""), None);
    }
}
