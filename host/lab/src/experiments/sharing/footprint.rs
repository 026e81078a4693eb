//! What VMs have of the machine's memory, by kind, and what of it they could have in common.

use control::{MachineStats, NodeStats, VmSpec, VmStats};

use super::MIB;
use super::guests::{PAGE, mib, rest};
use super::parts::{self, Parts};
use crate::LabError;
use crate::compare::ratio;
use crate::experiments::debian::shell;
use crate::rig::Running;
use crate::run::Progress;
use crate::store::Value;

/// What a value of a configuration is called.
pub fn name(configuration: &str, kind: &str) -> String {
    format!("{kind}_{configuration}_mib")
}

/// A machine at rest, looked at.
pub struct Look {
    /// Which VMs: a part of its values' names.
    configuration: String,
    footprint: Footprint,
    /// What each VM's kernel has for itself.
    own: Vec<Parts>,
}

impl Look {
    /// Waits until the machine is at rest, and looks.
    ///
    /// # Errors
    /// [`LabError`] if the machine does not answer, or a guest does not tell what it has.
    pub fn take(
        machine: &Running,
        vms: &[VmSpec],
        configuration: String,
        progress: &Progress,
    ) -> Result<Self, LabError> {
        let footprint = Footprint::of(machine, vms, &rest(machine)?)?;
        let own = vms.iter().map(|vm| own_parts(machine, vm)).collect::<Result<Vec<_>, _>>()?;
        let look = Self { configuration, footprint, own };
        let last = look.own.last().map_or(0, |parts| parts.kernel_pages() * PAGE);
        let (common, kernel) = (mib(look.shareable()), mib(last));
        progress.say(&format!(
            "{} VMs: {common:.1} MiB in common, {kernel:.1} MiB the last one's kernel's own",
            look.configuration
        ));
        Ok(look)
    }

    /// Bytes of what VMs can have in common: the disk cache, what was merged, and what of their kernels' code and constants was
    /// not.
    fn shareable(&self) -> u64 {
        let Footprint { cache, merged, .. } = self.footprint;
        cache + merged + self.own.iter().map(|parts| parts.text * PAGE).sum::<u64>()
    }

    /// Memory by kind, and what the last VM has for itself of files that others may have, too.
    pub fn values(&self) -> Vec<Value> {
        let mut values = self.footprint.values(&self.configuration);
        let files = self.own.last().map_or(0, |parts| parts.page_cache * PAGE);
        let more = [("shareable", self.shareable()), ("last_page_cache", files)];
        values.extend(more.map(|(kind, bytes)| Value::new(&name(&self.configuration, kind), mib(bytes), MIB, 1)));
        values
    }

    /// What the last VM has for itself, by part.
    pub fn values_of_last(&self) -> Vec<Value> {
        self.own.last().map(Parts::values).unwrap_or_default()
    }
}

/// What could be shared at the last look, over the first.
pub fn growth(figure: &str, looks: &[Look]) -> Value {
    match looks {
        [first, .., last] => Value::new(figure, ratio(last.shareable(), first.shareable()), "", 1),
        _ => Value::missing(figure, "there was only one VM"),
    }
}

/// What each further VM takes: the figure's name.
pub const EXTRA: &str = "extra_busy_vm_mib";

/// What each of the VMs behind the first half of them takes, by MiB of the machine's memory with so many VMs.
pub fn extra(machine: &[(u64, f64)]) -> Option<f64> {
    let (most, all) = machine.last()?;
    let (_, half) = machine.iter().find(|(count, _)| count * 2 == *most)?;
    Some((all - half) / (*most as f64 / 2.0))
}

/// [`extra`] of VMs that were looked at, one look for each power of two.
pub fn extra_of(looks: &[Look]) -> Value {
    let machine: Vec<_> =
        looks.iter().zip(0..).map(|(look, power)| (1 << power, mib(look.footprint.machine()))).collect();
    match extra(&machine) {
        Some(mib) => Value::new(EXTRA, mib, MIB, 1),
        None => Value::missing(EXTRA, "there was only one VM"),
    }
}

/// Memory by kind, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    private: u64,
    /// Guest memory that shared pages stand for.
    seen_shared: u64,
    cache: u64,
    /// Shared by VMs, in no disk's cache: merged pages.
    merged: u64,
    overlays: u64,
    tables: u64,
}

impl Footprint {
    /// What the machine's counters say.
    ///
    /// # Errors
    /// [`LabError::Client`].
    pub fn of(machine: &Running, vms: &[VmSpec], stats: &MachineStats) -> Result<Self, LabError> {
        let of_vms = vms
            .iter()
            .map(|vm| Ok(machine.client().vm_stats(&vm.name)?))
            .collect::<Result<Vec<VmStats>, LabError>>()?;
        let memory = || of_vms.iter().flat_map(|vm| &vm.memory);
        let sum = |of: fn(&NodeStats) -> u64| stats.nodes.iter().map(of).sum::<u64>();
        let overlays = memory().map(|on| on.disk_pages).sum::<u64>() * PAGE;
        let cache = sum(|node| node.disk_cache_bytes);
        Ok(Self {
            private: sum(|node| node.private_bytes),
            seen_shared: sum(|node| node.sharing_bytes),
            cache,
            merged: sum(|node| node.sharable_bytes).saturating_sub(cache + overlays),
            overlays,
            tables: memory().map(|on| on.table_pages + on.monitor_pages).sum::<u64>() * PAGE,
        })
    }

    /// All that is taken.
    const fn machine(&self) -> u64 {
        self.private + self.cache + self.merged + self.overlays + self.tables
    }

    /// The same as figures.
    pub fn values(&self, configuration: &str) -> Vec<Value> {
        let Self { private, seen_shared, cache, merged, overlays, tables } = *self;
        let parts = [
            ("virtual", private + seen_shared),
            ("machine", self.machine()),
            ("private", private),
            ("disk_cache", cache),
            ("merged", merged),
            ("modified_blocks", overlays),
            ("tables", tables),
        ];
        parts.map(|(kind, bytes)| Value::new(&name(configuration, kind), mib(bytes), MIB, 1)).into()
    }
}

/// What a guest has for itself, by part.
fn own_parts(machine: &Running, vm: &VmSpec) -> Result<Parts, LabError> {
    let said = shell(machine.client(), vm, parts::SCRIPT)?;
    let kinds = machine.client().page_map(&vm.name)?;
    Parts::of(&said, &kinds).ok_or_else(|| LabError::Guest {
        experiment: format!("sharing: {}", vm.name),
        reason: format!("{} pages, and of their use it says: {:.200}", kinds.len(), said),
        console: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cache: u64) -> Look {
        let mut own = Parts::default();
        own.text = 256;
        let footprint =
            Footprint { private: 5 << 20, seen_shared: 4 << 20, cache, merged: 1 << 20, overlays: 0, tables: 0 };
        Look { configuration: "2_nfs".to_owned(), footprint, own: vec![own] }
    }

    #[test]
    fn what_is_there_once_counts_once() {
        let values = look(2 << 20).values();
        let find = |name: &str| values.iter().find(|value| value.name == name).and_then(|value| value.number);
        assert_eq!(find("virtual_2_nfs_mib"), Some(9.0));
        assert_eq!(find("machine_2_nfs_mib"), Some(8.0));
        // The cache, what was merged, and a kernel's code that was not.
        assert_eq!(find("shareable_2_nfs_mib"), Some(4.0));
    }

    #[test]
    fn growth_is_of_the_last_over_the_first() {
        let looks = [look(2 << 20), look(9 << 20), look(6 << 20)];
        assert_eq!(growth("figure", &looks).number, Some(2.0));
        assert_eq!(growth("figure", &looks[..1]).number, None);
        // 15 MiB with two VMs, 12 with four.
        assert_eq!(extra_of(&looks).number, Some(-1.5));
        assert_eq!(extra_of(&looks[..1]).number, None);
    }
}
