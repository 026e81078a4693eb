//! A machine for tests: fixed numbers, any size.

use addr::{CpuIndex, HartId, NodeId, VcpuIndex, VmId};
use control::{
    DeviceInfo, DeviceKind, DiskInfo, ExitCause, ExitCounts, FirmwareInfo, HartInfo, HartStats, InterruptArchitecture,
    Label, MachineInfo, MachineStats, ModuleInfo, MonitorInfo, MonitorMemory, MonitorMemoryKind, Name, NodeInfo,
    NodeStats, StopReason, VcpuState, VcpuStats, VmMemory, VmState, VmStats, VmSummary,
};

use super::{MachineView, Sample};

/// Ticks per second.
pub const HZ: u64 = 10_000_000;
const MIB: u64 = 1 << 20;

/// The size of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: u8,
    pub harts_per_node: u16,
    pub vms: u16,
    pub vcpus: u16,
}

/// The demo machine.
pub const DEMO: Size = Size { nodes: 4, harts_per_node: 2, vms: 4, vcpus: 2 };

/// A view of a machine of this size, with rates over one second.
pub fn view(size: Size) -> MachineView {
    MachineView::new(&sample(size, 61), Some(&sample(size, 60)))
}

/// All counters after so many seconds.
pub fn sample(size: Size, at_s: u64) -> Sample {
    let vms: Vec<VmSummary> = (0..size.vms).map(|index| summary(size, index, at_s)).collect();
    Sample {
        info: info(size, at_s),
        stats: stats(size, at_s),
        vm_stats: vms.iter().map(|vm| (vm.id, vm_stats(size, vm, at_s))).collect(),
        vms,
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn exits(seed: u64, at_s: u64) -> ExitCounts {
    let mut counts = ExitCounts::new();
    let per_second = [
        (ExitCause::StoreGuestPageFault, 410),
        (ExitCause::SbiCall, 120),
        (ExitCause::MmioStore, 1_530),
        (ExitCause::MmioLoad, 640),
        (ExitCause::TimerInterrupt, 100),
        (ExitCause::Wfi, 33),
        (ExitCause::FpLazy, 7),
    ];
    for (cause, rate) in per_second {
        counts.0[cause.index()] = (rate + 3 * seed) * at_s;
    }
    counts
}

fn info(size: Size, at_s: u64) -> MachineInfo {
    let nodes = usize::from(size.nodes);
    let distance = |place: usize| if place / nodes == place % nodes { 10 } else { 20 };
    MachineInfo {
        name: name("demo"),
        model: "riscv-virtio,qemu".into(),
        nodes: (0..size.nodes)
            .map(|id| NodeInfo { id: NodeId(id), total_bytes: 1024 * MIB, free_bytes: 600 * MIB })
            .collect(),
        distances: (0..nodes * nodes).map(distance).collect(),
        harts: (0..u16::from(size.nodes) * size.harts_per_node)
            .map(|index| HartInfo {
                index: CpuIndex(index),
                hart: HartId(u64::from(index)),
                node: NodeId((index / size.harts_per_node) as u8),
                online: true,
                isa: "rv64imafdcvh sv39 sstc".into(),
                guest_files: 7,
            })
            .collect(),
        disks: vec![DiskInfo {
            name: name("debian"),
            bytes: 2048 * MIB,
            read_only: false,
            partitions: vec!["root".into()],
            persistent_for: None,
        }],
        devices: vec![DeviceInfo { kind: DeviceKind::Uart, location: "/soc/serial@10000000".into(), node: None }],
        timebase_hz: HZ,
        now_ticks: at_s * HZ,
        firmware: FirmwareInfo { sbi_version: 2 << 24, implementation: 1, implementation_version: 0x1_0005 },
        monitor: MonitorInfo {
            version: "0.1.0 (0123456)".into(),
            text_bytes: 180 * 1024,
            rodata_bytes: 40 * 1024,
            data_bytes: 30 * 1024,
            gstage_mode: "sv39x4".into(),
            vmid_bits: 14,
        },
        interrupts: InterruptArchitecture::Aia,
        modules: vec![ModuleInfo { name: Label::new("Image.0123abcd").expect("a label"), bytes: 30 * MIB }],
    }
}

fn stats(size: Size, at_s: u64) -> MachineStats {
    let harts = u16::from(size.nodes) * size.harts_per_node;
    let hart = |index: u16| {
        // Every hart another load, the last one idle.
        let guest = if index + 1 == harts { 0 } else { (97 - 11 * u64::from(index % 8)) * HZ / 100 };
        let monitor = if index + 1 == harts { 0 } else { (1 + u64::from(index % 4)) * HZ / 100 };
        HartStats {
            index: CpuIndex(index),
            node: NodeId((index / size.harts_per_node) as u8),
            guest_ticks: guest * at_s,
            monitor_ticks: monitor * at_s,
            idle_ticks: (HZ - guest - monitor) * at_s,
            switches: u64::from(index) * 10 * at_s,
            queued: u32::from(index % 3),
            running: (guest > 0 && size.vms > 0)
                .then(|| (VmId(1 + index % size.vms), VcpuIndex(index / size.vms % size.vcpus.max(1)))),
            exits: if guest > 0 { exits(u64::from(index), at_s) } else { ExitCounts::new() },
        }
    };
    let node = |id: u8| NodeStats {
        node: NodeId(id),
        total_bytes: 1024 * MIB,
        free_bytes: (640 - 60 * u64::from(id % 4)) * MIB,
        free_large_blocks: 200,
        disk_cache_bytes: 64 * MIB,
    };
    let monitor = |id: u8| {
        let part = |kind, bytes| MonitorMemory { node: NodeId(id), kind, bytes };
        [
            part(MonitorMemoryKind::Image, 256 * 1024),
            part(MonitorMemoryKind::Memmap, 8 * MIB),
            part(MonitorMemoryKind::HeapUsed, MIB),
        ]
    };
    MachineStats {
        now_ticks: at_s * HZ,
        harts: (0..harts).map(hart).collect(),
        nodes: (0..size.nodes).map(node).collect(),
        monitor: (0..size.nodes).flat_map(monitor).collect(),
    }
}

fn summary(size: Size, index: u16, at_s: u64) -> VmSummary {
    let is_stopped = index > 0 && index + 1 == size.vms;
    let fault = StopReason::GuestFault {
        vcpu: Some(VcpuIndex(1)),
        device: "virtio-blk root".into(),
        reason: "descriptor outside memory".into(),
        value: 0xdead_0000,
    };
    let memory = VmMemory {
        node: NodeId((index % u16::from(size.nodes)) as u8),
        large_pages: 120 * 512,
        private_pages: 3_000 + 500 * u64::from(index),
        shared_pages: 2_048,
        replica_pages: 0,
        disk_pages: 700,
        table_pages: 14,
        monitor_pages: 120,
    };
    let far = VmMemory {
        node: NodeId(((index + 1) % u16::from(size.nodes)) as u8),
        private_pages: 900,
        ..VmMemory::default()
    };
    VmSummary {
        name: name(&format!("build-{}", index + 1)),
        id: VmId(index + 1),
        state: if is_stopped { VmState::Stopped } else { VmState::Running },
        reason: is_stopped.then_some(fault),
        vcpus: size.vcpus,
        memory_mib: 512,
        resident: if is_stopped { Vec::new() } else { vec![memory, far] },
        uptime_ticks: if is_stopped { 0 } else { at_s * HZ },
        resets: u32::from(index == 1),
    }
}

fn vm_stats(size: Size, vm: &VmSummary, at_s: u64) -> VmStats {
    let is_running = vm.state == VmState::Running;
    let vcpu = |index: u16| VcpuStats {
        index: VcpuIndex(index),
        state: if !is_running {
            VcpuState::Stopped
        } else if index == 0 {
            VcpuState::Running
        } else {
            VcpuState::Waiting
        },
        hart: CpuIndex((vm.id.0 - 1 + index * size.vms) % (u16::from(size.nodes) * size.harts_per_node)),
        run_ticks: if is_running { (9 - u64::from(index) % 4 * 2) * HZ / 10 * at_s } else { 300 * HZ },
        wait_ticks: if is_running { HZ / 50 * at_s } else { HZ },
        faults: 400 * at_s,
        migrations: u64::from(index),
        exits: if is_running { exits(u64::from(vm.id.0 + index), at_s) } else { exits(1, 1) },
    };
    VmStats {
        name: vm.name.clone(),
        id: vm.id,
        now_ticks: at_s * HZ,
        vcpus: (0..vm.vcpus).map(vcpu).collect(),
        memory: vm.resident.clone(),
        disk_read_sectors: 5_000 * at_s,
        disk_written_sectors: 2_000 * at_s,
        net_sent_bytes: 100_000 * at_s,
        net_received_bytes: 900_000 * at_s,
        pages_returned: 64 * at_s,
    }
}
