//! VMs and vCPUs.

use control::{DiskUse, PlacementStats, StopReason, VcpuState, VcpuStats, VmMemory, VmStats, VmSummary};
use serde::Serialize;

use super::share::ShareView;
use super::{ExitsView, LARGE_PAGE, PAGE, Sample, grown, seconds, share};

/// A VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmView {
    /// Its name.
    pub name: String,
    /// Its identity; never reused while the machine runs.
    pub id: u16,
    /// `stopped`, `running`, `paused` or `stopping`.
    pub state: &'static str,
    /// Why it stopped last: a word.
    pub reason: Option<&'static str>,
    /// Why it stopped last: for people.
    pub reason_text: Option<String>,
    /// Number of vCPUs.
    pub vcpu_count: u16,
    /// Guest memory, as its description says.
    pub memory_bytes: u64,
    /// What is kept for it, of that memory and of modified blocks of disks in memory.
    pub promised_bytes: u64,
    /// Machine memory behind it.
    pub resident_bytes: u64,
    /// The same per node.
    pub resident: Vec<MemoryView>,
    /// Seconds since its last start; 0 if it does not run.
    pub uptime_s: f64,
    /// How often it was reset.
    pub resets: u32,
    /// The number of its cell.
    pub cell: u8,
    /// Its copy-on-write disks.
    pub disks: Vec<DiskUseView>,
    /// Its counters, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<VmCountersView>,
}

/// How much of what it may modify a VM has modified of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskUseView {
    /// Its name in the VM.
    pub name: String,
    /// Where modified blocks are: `memory` or `store`.
    pub keeps_in: &'static str,
    /// Bytes of modified blocks, and in memory of what finds them.
    pub used_bytes: u64,
    /// Most that there may be; null: as many as the disk has blocks.
    pub limit_bytes: Option<u64>,
}

/// Counters of a VM.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VmCountersView {
    /// Seconds in which its vCPUs ran, added up.
    pub run_s: f64,
    /// Seconds in which its vCPUs wanted to run and could not, added up.
    pub wait_s: f64,
    /// All exits.
    pub exits_total: u64,
    /// Exits by cause.
    pub exits: ExitsView,
    /// Guest-page faults answered with a page.
    pub faults: u64,
    /// Bytes read from its disks.
    pub disk_read_bytes: u64,
    /// Bytes written to its disks.
    pub disk_written_bytes: u64,
    /// Bytes sent to its subnets.
    pub net_sent_bytes: u64,
    /// Bytes received from its subnets.
    pub net_received_bytes: u64,
    /// Bytes given back through its balloon.
    pub returned_bytes: u64,
    /// Bytes that its disks' reads mapped into it.
    pub mapped_bytes: u64,
    /// Bytes that were shared and became its own by a write.
    pub unshared_bytes: u64,
    /// Bytes that were merged with equal ones of other VMs.
    pub merged_bytes: u64,
    /// Bytes of blocks that were nothing but zeroes, and came back.
    pub zero_bytes: u64,
    /// What became of its pages by placement.
    pub placement: PlacementView,
    /// How it shares harts with others.
    pub share: ShareView,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuView>,
    /// What it did between two looks.
    pub rates: Option<VmRates>,
}

/// What became of a VM's pages on a machine of several nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlacementView {
    /// Bytes of 4 KiB pages that migrated to another node.
    pub migrated_bytes: u64,
    /// 2 MiB blocks that migrated.
    pub migrated_blocks: u64,
    /// Bytes of replicas made.
    pub replicated_bytes: u64,
    /// Bytes of replicated pages that became one again.
    pub collapsed_bytes: u64,
    /// Pages that were watched for writes.
    pub watched_pages: u64,
    /// 2 MiB blocks that were split.
    pub split_blocks: u64,
    /// 2 MiB blocks that were put together again.
    pub joined_blocks: u64,
    /// Hot pages that stayed where they are.
    pub refused: u64,
    /// How samples compare with the miss counters, where pages are placed by samples beside these: single pages for which
    /// both asked for the same.
    pub samples_agreed: u64,
    /// For which only samples asked for something.
    pub only_samples: u64,
    /// For which only the counters did.
    pub only_misses: u64,
    /// For which one asked for a move, the other for a copy.
    pub samples_disagreed: u64,
}

impl From<&PlacementStats> for PlacementView {
    fn from(stats: &PlacementStats) -> Self {
        let bytes = |pages: u64| pages.saturating_mul(PAGE);
        Self {
            migrated_bytes: bytes(stats.migrated_pages),
            migrated_blocks: stats.migrated_blocks,
            replicated_bytes: bytes(stats.replicated_pages),
            collapsed_bytes: bytes(stats.collapsed_pages),
            watched_pages: stats.watched_pages,
            split_blocks: stats.split_blocks,
            joined_blocks: stats.joined_blocks,
            refused: stats.refused,
            samples_agreed: stats.samples.agreed,
            only_samples: stats.samples.only_samples,
            only_misses: stats.samples.only_misses,
            samples_disagreed: stats.samples.disagreed,
        }
    }
}

/// What a VM did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VmRates {
    /// Harts' worth of time that its vCPUs ran: 2.0 = two vCPUs all the time.
    pub run: f64,
    /// The same for wanting to run and not running.
    pub wait: f64,
    /// Exits per second.
    pub exits_per_s: f64,
    /// Exits between the two looks, by cause.
    pub exits: ExitsView,
    /// Seconds between the two looks.
    pub interval_s: f64,
    /// Bytes per second from and to its disks.
    pub disk_bytes_per_s: f64,
    /// Bytes per second from and to its subnets.
    pub net_bytes_per_s: f64,
    /// Bytes per second that migrated to another node.
    pub migrated_bytes_per_s: f64,
    /// Bytes of replicas made per second.
    pub replicated_bytes_per_s: f64,
}

/// A vCPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VcpuView {
    /// Its index.
    pub index: u16,
    /// `stopped`, `running`, `ready`, `waiting` or `paused`.
    pub state: &'static str,
    /// The hart that it runs on, or ran on last.
    pub hart: u16,
    /// Seconds in which it ran.
    pub run_s: f64,
    /// Seconds in which it wanted to run and could not (steal time).
    pub wait_s: f64,
    /// Guest-page faults answered with a page.
    pub faults: u64,
    /// Moves from one hart to another.
    pub migrations: u64,
    /// Who runs on its hart, as `VM/INDEX`, while it is `ready`.
    pub waits_for: Option<String>,
    /// All exits.
    pub exits_total: u64,
    /// Exits by cause.
    pub exits: ExitsView,
    /// What it did between two looks.
    pub rates: Option<VcpuRates>,
}

/// What a vCPU did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VcpuRates {
    /// Share of time in which it ran.
    pub run: f64,
    /// Share of time in which it wanted to run and could not.
    pub wait: f64,
    /// Exits per second.
    pub exits_per_s: f64,
}

/// Machine memory of one node behind one VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryView {
    /// The node.
    pub node: u8,
    /// All of it.
    pub total_bytes: u64,
    /// Guest memory in 2 MiB leaves.
    pub large_bytes: u64,
    /// Guest memory in 4 KiB leaves, of this VM alone.
    pub private_bytes: u64,
    /// Shared copy-on-write with other VMs or the disk cache.
    pub shared_bytes: u64,
    /// Replicas of pages of another node.
    pub replica_bytes: u64,
    /// Modified blocks of copy-on-write disks.
    pub disk_bytes: u64,
    /// G-stage tables.
    pub table_bytes: u64,
    /// The monitor's own bookkeeping for it.
    pub monitor_bytes: u64,
}

impl VmView {
    /// A VM without its counters.
    pub fn new(vm: &VmSummary, timebase_hz: u64) -> Self {
        let resident: Vec<MemoryView> = vm.resident.iter().map(MemoryView::from).collect();
        Self {
            name: vm.name.to_string(),
            id: vm.id.0,
            state: vm.state.label(),
            reason: vm.reason.as_ref().map(reason_label),
            reason_text: vm.reason.as_ref().map(ToString::to_string),
            vcpu_count: vm.vcpus,
            memory_bytes: u64::from(vm.memory_mib) << 20,
            promised_bytes: vm.promised_mib << 20,
            resident_bytes: resident.iter().map(|part| part.total_bytes).sum(),
            resident,
            uptime_s: seconds(vm.uptime_ticks, timebase_hz),
            resets: vm.resets,
            cell: vm.cell,
            disks: vm.disks.iter().map(DiskUseView::from).collect(),
            counters: None,
        }
    }

    /// The VMs in `sample` with their counters, and rates since `before` if given.
    pub fn all(sample: &Sample, before: Option<&Sample>) -> Vec<Self> {
        let hz = sample.info.timebase_hz;
        let view = |vm: &VmSummary| {
            let now = sample.vm_stats.get(&vm.id);
            let earlier = before.and_then(|before| before.vm_stats.get(&vm.id));
            let mut counters = now.map(|now| VmCountersView::new(now, earlier, hz));
            let vcpus = counters.iter_mut().flat_map(|counters| &mut counters.vcpus);
            for vcpu in vcpus.filter(|vcpu| vcpu.state == vcpu_state_label(VcpuState::Ready)) {
                vcpu.waits_for =
                    running_on(sample, vcpu.hart).filter(|who| *who != format!("{}/{}", vm.name, vcpu.index));
            }
            Self { counters, ..Self::new(vm, hz) }
        };
        sample.vms.iter().map(view).collect()
    }

    /// What it did between two looks; nothing if there was one look only.
    pub fn rates(&self) -> VmRates {
        self.counters.as_ref().and_then(|counters| counters.rates).unwrap_or_default()
    }

    /// Its machine memory on a node.
    pub fn resident_on(&self, node: u8) -> u64 {
        self.resident.iter().filter(|part| part.node == node).map(|part| part.total_bytes).sum()
    }
}

/// Who runs on a hart, as `VM/INDEX`.
fn running_on(sample: &Sample, hart: u16) -> Option<String> {
    let (vm, vcpu) = sample.stats.harts.iter().find(|stats| stats.index.0 == hart)?.running?;
    Some(format!("{}/{vcpu}", sample.vm_name(vm)?))
}

impl VmCountersView {
    fn new(now: &VmStats, earlier: Option<&VmStats>, hz: u64) -> Self {
        let passed = earlier.map_or(0, |earlier| grown(now.now_ticks, earlier.now_ticks));
        let vcpu = |vcpu: &VcpuStats| {
            let before = earlier.and_then(|earlier| earlier.vcpus.iter().find(|other| other.index == vcpu.index));
            VcpuView::new(vcpu, before, passed, hz)
        };
        let vcpus: Vec<VcpuView> = now.vcpus.iter().map(vcpu).collect();
        let sum =
            |field: fn(&VcpuStats) -> u64| now.vcpus.iter().fold(0, |sum: u64, vcpu| sum.wrapping_add(field(vcpu)));
        let exits = ExitsView::sum(vcpus.iter().map(|vcpu| &vcpu.exits));
        Self {
            run_s: seconds(sum(|vcpu| vcpu.run_ticks), hz),
            wait_s: seconds(sum(|vcpu| vcpu.wait_ticks), hz),
            exits_total: exits.total(),
            exits,
            faults: sum(|vcpu| vcpu.faults),
            disk_read_bytes: now.disk_read_sectors.saturating_mul(512),
            disk_written_bytes: now.disk_written_sectors.saturating_mul(512),
            net_sent_bytes: now.net_sent_bytes,
            net_received_bytes: now.net_received_bytes,
            returned_bytes: now.pages_returned.saturating_mul(PAGE),
            mapped_bytes: now.pages_mapped.saturating_mul(PAGE),
            unshared_bytes: now.pages_unshared.saturating_mul(PAGE),
            merged_bytes: now.pages_merged.saturating_mul(PAGE),
            zero_bytes: now.zero_pages_returned.saturating_mul(PAGE),
            placement: PlacementView::from(&now.placement),
            share: ShareView::from(&now.share),
            rates: earlier.map(|earlier| VmRates::between(now, earlier, passed, &vcpus, hz)),
            vcpus,
        }
    }
}

impl VmRates {
    fn between(now: &VmStats, earlier: &VmStats, passed: u64, vcpus: &[VcpuView], hz: u64) -> Self {
        let per_second = |now: u64, before: u64| share(now, before, passed) * hz as f64;
        let rates = || vcpus.iter().filter_map(|vcpu| vcpu.rates);
        let counts = |stats: &VmStats| stats.vcpus.iter().map(|vcpu| vcpu.exits.into()).collect::<Vec<ExitsView>>();
        let exits = ExitsView::sum(&counts(now)).since(&ExitsView::sum(&counts(earlier)));
        Self {
            run: rates().map(|vcpu| vcpu.run).sum(),
            wait: rates().map(|vcpu| vcpu.wait).sum(),
            exits_per_s: per_second(exits.total(), 0),
            exits,
            interval_s: seconds(passed, hz),
            disk_bytes_per_s: 512.0
                * (per_second(now.disk_read_sectors, earlier.disk_read_sectors)
                    + per_second(now.disk_written_sectors, earlier.disk_written_sectors)),
            net_bytes_per_s: per_second(now.net_sent_bytes, earlier.net_sent_bytes)
                + per_second(now.net_received_bytes, earlier.net_received_bytes),
            migrated_bytes_per_s: per_second(migrated_bytes(now), migrated_bytes(earlier)),
            replicated_bytes_per_s: per_second(replicated_bytes(now), replicated_bytes(earlier)),
        }
    }
}

const fn migrated_bytes(stats: &VmStats) -> u64 {
    let blocks = stats.placement.migrated_blocks.saturating_mul(LARGE_PAGE);
    stats.placement.migrated_pages.saturating_mul(PAGE).saturating_add(blocks)
}

const fn replicated_bytes(stats: &VmStats) -> u64 {
    stats.placement.replicated_pages.saturating_mul(PAGE)
}

impl VcpuView {
    fn new(now: &VcpuStats, earlier: Option<&VcpuStats>, passed: u64, hz: u64) -> Self {
        let rates = |earlier: &VcpuStats| VcpuRates {
            run: share(now.run_ticks, earlier.run_ticks, passed),
            wait: share(now.wait_ticks, earlier.wait_ticks, passed),
            exits_per_s: share(now.exits.since(&earlier.exits).total(), 0, passed) * hz as f64,
        };
        Self {
            index: now.index.0,
            state: vcpu_state_label(now.state),
            hart: now.hart.0,
            run_s: seconds(now.run_ticks, hz),
            wait_s: seconds(now.wait_ticks, hz),
            faults: now.faults,
            migrations: now.migrations,
            waits_for: None,
            exits_total: now.exits.total(),
            exits: now.exits.into(),
            rates: earlier.map(rates),
        }
    }
}

impl From<&DiskUse> for DiskUseView {
    fn from(disk: &DiskUse) -> Self {
        Self {
            name: disk.name.to_string(),
            keeps_in: if disk.lasts { "store" } else { "memory" },
            used_bytes: disk.used_bytes,
            limit_bytes: disk.limit_bytes,
        }
    }
}

impl From<&VmMemory> for MemoryView {
    fn from(memory: &VmMemory) -> Self {
        let bytes = |pages: u64| pages.saturating_mul(PAGE);
        Self {
            node: memory.node.0,
            total_bytes: bytes(memory.total_pages()),
            large_bytes: bytes(memory.large_pages),
            private_bytes: bytes(memory.private_pages),
            shared_bytes: bytes(memory.shared_pages),
            replica_bytes: bytes(memory.replica_pages),
            disk_bytes: bytes(memory.disk_pages),
            table_bytes: bytes(memory.table_pages),
            monitor_bytes: bytes(memory.monitor_pages),
        }
    }
}

/// The word for a state.
pub const fn vcpu_state_label(state: VcpuState) -> &'static str {
    match state {
        VcpuState::Stopped => "stopped",
        VcpuState::Running => "running",
        VcpuState::Ready => "ready",
        VcpuState::Waiting => "waiting",
        VcpuState::Paused => "paused",
    }
}

/// The word for a reason.
pub const fn reason_label(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::PowerOff => "power-off",
        StopReason::GuestFailure { .. } => "guest-failure",
        StopReason::Killed => "killed",
        StopReason::MachineShutdown => "machine-shutdown",
        StopReason::GuestFault { .. } => "guest-fault",
        StopReason::ResetLoop { .. } => "reset-loop",
        StopReason::OutOfMemory { .. } => "out-of-memory",
        StopReason::CellLost { .. } => "cell-lost",
    }
}

#[cfg(test)]
mod tests {
    use crate::model::MachineView;
    use crate::model::fixture::{DEMO, sample};

    /// A VM that was reset between two looks counts from nothing again: `EXITS/s` once showed 8,539,882,933G.
    #[test]
    fn a_vm_that_began_anew_has_no_giant_rates() {
        let before = sample(DEMO, 61);
        let mut now = sample(DEMO, 62);
        for stats in now.vm_stats.values_mut() {
            for vcpu in &mut stats.vcpus {
                (vcpu.run_ticks, vcpu.wait_ticks) = (5, 0);
                vcpu.exits.0 = vcpu.exits.0.map(|count| count.min(1));
            }
            (stats.disk_read_sectors, stats.net_sent_bytes) = (1, 0);
        }
        let view = MachineView::new(&now, Some(&before));
        for vm in &view.vms {
            let rates = vm.rates();
            let vcpus = vm.counters.as_ref().map_or(&[][..], |counters| &counters.vcpus);
            let most = 16.0 * vcpus.len() as f64 + 1.0;
            assert!(rates.exits_per_s <= most && rates.run <= 0.01 && rates.wait <= 0.01, "{}: {rates:?}", vm.name);
            assert!(rates.disk_bytes_per_s < 1e9 && rates.net_bytes_per_s < 1e9, "{}: {rates:?}", vm.name);
            for vcpu in vcpus {
                assert!(vcpu.rates.is_none_or(|rates| rates.exits_per_s <= 17.0), "{}: {:?}", vm.name, vcpu.rates);
            }
        }
    }
}
