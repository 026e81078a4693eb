//! What each VM is doing, while it does it: a line a VM on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use control::Name;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// The lines of all VMs.
pub struct Live {
    lines: Vec<(Name, Option<ProgressBar>)>,
    started: Instant,
}

impl Live {
    /// A line for each of these.
    pub fn new(vms: &[Name]) -> Self {
        let group = std::io::stderr().is_terminal().then(MultiProgress::new);
        let lines = vms.iter().map(|vm| (vm.clone(), group.as_ref().map(|group| line(group, vm)))).collect();
        Self { lines, started: Instant::now() }
    }

    /// Says what a VM is doing now.
    pub fn now(&self, vm: &Name, what: &str) {
        match self.bar(vm) {
            Some(bar) => bar.set_message(what.to_owned()),
            None => eprintln!("[{:4.0} s] {vm}: {what}", self.started.elapsed().as_secs_f64()),
        }
    }

    /// Says how a VM ended; its clock stops.
    pub fn ended(&self, vm: &Name, how: &str) {
        match self.bar(vm) {
            Some(bar) => bar.finish_with_message(how.to_owned()),
            None => self.now(vm, how),
        }
    }

    fn bar(&self, vm: &Name) -> Option<&ProgressBar> {
        self.lines.iter().find(|(name, _)| name == vm).and_then(|(_, bar)| bar.as_ref())
    }
}

fn line(group: &MultiProgress, vm: &Name) -> ProgressBar {
    let bar = group.add(ProgressBar::new_spinner());
    let style = ProgressStyle::with_template("{spinner} {prefix:12} {wide_msg} [{elapsed}]");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_prefix(vm.to_string());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}
