//! Answers that describe the machine and its VMs.

use crate::{
    hart, io,
    machine::{self, HOME_NODE, boards, cell, image, memory},
    services::{
        cells, modules,
        registry::{self, Record, Totals},
    },
    vm::platform::Slot,
};
use addr::{BASE_PAGE, NodeId, VcpuIndex, VmId};
use alloc::string::String;
use alloc::vec::Vec;
use control::{
    CellInfo, CellLoad, CellState, ControlError, DeviceInfo, DeviceKind, DiskMode, DiskSpec, DiskUse, EventBatch,
    ExitCounts, ExitTrace, FirmwareInfo, Followed, HartInfo, HartStats, InterruptArchitecture, Latencies, MachineInfo,
    MachineStats, MonitorInfo, MonitorMemory, MonitorMemoryKind, Name, NodeInfo, NodeStats, Reply, ShareStats,
    VmMemory, VmState, VmStats, VmSummary,
};
use core::sync::atomic::Ordering;
use frames::PageState;
use rv::{csr, sbi};

/// Events in one answer: all of them fit a frame.
const EVENTS_PER_ANSWER: usize = 64;

pub(super) fn machine() -> Reply {
    let description = machine::description();
    let (implementation, implementation_version) = sbi::implementation();
    let distances = description
        .nodes
        .ids()
        .flat_map(|from| description.nodes.ids().map(move |to| description.nodes.distance(from, to)));
    Reply::Machine(alloc::boxed::Box::new(MachineInfo {
        name: machine::name(),
        model: description.model.clone(),
        nodes: description.nodes.ids().map(node_info).collect(),
        distances: distances.collect(),
        harts: hart::all().iter().map(|hart| hart_info(hart)).collect(),
        disks: io::disks::list(),
        devices: devices(),
        timebase_hz: description.timebase_hz,
        now_ticks: csr::time::read(),
        firmware: FirmwareInfo { sbi_version: sbi::spec_version() as u32, implementation, implementation_version },
        monitor: monitor_info(),
        interrupts: interrupt_architecture(),
        modules: modules::list(),
    }))
}

fn node_info(id: NodeId) -> NodeInfo {
    let counts = memory::frames().counts(id);
    NodeInfo { id, total_bytes: counts.total() * BASE_PAGE, free_bytes: counts.get(PageState::Free) * BASE_PAGE }
}

fn hart_info(hart: &hart::Hart) -> HartInfo {
    let isa = machine::description().hart(hart.hart_id).map(|found| {
        let mut text = String::from("rv64");
        for name in found.extensions.iter().map(machine_tree::Extension::name) {
            // As device trees spell it: single letters in a row, longer names apart.
            text.push_str(if name.len() > 1 { "_" } else { "" });
            text.push_str(name);
        }
        text
    });
    HartInfo {
        index: hart.cpu,
        hart: hart.hart_id,
        node: hart.node,
        online: hart.is_online(),
        isa: isa.unwrap_or_default(),
        guest_files: machine::capabilities().guest_files,
    }
}

fn devices() -> Vec<DeviceInfo> {
    let uarts = machine::description().uarts.iter().map(|uart| DeviceInfo {
        kind: DeviceKind::Uart,
        location: alloc::format!("{:#x}", uart.registers.start().raw()),
        node: None,
    });
    uarts.chain(io::disks::devices()).collect()
}

fn monitor_info() -> MonitorInfo {
    let parts = image::parts();
    MonitorInfo {
        version: crate::version::text(),
        text_bytes: parts.text_end - parts.start,
        rodata_bytes: parts.rodata_end - parts.text_end,
        data_bytes: parts.end - parts.rodata_end,
        gstage_mode: alloc::format!("{:?}", machine::capabilities().gstage_mode),
        vmid_bits: machine::capabilities().vmid_bits,
    }
}

fn interrupt_architecture() -> InterruptArchitecture {
    let controllers = &machine::description().controllers;
    if controllers.imsic.is_some() {
        InterruptArchitecture::Aia
    } else if controllers.aplics.is_empty() {
        InterruptArchitecture::Plic
    } else {
        InterruptArchitecture::Aplic
    }
}

pub(super) fn summaries() -> Vec<VmSummary> {
    let now = csr::time::read();
    registry::lock().records().map(|record| summary(record, now)).collect()
}

fn summary(record: &Record, now: u64) -> VmSummary {
    VmSummary {
        name: record.spec.name.clone(),
        id: record.id,
        state: record.state,
        reason: record.reason.clone(),
        vcpus: record.spec.vcpus,
        memory_mib: record.spec.memory_mib,
        promised_mib: record.spec.kept_mib(),
        resident: record.life.as_ref().map(|life| told(life.resident())).unwrap_or_default(),
        uptime_ticks: record.uptime(now),
        resets: record.resets,
        cell: cell::index() as u8,
        disks: disks_of(record),
    }
}

/// Nodes are told by the machine's numbers, but in the leader, whose numbers are those of [`machine`]'s answer.
fn told(mut resident: Vec<VmMemory>) -> Vec<VmMemory> {
    if !cells::is_leader() {
        for part in &mut resident {
            part.node = cell::nodes().get(part.node.index()).copied().unwrap_or(part.node);
        }
    }
    resident
}

/// This cell.
pub(super) fn own_cell() -> CellInfo {
    let free = machine::description().nodes.ids().map(|node| memory::frames().counts(node).get(PageState::Free));
    let registry = registry::lock();
    let load = CellLoad {
        free_bytes: free.sum::<u64>() * BASE_PAGE,
        vms: registry.records().count() as u16,
        running_vms: registry.records().filter(|record| record.state != VmState::Stopped).count() as u16,
    };
    let epoch = cells::view().map_or(0, |view| view.epoch);
    CellInfo { state: CellState::In, epoch, load: Some(load), ..cell_without(cell::index()) }
}

/// What is known of a cell without asking it.
fn cell_without(index: usize) -> CellInfo {
    let facts = cell::facts(index);
    let id = ::cell::CellId::new(index);
    let loss = id.and_then(cells::loss_of);
    let state = match (loss, id) {
        (Some(loss), _) => CellState::Lost(loss.cause),
        (None, Some(id)) if boards::first_view().is_some_and(|(_, view)| view.members.contains(id)) => {
            CellState::Booting
        }
        _ => CellState::Absent,
    };
    CellInfo {
        index: index as u8,
        name: facts.map_or_else(machine::name, |facts| facts.name.clone()),
        // Bounded: nodes of the machine.
        nodes: cell::nodes_of(index).to_vec(),
        harts: facts.map_or(0, |facts| facts.harts.len() as u16),
        total_bytes: facts.map_or(0, |facts| facts.bytes),
        state,
        epoch: loss.map_or(0, |loss| loss.epoch),
        load: None,
    }
}

/// All cells: those that have answered, and what is known of the others.
pub(super) fn all_cells(answered: Vec<CellInfo>) -> Vec<CellInfo> {
    let answer = |index: usize| answered.iter().find(|cell| usize::from(cell.index) == index).cloned();
    (0..cell::count()).map(|index| answer(index).unwrap_or_else(|| cell_without(index))).collect()
}

fn disks_of(record: &Record) -> Vec<DiskUse> {
    const MIB: u64 = 1 << 20;
    let spec = &record.spec;
    // Disks have the first slots, in their order.
    let used = |slot| record.life.as_ref().and_then(|life| life.platform().slot(slot)).map_or(0, Slot::disk_used_bytes);
    let disks = spec.disks.iter().enumerate().filter(|(_, disk)| disk.mode == DiskMode::CopyOnWrite);
    let of = |(slot, disk): (usize, &DiskSpec)| DiskUse {
        name: disk.name.clone(),
        lasts: disk.overlay.is_some(),
        used_bytes: used(slot),
        limit_bytes: spec.limit_mib(disk).or(disk.limit_mib).map(|limit| u64::from(limit) * MIB),
    };
    disks.map(of).collect()
}

pub(super) fn machine_stats() -> Reply {
    let now_ticks = csr::time::read();
    let nodes = || machine::description().nodes.ids();
    Reply::MachineStats(MachineStats {
        now_ticks,
        harts: hart::all().iter().map(|hart| hart_stats(hart, now_ticks)).collect(),
        nodes: nodes().map(node_stats).collect(),
        disks: io::disks::stats(),
        monitor: nodes().flat_map(monitor_memory).collect(),
    })
}

fn hart_stats(hart: &hart::Hart, now: u64) -> HartStats {
    let counters = &hart.counters;
    let online = counters.online_at.load(Ordering::Relaxed);
    let (guest_ticks, idle_ticks) = (counters.guest.read(now), counters.idle.read(now));
    let since = if online == 0 { 0 } else { now.saturating_sub(online) };
    let running = counters.running.load(Ordering::Relaxed);
    HartStats {
        index: hart.cpu,
        node: hart.node,
        guest_ticks,
        monitor_ticks: since.saturating_sub(guest_ticks + idle_ticks),
        idle_ticks,
        switches: counters.switches.load(Ordering::Relaxed),
        queued: counters.queued.load(Ordering::Relaxed),
        running: (running != u32::MAX).then_some((VmId(running as u16), VcpuIndex((running >> 16) as u16))),
        exits: exits_on(hart),
        stretches: counters.stretches.read(),
    }
}

/// Exits of the vCPUs that the hart owns now.
fn exits_on(hart: &hart::Hart) -> ExitCounts {
    let registry = registry::lock();
    let lives = registry.records().filter_map(|record| record.life.as_ref());
    let own = lives.flat_map(|life| life.vcpus()).filter(|vcpu| vcpu.cpu() == hart.cpu);
    let mut sum = ExitCounts::new();
    own.for_each(|vcpu| sum.add(&vcpu.counters.exits()));
    sum
}

fn node_stats(node: NodeId) -> NodeStats {
    let frames = memory::frames();
    let (counts, sharing) = (frames.counts(node), frames.sharing(node));
    NodeStats {
        node,
        total_bytes: counts.total() * BASE_PAGE,
        free_bytes: counts.get(PageState::Free) * BASE_PAGE,
        free_large_blocks: frames.free_large_blocks(node),
        disk_cache_bytes: io::disks::cache_bytes(node),
        shared_bytes: sharing.mapped_pages * BASE_PAGE,
        sharing_bytes: sharing.guest_pages * BASE_PAGE,
        private_bytes: counts.get(PageState::Private) * BASE_PAGE,
        sharable_bytes: counts.get(PageState::Shared) * BASE_PAGE,
    }
}

fn monitor_memory(node: NodeId) -> Vec<MonitorMemory> {
    let parts = image::parts();
    let is_home = node == HOME_NODE;
    let heap = machine::heap::bytes();
    let reserve = machine::heap_reserve::bytes();
    let heap_frames = if is_home { heap.from_frames + reserve } else { 0 };
    // Pages of disks are shared ones, not the monitor's. What is left: tables, stacks, back-maps.
    let pages = memory::frames().counts(node).get(PageState::Monitor) * BASE_PAGE;
    let tables = pages.saturating_sub(heap_frames);
    let mut found = alloc::vec![
        (MonitorMemoryKind::Image, (parts.rodata_end - parts.start).next_multiple_of(BASE_PAGE)),
        (MonitorMemoryKind::Memmap, memory::memmap_bytes(node)),
        (MonitorMemoryKind::PageTables, tables),
    ];
    if is_home {
        found.push((MonitorMemoryKind::HeapUsed, heap.used));
        found.push((MonitorMemoryKind::HeapFree, heap.free + reserve));
        found.push((MonitorMemoryKind::Modules, modules::bytes()));
    }
    found.into_iter().map(|(kind, bytes)| MonitorMemory { node, kind, bytes }).collect()
}

pub(super) fn vm_stats(name: &Name) -> Result<Reply, ControlError> {
    let mut registry = registry::lock();
    let record = registry.find(name)?;
    let life = record.life.as_ref();
    let Totals { traffic, pages_returned, pages_shared, pages_merged: (pages_merged, zero_pages_returned), placement } =
        record.totals();
    let (pages_mapped, pages_unshared) = pages_shared;
    Ok(Reply::VmStats(alloc::boxed::Box::new(VmStats {
        name: name.clone(),
        id: record.id,
        now_ticks: csr::time::read(),
        vcpus: record.vcpus.iter().map(|vcpu| vcpu.stats(record.id, record.state)).collect(),
        memory: life.map(|life| life.resident()).unwrap_or_default(),
        disk_read_sectors: traffic.disk_read_sectors,
        disk_written_sectors: traffic.disk_written_sectors,
        net_sent_bytes: traffic.net_sent_bytes,
        net_received_bytes: traffic.net_received_bytes,
        pages_returned,
        pages_mapped,
        pages_unshared,
        pages_merged,
        zero_pages_returned,
        placement,
        share: share_stats(record),
    })))
}

fn share_stats(record: &Record) -> ShareStats {
    let waits = record.vcpus.iter().map(|vcpu| vcpu.counters.waits());
    let (wakes, steals) = waits.fold(Default::default(), |(wakes, steals): (Latencies, Latencies), vcpu| {
        (wakes.and(&vcpu.0), steals.and(&vcpu.1))
    });
    let (weight, gang) = (record.spec.weight, record.spec.gang);
    let share = ShareStats { weight, gang, gathers: false, turns: 0, wakes, steals };
    record.life.as_ref().map_or(share, |life| {
        let gathers = life.vcpus().len() > 1 && life.together().gathers();
        ShareStats { gathers, turns: life.together().turns(), ..share }
    })
}

pub(super) fn page_map(name: &Name, first: u64) -> Result<Reply, ControlError> {
    let life = registry::lock().find(name)?.life.clone();
    Ok(Reply::PageMap { kinds: life.map_or_else(Vec::new, |life| life.memory().page_kinds(first)) })
}

pub(super) fn exit_trace(name: &Name, vcpu: VcpuIndex) -> Result<Reply, ControlError> {
    let mut registry = registry::lock();
    let record = registry.find(name)?;
    match record.vcpus.get(usize::from(vcpu.0)) {
        Some(vcpu) => Ok(Reply::ExitTrace(vcpu.trace.read())),
        None if vcpu.0 < record.spec.vcpus => Ok(Reply::ExitTrace(ExitTrace { lost: 0, exits: Vec::new() })),
        None => {
            let last = record.spec.vcpus.saturating_sub(1);
            Err(ControlError::NoSuchVcpu { vm: name.clone(), vcpu: vcpu.0, last })
        }
    }
}

pub(super) fn events(from: u64) -> Reply {
    Reply::Events(event_batch(from, EVENTS_PER_ANSWER, Followed::All))
}

pub(super) fn event_batch(from: u64, max: usize, which: Followed) -> EventBatch {
    let names: Vec<(VmId, Name)> =
        registry::lock().records().map(|record| (record.id, record.spec.name.clone())).collect();
    crate::trace::read(from, max, which, |id| {
        names.iter().find(|(known, _)| *known == id).map(|(_, name)| name.clone())
    })
}
