//! `info`: what a machine is.

use super::Context;
use crate::failure::Failure;
use crate::model::InfoView;
use crate::output::{Cell, Table, harmless, units};

pub fn run(context: &Context, json: bool) -> Result<(), Failure> {
    let view = InfoView::from(&context.connect()?.machine_info()?);
    if json {
        return context.output.json(&view);
    }
    let output = &context.output;
    output.title(&format!("{}  {}", view.machine, harmless(&view.model)))?;
    output.line(format!("monitor     {}, {}, {} VMID bits", view.monitor_version, view.gstage_mode, view.vmid_bits))?;
    output.line(format!("firmware    {}, SBI {}", view.firmware, view.sbi_version))?;
    output.line(format!("interrupts  {}", view.interrupts))?;
    if let Some(counters) = view.miss_counters {
        let pages = units::count(counters.pages);
        output.line(format!("counters    model file version {}, misses on {pages} pages", counters.layout))?;
    }
    for table in [nodes(&view), harts(&view), disks(&view), devices(&view), modules(&view)] {
        if !table.is_empty() {
            output.line("")?;
            output.table(&table)?;
        }
    }
    isa_lines(&view).iter().try_for_each(|line| output.line(line))
}

/// ISAs are long, and most harts have the same one: a line for each that occurs, with its harts.
fn isa_lines(view: &InfoView) -> Vec<String> {
    let mut harts_by_isa: Vec<(&str, Vec<u16>)> = Vec::new();
    for hart in &view.harts {
        match harts_by_isa.iter_mut().find(|(isa, _)| *isa == hart.isa) {
            Some((_, harts)) => harts.push(hart.index),
            None => harts_by_isa.push((&hart.isa, vec![hart.index])),
        }
    }
    let is_only = harts_by_isa.len() == 1;
    let line = |(isa, harts): &(&str, Vec<u16>)| {
        let list = harts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let whose = if is_only { "all harts".to_owned() } else { format!("harts {list}") };
        format!("\nISA of {whose}: {}", harmless(isa))
    };
    harts_by_isa.iter().map(line).collect()
}

fn nodes(view: &InfoView) -> Table {
    let mut table = Table::new(&["NODE", ">MEMORY", ">FREE", ">HARTS", "DISTANCES"]);
    for node in &view.nodes {
        let harts = view.harts.iter().filter(|hart| hart.node == node.id).count();
        let distances = view.distances.get(usize::from(node.id)).map(Vec::as_slice).unwrap_or_default();
        table.row([
            node.id.to_string().into(),
            units::bytes(node.total_bytes).into(),
            units::bytes(node.free_bytes).into(),
            harts.to_string().into(),
            distances.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ").into(),
        ]);
    }
    table
}

fn harts(view: &InfoView) -> Table {
    let mut table = Table::new(&["HART", ">SBI ID", ">NODE", "STATE", ">GUEST FILES"]);
    for hart in &view.harts {
        table.row([
            hart.index.to_string().into(),
            hart.hart_id.to_string().into(),
            hart.node.to_string().into(),
            if hart.online { "online" } else { "offline" }.into(),
            hart.guest_files.to_string().into(),
        ]);
    }
    table
}

fn disks(view: &InfoView) -> Table {
    let mut table = Table::new(&["DISK", ">SIZE", "ACCESS", "PARTITIONS", "PERSISTENT FOR"]);
    for disk in &view.disks {
        table.row([
            disk.name.clone().into(),
            units::bytes(disk.bytes).into(),
            if disk.read_only { "read-only" } else { "read-write" }.into(),
            harmless(&disk.partitions.join(", ")).into(),
            Cell::from(disk.persistent_for.clone().unwrap_or_default()),
        ]);
    }
    table
}

fn devices(view: &InfoView) -> Table {
    let mut table = Table::new(&["DEVICE", "PLACE", ">NODE"]);
    for device in &view.devices {
        let node = device.node.map_or_else(|| "-".to_owned(), |node| node.to_string());
        table.row([device.kind.into(), harmless(&device.location).into(), node.into()]);
    }
    table
}

fn modules(view: &InfoView) -> Table {
    let mut table = Table::new(&["MODULE", ">SIZE"]);
    for module in &view.modules {
        table.row([module.name.clone().into(), units::bytes(module.bytes).into()]);
    }
    table
}
