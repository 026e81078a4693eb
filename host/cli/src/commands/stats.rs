//! `stats`: all counters.

use std::thread;

use control::{ControlError, Name};
use machine::{Client, ClientError};

use super::Context;
use crate::args::Stats;
use crate::failure::Failure;
use crate::model::{ExitsView, LatencyView, MachineView, PlacementView, Sample, VmView};
use crate::output::{Table, units};

pub fn run(context: &Context, args: &Stats) -> Result<(), Failure> {
    let view = look(&context.connect()?, args)?;
    let vms = chosen(&view, &args.vms)?;
    match (args.json.json, args.vms.is_empty()) {
        (true, true) => context.output.json(&view),
        (true, false) => context.output.json(&vms),
        (false, is_all) => print(context, &view, &vms, is_all),
    }
}

/// One look at the machine, or two with rates between them.
fn look(client: &Client, args: &Stats) -> Result<MachineView, Failure> {
    let first = Sample::collect(client)?;
    let Some(interval) = args.rates else { return Ok(MachineView::new(&first, None)) };
    thread::sleep(interval);
    let second = Sample::collect_with(client, first.info.clone())?;
    Ok(MachineView::new(&second, Some(&first)))
}

fn chosen<'a>(view: &'a MachineView, names: &[Name]) -> Result<Vec<&'a VmView>, Failure> {
    if names.is_empty() {
        return Ok(view.vms.iter().collect());
    }
    let find = |name: &Name| {
        let unknown = || ClientError::Refused(ControlError::UnknownVm { name: name.clone() });
        view.vm(name.as_str()).ok_or_else(unknown)
    };
    Ok(names.iter().map(find).collect::<Result<_, _>>()?)
}

fn print(context: &Context, view: &MachineView, vms: &[&VmView], is_all: bool) -> Result<(), Failure> {
    let mut tables = Vec::new();
    if is_all {
        tables.extend([
            hart_table(view),
            stretch_table(view),
            node_table(view),
            footprint_table(view),
            disk_table(view),
            monitor_table(view),
        ]);
    }
    tables.extend([
        vm_table(vms),
        share_table(vms),
        placement_table(vms),
        vcpu_table(vms),
        exit_table(view, vms, is_all),
    ]);
    let mut is_first = true;
    for table in tables.iter().filter(|table| !table.is_empty()) {
        if !std::mem::take(&mut is_first) {
            context.output.line("")?;
        }
        context.output.table(table)?;
    }
    Ok(())
}

fn hart_table(view: &MachineView) -> Table {
    let mut table = Table::new(&[
        "HART",
        ">NODE",
        ">GUEST",
        ">MONITOR",
        ">IDLE",
        ">BUSY%",
        ">EXITS",
        ">EXITS/s",
        ">SWITCHES",
        "RUNS",
    ]);
    for hart in &view.harts {
        let runs = hart.running.as_ref().map(|vcpu| format!("{}/{}", vcpu.vm.as_deref().unwrap_or("?"), vcpu.vcpu));
        let rate = |text: fn(&crate::model::Load) -> String| hart.load.as_ref().map_or_else(|| "-".to_owned(), text);
        table.row([
            hart.index.to_string().into(),
            hart.node.to_string().into(),
            units::seconds(hart.guest_s).into(),
            units::seconds(hart.monitor_s).into(),
            units::seconds(hart.idle_s).into(),
            rate(|load| units::percent(load.busy())).into(),
            units::count(hart.exits_total).into(),
            rate(|load| units::rate(load.exits_per_s)).into(),
            units::count(hart.switches).into(),
            runs.unwrap_or_else(|| "-".to_owned()).into(),
        ]);
    }
    table
}

/// For how long harts were in the monitor at a time: so long no interrupt is taken.
fn stretch_table(view: &MachineView) -> Table {
    let mut table = Table::new(&["HART", ">TIMES INTERRUPTS OFF", ">99.9% UP TO", ">LONGEST", "LONGEST WAS FOR"]);
    for hart in &view.harts {
        let stretches = &hart.stretches;
        table.row([
            hart.index.to_string().into(),
            units::count(stretches.total).into(),
            stretches.p999().into(),
            format!("{:.0} us", stretches.worst_us).into(),
            stretches.worst_activity.clone().into(),
        ]);
    }
    table
}

fn node_table(view: &MachineView) -> Table {
    let mut table = Table::new(&[
        "NODE",
        ">MEMORY",
        ">FREE",
        ">2 MiB BLOCKS",
        ">VMS",
        ">DISK CACHE",
        ">SHARED",
        ">SHARING",
        ">MONITOR",
    ]);
    for node in &view.nodes {
        table.row([
            node.id.to_string().into(),
            units::bytes(node.total_bytes).into(),
            units::bytes(node.free_bytes).into(),
            units::count(node.free_large_blocks).into(),
            units::bytes(node.vm_bytes).into(),
            units::bytes(node.disk_cache_bytes).into(),
            units::bytes(node.shared_bytes).into(),
            units::bytes(node.sharing_bytes).into(),
            units::bytes(node.monitor_bytes).into(),
        ]);
    }
    table
}

/// Memory by kind: as if nothing were shared, and as it is.
fn footprint_table(view: &MachineView) -> Table {
    let footprint = &view.footprint;
    let mut table = Table::new(&["MEMORY", ">VIRTUAL", ">MACHINE"]);
    let mut line = |what: &'static str, seen: u64, used: u64| {
        table.row([what.into(), units::bytes(seen).into(), units::bytes(used).into()]);
    };
    line("of one VM each", footprint.private_bytes, footprint.private_bytes);
    line("shared by VMs", footprint.sharing_bytes, footprint.shared_bytes);
    line("disk cache, modified blocks", 0, footprint.unmapped_bytes);
    line("monitor", 0, footprint.monitor_bytes);
    line("all", footprint.virtual_bytes, footprint.machine_bytes);
    table
}

/// Disks and their caches: what reads found, and what of it was mapped and not copied.
fn disk_table(view: &MachineView) -> Table {
    let mut table = Table::new(&[
        "DISK",
        ">CACHED",
        ">HITS",
        ">MISSES",
        ">JOINS",
        ">MAPPED",
        ">COPIED",
        ">MAPPED%",
        ">READ",
        ">WRITTEN",
        ">RECLAIMED",
    ]);
    for disk in &view.disks {
        table.row([
            disk.name.clone().into(),
            units::bytes(disk.cached_bytes).into(),
            units::count(disk.hits).into(),
            units::count(disk.misses).into(),
            units::count(disk.joins).into(),
            units::bytes(disk.mapped_bytes).into(),
            units::bytes(disk.unaligned_bytes.saturating_add(disk.refused_bytes)).into(),
            disk.mapped_share.map_or_else(|| "-".to_owned(), units::percent).into(),
            units::bytes(disk.read_bytes).into(),
            units::bytes(disk.written_bytes).into(),
            units::count(disk.reclaimed_pages).into(),
        ]);
    }
    table
}

fn monitor_table(view: &MachineView) -> Table {
    let monitor = &view.monitor;
    let mut table = Table::new(&["MONITOR", ">"]);
    let mut line = |what: &'static str, value: String| table.row([what.into(), value.into()]);
    line("version", monitor.version.clone());
    line("text + rodata", units::bytes(monitor.text_bytes + monitor.rodata_bytes));
    line("data", units::bytes(monitor.data_bytes));
    line("time", units::seconds(monitor.time_s));
    line("memory", units::bytes(monitor.memory_bytes));
    for (kind, bytes) in monitor.memory_by_kind() {
        line(kind, units::bytes(bytes));
    }
    table
}

fn vm_table(vms: &[&VmView]) -> Table {
    let mut table = Table::new(&[
        "VM",
        "STATE",
        ">RAN",
        ">WAITED",
        ">CPU%",
        ">EXITS",
        ">EXITS/s",
        ">FAULTS",
        ">RESIDENT",
        ">DISK READ",
        ">WRITTEN",
        ">NET SENT",
        ">RECEIVED",
        ">RETURNED",
        ">MAPPED",
        ">UNSHARED",
        ">MERGED",
        ">ZEROES",
    ]);
    for vm in vms {
        let Some(counters) = &vm.counters else { continue };
        let rate = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        table.row([
            vm.name.clone().into(),
            vm.state.into(),
            units::seconds(counters.run_s).into(),
            units::seconds(counters.wait_s).into(),
            rate(counters.rates.map(|rates| units::percent(rates.run))).into(),
            units::count(counters.exits_total).into(),
            rate(counters.rates.map(|rates| units::rate(rates.exits_per_s))).into(),
            units::count(counters.faults).into(),
            units::bytes(vm.resident_bytes).into(),
            units::bytes(counters.disk_read_bytes).into(),
            units::bytes(counters.disk_written_bytes).into(),
            units::bytes(counters.net_sent_bytes).into(),
            units::bytes(counters.net_received_bytes).into(),
            units::bytes(counters.returned_bytes).into(),
            units::bytes(counters.mapped_bytes).into(),
            units::bytes(counters.unshared_bytes).into(),
            units::bytes(counters.merged_bytes).into(),
            units::bytes(counters.zero_bytes).into(),
        ]);
    }
    table
}

/// How VMs share harts: how long their vCPUs wait for one.
fn share_table(vms: &[&VmView]) -> Table {
    let mut table = Table::new(&[
        "VM",
        ">WEIGHT",
        "GANG",
        "TOGETHER",
        ">TURNS",
        ">WAKE-UPS",
        ">HALF WITHIN",
        ">99 % WITHIN",
        ">STEALS",
        ">HALF WITHIN",
        ">99 % WITHIN",
    ]);
    let within = |limit: Option<u32>, waits: &LatencyView| match limit {
        Some(us) => units::seconds(f64::from(us) / 1e6),
        None if waits.total == 0 => "-".to_owned(),
        None => "longer".to_owned(),
    };
    for vm in vms {
        let Some(share) = vm.counters.as_ref().map(|counters| &counters.share) else { continue };
        let (wakes, steals) = (&share.wakes, &share.steals);
        table.row([
            vm.name.clone().into(),
            share.weight.to_string().into(),
            share.gang.into(),
            if share.together { "yes" } else { "no" }.into(),
            units::count(share.turns).into(),
            units::count(wakes.total).into(),
            within(wakes.p50_us, wakes).into(),
            within(wakes.p99_us, wakes).into(),
            units::count(steals.total).into(),
            within(steals.p50_us, steals).into(),
            within(steals.p99_us, steals).into(),
        ]);
    }
    table
}

/// What placement did, for VMs that it did anything for.
fn placement_table(vms: &[&VmView]) -> Table {
    let mut table = Table::new(&[
        "VM",
        ">MIGRATED",
        ">BLOCKS",
        ">REPLICATED",
        ">COLLAPSED",
        ">WATCHED",
        ">SPLIT",
        ">JOINED",
        ">STAYED",
    ]);
    for vm in vms {
        let Some(counters) = &vm.counters else { continue };
        let placement = &counters.placement;
        if *placement == PlacementView::default() {
            continue;
        }
        table.row([
            vm.name.clone().into(),
            units::bytes(placement.migrated_bytes).into(),
            units::count(placement.migrated_blocks).into(),
            units::bytes(placement.replicated_bytes).into(),
            units::bytes(placement.collapsed_bytes).into(),
            units::count(placement.watched_pages).into(),
            units::count(placement.split_blocks).into(),
            units::count(placement.joined_blocks).into(),
            units::count(placement.refused).into(),
        ]);
    }
    table
}

fn vcpu_table(vms: &[&VmView]) -> Table {
    let mut table = Table::new(&["VM", ">VCPU", "STATE", ">HART", ">RAN", ">WAITED", ">EXITS", ">FAULTS", ">MOVES"]);
    for (vm, vcpu) in
        vms.iter().flat_map(|vm| vm.counters.iter().flat_map(move |all| all.vcpus.iter().map(move |vcpu| (vm, vcpu))))
    {
        table.row([
            vm.name.clone().into(),
            vcpu.index.to_string().into(),
            vcpu.state.into(),
            vcpu.hart.to_string().into(),
            units::seconds(vcpu.run_s).into(),
            units::seconds(vcpu.wait_s).into(),
            units::count(vcpu.exits_total).into(),
            units::count(vcpu.faults).into(),
            units::count(vcpu.migrations).into(),
        ]);
    }
    table
}

/// Exits by cause over the machine (which counts VMs that are gone, too) or over the chosen VMs.
fn exit_table(view: &MachineView, vms: &[&VmView], is_all: bool) -> Table {
    let exits = if is_all {
        view.exits()
    } else {
        ExitsView::sum(vms.iter().filter_map(|vm| Some(&vm.counters.as_ref()?.exits)))
    };
    let mut table = Table::new(&["EXIT CAUSE", ">COUNT", ">SHARE"]);
    for (cause, count) in exits.ranked() {
        let share = count as f64 / exits.total().max(1) as f64;
        table.row([cause.label().into(), units::count(count).into(), format!("{}%", units::percent(share)).into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{DEMO, Size, sample, view};

    #[test]
    fn tables_read_well() {
        let view = view(DEMO);
        let vms: Vec<&VmView> = view.vms.iter().collect();
        let tables = [
            hart_table(&view),
            stretch_table(&view),
            node_table(&view),
            footprint_table(&view),
            disk_table(&view),
            monitor_table(&view),
            vm_table(&vms),
            vcpu_table(&vms),
            exit_table(&view, &vms, true),
        ];
        insta::assert_snapshot!(tables.map(|table| table.render(false)).join("\n"));
    }

    #[test]
    fn json_is_stable() {
        let size = Size { nodes: 1, harts_per_node: 2, vms: 1, vcpus: 1 };
        let with_rates = serde_json::to_string_pretty(&view(size)).expect("plain data");
        insta::assert_snapshot!("json_with_rates", with_rates);
        let without = serde_json::to_value(MachineView::new(&sample(size, 61), None)).expect("plain data");
        assert!(without["interval_s"].is_null() && without["harts"][0]["load"].is_null());
    }

    #[test]
    fn unknown_vms_are_refused() {
        let view = view(DEMO);
        let name = |text| Name::new(text).expect("a name");
        assert_eq!(chosen(&view, &[name("build-2")]).map(|vms| vms.len()).ok(), Some(1));
        assert!(chosen(&view, &[name("nobody")]).is_err());
    }
}
