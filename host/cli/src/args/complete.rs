//! What a shell completes: names of VMs, as they are at that moment.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use machine::{Client, RunRoot};

use crate::launched::Homes;

/// How long a machine may take to tell its VMs while somebody waits at a prompt.
const PATIENCE: Duration = Duration::from_secs(1);

/// Names of VMs that begin so: those of all machines that run, and launched ones.
pub fn vms(begin: &OsStr) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    let mut names: Vec<String> = Vec::new();
    for dir in RunRoot::from_env().running() {
        let vms = Client::connect_to(&dir).and_then(|client| client.with_timeout(PATIENCE).vms());
        names.extend(vms.unwrap_or_default().iter().map(|vm| vm.name.to_string()));
    }
    names.extend(launched_names());
    names.sort();
    names.dedup();
    names.into_iter().filter(|name| name.starts_with(&*begin)).map(CompletionCandidate::new).collect()
}

/// The same of launched VMs only.
pub fn launched(begin: &OsStr) -> Vec<CompletionCandidate> {
    let begin = begin.to_string_lossy();
    launched_names().filter(|name| name.starts_with(&*begin)).map(CompletionCandidate::new).collect()
}

fn launched_names() -> impl Iterator<Item = String> {
    let homes = Homes::from_env().map(|homes| homes.list()).unwrap_or_default();
    homes.into_iter().map(|home| home.name().to_string())
}
