//! All counters at a moment, in the text format of OpenMetrics. Names, units and labels: `docs/metrics.md`.

use std::fmt;

use control::{MachineInfo, MachineStats, MonitorMemoryKind, VmState, VmStats, VmSummary};
use machine::{Client, ClientError};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// What the text is, for the header `content-type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PAGE: u64 = addr::BASE_PAGE;
const SECTOR: u64 = 512;

/// All counters at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What the machine is.
    pub info: MachineInfo,
    /// Its counters.
    pub machine: MachineStats,
    /// Its VMs, with their counters.
    pub vms: Vec<(VmSummary, VmStats)>,
}

impl Snapshot {
    /// Asks a machine: as many requests as it has VMs, and three.
    ///
    /// # Errors
    /// If it does not answer. VMs that go meanwhile are left out.
    pub fn take(client: &Client) -> Result<Self, ClientError> {
        let (info, machine) = (client.machine_info()?, client.machine_stats()?);
        let mut vms = Vec::new();
        for summary in client.vms()? {
            match client.vm_stats(&summary.name) {
                Ok(stats) => vms.push((summary, stats)),
                Err(ClientError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { info, machine, vms })
    }

    /// As text.
    ///
    /// # Errors
    /// None but of formatting.
    pub fn encode(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("mirrorball");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.info.timebase_hz.max(1) as f64
    }
}

/// A metric's values by labels.
type Values = Vec<(Vec<(&'static str, String)>, f64)>;

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine {}", self.info.name)
    }
}

/// Writes one metric.
struct Writer<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Writer<'_, '_> {
    fn counter(&mut self, name: &str, help: &str, unit: Option<Unit>, values: Values) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for (labels, value) in values {
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, values: Values) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in values {
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer(&mut encoder);
        self.machine(&mut writer)?;
        self.nodes(&mut writer)?;
        self.disks(&mut writer)?;
        self.vms(&mut writer)?;
        self.vm_counters(&mut writer)
    }
}

fn label(name: &'static str, value: impl fmt::Display) -> (&'static str, String) {
    (name, value.to_string())
}

impl Snapshot {
    fn machine(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let info = vec![label("machine", &self.info.name), label("monitor", &self.info.monitor.version)];
        writer.gauge("machine_info", "What answers; always 1", None, vec![(info, 1.0)])?;
        writer.gauge(
            "machine_up",
            "Time since the machine's clock began",
            Some(Unit::Seconds),
            vec![(Vec::new(), self.seconds(self.machine.now_ticks))],
        )?;
        let harts = || self.machine.harts.iter();
        let of = |hart: &control::HartStats| vec![label("hart", hart.index.0), label("node", hart.node.0)];
        let times = harts().flat_map(|hart| {
            let kinds = [("guest", hart.guest_ticks), ("monitor", hart.monitor_ticks), ("idle", hart.idle_ticks)];
            kinds.map(|(kind, ticks)| ([of(hart), vec![label("kind", kind)]].concat(), self.seconds(ticks)))
        });
        writer.counter("hart_time", "Time of each hart", Some(Unit::Seconds), times.collect())?;
        let switches = harts().map(|hart| (of(hart), hart.switches as f64));
        writer.counter("hart_switches", "Switches from one vCPU to another", None, switches.collect())?;
        let queued = harts().map(|hart| (of(hart), hart.queued.into()));
        writer.gauge("hart_queued", "vCPUs in the run queue, the running one included", None, queued.collect())
    }

    fn nodes(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let memory = self.machine.nodes.iter().flat_map(|node| {
            let kinds = [
                ("total", node.total_bytes),
                ("free", node.free_bytes),
                ("private", node.private_bytes),
                ("sharable", node.sharable_bytes),
                ("shared", node.shared_bytes),
                ("disk_cache", node.disk_cache_bytes),
            ];
            kinds.map(|(kind, bytes)| (vec![label("node", node.node.0), label("kind", kind)], bytes as f64))
        });
        writer.gauge("node_memory", "Memory of each node", Some(Unit::Bytes), memory.collect())?;
        let saved = self.machine.nodes.iter().map(|node| {
            (vec![label("node", node.node.0)], node.sharing_bytes.saturating_sub(node.shared_bytes) as f64)
        });
        writer.gauge("node_saved", "Memory that sharing saves", Some(Unit::Bytes), saved.collect())?;
        let monitor = self.machine.monitor.iter().map(|part| {
            let kind = match part.kind {
                MonitorMemoryKind::Image => "image",
                MonitorMemoryKind::PageTables => "page_tables",
                MonitorMemoryKind::Memmap => "memmap",
                MonitorMemoryKind::HeapUsed => "heap_used",
                MonitorMemoryKind::HeapFree => "heap_free",
                MonitorMemoryKind::Modules => "modules",
            };
            (vec![label("node", part.node.0), label("kind", kind)], part.bytes as f64)
        });
        writer.gauge("monitor_memory", "Memory of the monitor itself", Some(Unit::Bytes), monitor.collect())
    }

    fn disks(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let disks = || self.machine.disks.iter();
        let of = |disk: &control::DiskStats| vec![label("disk", &disk.name)];
        let cached = disks().map(|disk| (of(disk), disk.cached_bytes as f64));
        writer.gauge("disk_cached", "Blocks of a disk in the cache", Some(Unit::Bytes), cached.collect())?;
        let blocks = disks().flat_map(|disk| {
            let kinds = [("hit", disk.hits), ("miss", disk.misses), ("join", disk.joins)];
            kinds.map(|(kind, count)| ([of(disk), vec![label("outcome", kind)]].concat(), count as f64))
        });
        writer.counter("disk_blocks", "Blocks of 4 KiB that guests asked for", None, blocks.collect())?;
        let moved = disks().flat_map(|disk| {
            let kinds = [("read", disk.read_bytes), ("write", disk.written_bytes)];
            kinds.map(|(kind, bytes)| ([of(disk), vec![label("direction", kind)]].concat(), bytes as f64))
        });
        writer.counter("disk_io", "Bytes that the machine's disk moved", Some(Unit::Bytes), moved.collect())
    }

    fn vms(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let vms = || self.vms.iter().map(|(summary, stats)| (vec![label("vm", &summary.name)], summary, stats));
        const STATES: [(VmState, &str); 4] = [
            (VmState::Running, "running"),
            (VmState::Paused, "paused"),
            (VmState::Stopping, "stopping"),
            (VmState::Stopped, "stopped"),
        ];
        let states = vms().flat_map(|(of, summary, _)| {
            let shown = |(state, name)| {
                ([of.clone(), vec![label("state", name)]].concat(), f64::from(u8::from(summary.state == state)))
            };
            STATES.map(shown)
        });
        writer.gauge("vm_state", "1 for the state that the VM is in", None, states.collect())?;
        let memory = vms().map(|(of, summary, _)| (of, f64::from(summary.memory_mib) * 1_048_576.0));
        writer.gauge("vm_memory", "Memory that the guest believes it has", Some(Unit::Bytes), memory.collect())?;
        let resident = vms().flat_map(|(of, _, stats)| {
            stats.memory.iter().map(move |memory| {
                let pages = memory.large_pages + memory.private_pages + memory.shared_pages + memory.replica_pages;
                ([of.clone(), vec![label("node", memory.node.0)]].concat(), (pages * PAGE) as f64)
            })
        });
        writer.gauge("vm_resident", "Machine memory behind the guest's", Some(Unit::Bytes), resident.collect())?;
        let uptime = vms().map(|(of, summary, _)| (of, self.seconds(summary.uptime_ticks)));
        writer.gauge("vm_uptime", "Time since the VM started", Some(Unit::Seconds), uptime.collect())?;
        let vcpus = vms().map(|(of, summary, _)| (of, summary.vcpus.into()));
        writer.gauge("vm_vcpus", "vCPUs of the VM", None, vcpus.collect())
    }

    fn vm_counters(&self, writer: &mut Writer<'_, '_>) -> fmt::Result {
        let vms = || self.vms.iter().map(|(summary, stats)| (vec![label("vm", &summary.name)], stats));
        let times = vms().flat_map(|(of, stats)| {
            stats.vcpus.iter().flat_map(move |vcpu| {
                let of = [of.clone(), vec![label("vcpu", vcpu.index.0)]].concat();
                let kinds = [("run", vcpu.run_ticks), ("wait", vcpu.wait_ticks)];
                kinds.map(|(kind, ticks)| ([of.clone(), vec![label("kind", kind)]].concat(), self.seconds(ticks)))
            })
        });
        writer.counter(
            "vcpu_time",
            "Time that vCPUs ran, or waited for a hart",
            Some(Unit::Seconds),
            times.collect(),
        )?;
        let exits = vms().flat_map(|(of, stats)| {
            let mut sum = control::ExitCounts::new();
            stats.vcpus.iter().for_each(|vcpu| sum.add(&vcpu.exits));
            let counts: Vec<_> = sum.iter().collect();
            counts
                .into_iter()
                .map(move |(cause, count)| ([of.clone(), vec![label("cause", cause.label())]].concat(), count as f64))
        });
        writer.counter("vm_exits", "Exits from the guest to the monitor", None, exits.collect())?;
        let moves = vms().map(|(of, stats)| (of, stats.vcpus.iter().map(|vcpu| vcpu.migrations).sum::<u64>() as f64));
        writer.counter("vm_vcpu_moves", "Moves of vCPUs between harts", None, moves.collect())?;
        let disk = vms().flat_map(|(of, stats)| {
            let kinds = [("read", stats.disk_read_sectors), ("write", stats.disk_written_sectors)];
            kinds.map(|(kind, count)| ([of.clone(), vec![label("direction", kind)]].concat(), (count * SECTOR) as f64))
        });
        writer.counter("vm_disk", "Bytes that the guest read and wrote", Some(Unit::Bytes), disk.collect())?;
        let net = vms().flat_map(|(of, stats)| {
            let kinds = [("send", stats.net_sent_bytes), ("receive", stats.net_received_bytes)];
            kinds.map(|(kind, bytes)| ([of.clone(), vec![label("direction", kind)]].concat(), bytes as f64))
        });
        writer.counter("vm_network", "Bytes to and from the VM's subnets", Some(Unit::Bytes), net.collect())?;
        let pages = vms().flat_map(|(of, stats)| {
            let kinds = [
                ("returned", stats.pages_returned),
                ("mapped", stats.pages_mapped),
                ("unshared", stats.pages_unshared),
                ("merged", stats.pages_merged),
                ("migrated", stats.placement.migrated_pages + 512 * stats.placement.migrated_blocks),
                ("replicated", stats.placement.replicated_pages),
                ("collapsed", stats.placement.collapsed_pages),
            ];
            kinds.map(|(kind, count)| ([of.clone(), vec![label("what", kind)]].concat(), count as f64))
        });
        writer.counter("vm_pages", "Pages of 4 KiB, by what became of them", None, pages.collect())
    }
}
