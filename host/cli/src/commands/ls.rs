//! `ls`: what runs.

use machine::{Client, RunDir, RunRoot};
use serde::Serialize;

use super::Context;
use crate::args::Ls;
use crate::failure::Failure;
use crate::launched::{Home, Homes};
use crate::model::VmView;
use crate::output::{Cell, Table, Tone, units};

/// `ls --json`.
#[derive(Debug, Serialize)]
pub struct LsView {
    /// Machines of this user that run, or the one that was named.
    pub machines: Vec<MachineEntry>,
    /// With `--all`: VMs that are defined and do not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defined: Vec<DefinedEntry>,
}

/// A launched VM that does not run.
#[derive(Debug, Serialize)]
pub struct DefinedEntry {
    pub name: String,
    /// Its image in the store.
    pub image: String,
    pub machine_file: String,
}

/// A machine.
#[derive(Debug, Serialize)]
pub struct MachineEntry {
    pub name: String,
    /// `booting` or `running`.
    pub phase: String,
    /// The machine file, if known.
    pub file: Option<String>,
    /// The supervisor's process id.
    pub pid: Option<u32>,
    /// The monitor's version; nothing while it boots.
    pub monitor_version: Option<String>,
    /// Its VMs.
    pub vms: Vec<VmView>,
}

pub fn run(context: &Context, args: Ls) -> Result<(), Failure> {
    let json = args.json.json;
    let root = RunRoot::from_env();
    let dirs = match &context.global.machine {
        Some(name) => vec![machine::find(&root, Some(name))?],
        None => root.running(),
    };
    let machines = dirs.iter().map(entry).collect::<Result<_, _>>()?;
    let defined = if args.all { defined()? } else { Vec::new() };
    let view = LsView { machines, defined };
    if json {
        return context.output.json(&view);
    }
    if view.machines.is_empty() {
        context.say("no machine is running; start one with `mirrorball run MACHINE.toml`");
    }
    for (place, machine) in view.machines.iter().enumerate() {
        if place > 0 {
            context.output.line("")?;
        }
        print(context, machine)?;
    }
    if !view.defined.is_empty() {
        let mut table = Table::new(&["DEFINED", "IMAGE", "MACHINE FILE"]);
        for vm in view.defined {
            table.row([vm.name.into(), vm.image.into(), vm.machine_file.into()]);
        }
        context.output.table(&table)?;
    }
    Ok(())
}

fn defined() -> Result<Vec<DefinedEntry>, Failure> {
    let homes = Homes::from_env()?.list().into_iter().filter(|home| !home.is_running());
    let entry = |home: Home| DefinedEntry {
        name: home.name().to_string(),
        image: home.definition().map(|definition| definition.image).unwrap_or_default(),
        machine_file: home.machine_file().display().to_string(),
    };
    Ok(homes.map(entry).collect())
}

fn entry(dir: &RunDir) -> Result<MachineEntry, Failure> {
    let state = dir.state();
    let phase = state.as_ref().and_then(|state| serde_json::to_value(state.phase).ok());
    let phase = phase.as_ref().and_then(serde_json::Value::as_str).unwrap_or("booting").to_owned();
    let mut entry = MachineEntry {
        name: dir.name().to_string(),
        file: state.as_ref().and_then(|state| Some(state.config.as_ref()?.display().to_string())),
        pid: state.as_ref().map(|state| state.supervisor_pid),
        monitor_version: None,
        vms: Vec::new(),
        phase,
    };
    // The supervisor greets nobody before the monitor has answered.
    if entry.phase == "running" {
        let client = Client::connect_to(dir)?;
        let timebase_hz = client.machine_info()?.timebase_hz;
        entry.monitor_version = Some(client.server().monitor.clone());
        entry.vms = client.vms()?.iter().map(|vm| VmView::new(vm, timebase_hz)).collect();
    }
    Ok(entry)
}

fn print(context: &Context, machine: &MachineEntry) -> Result<(), Failure> {
    let file = machine.file.as_ref().map(|file| format!("  {file}")).unwrap_or_default();
    context.output.title(&format!("{}  {}{file}", machine.name, machine.phase))?;
    if machine.vms.is_empty() && machine.phase == "running" {
        return context.output.line("no VM; `mirrorball create FILE.toml` makes one");
    }
    context.output.table(&table(&machine.vms))
}

pub fn table(vms: &[VmView]) -> Table {
    // Most machines have one cell.
    let has_cells = vms.iter().any(|vm| vm.cell != 0);
    let titles = ["VM", "STATE", ">VCPUS", ">RESIDENT", ">MEMORY", ">DISKS", ">UP", ">RESETS", "LAST STOP", ">CELL"];
    let mut table = Table::new(&titles[..titles.len() - usize::from(!has_cells)]);
    for vm in vms {
        let tone = match vm.state {
            "running" => Tone::Good,
            "stopped" => Tone::Dim,
            _ => Tone::Notice,
        };
        let is_bad = !matches!(vm.reason, None | Some("power-off" | "killed" | "machine-shutdown"));
        let uptime = if vm.state == "stopped" { "-".to_owned() } else { units::seconds(vm.uptime_s) };
        let row = [
            vm.name.clone().into(),
            Cell::toned(vm.state, tone),
            vm.vcpu_count.to_string().into(),
            units::bytes(vm.resident_bytes).into(),
            units::bytes(vm.memory_bytes).into(),
            disks(vm).into(),
            uptime.into(),
            vm.resets.to_string().into(),
            Cell::toned(vm.reason_text.clone().unwrap_or_default(), if is_bad { Tone::Bad } else { Tone::Plain }),
            vm.cell.to_string().into(),
        ];
        table.row(row.into_iter().take(titles.len() - usize::from(!has_cells)));
    }
    table
}

/// Modified blocks of all its disks that have a limit, of what they may come to.
fn disks(vm: &VmView) -> String {
    let limited = || vm.disks.iter().filter_map(|disk| Some((disk.used_bytes, disk.limit_bytes?)));
    match limited().map(|(_, limit)| limit).sum() {
        0 => "-".to_owned(),
        limit => format!("{}/{}", units::bytes(limited().map(|(used, _)| used).sum()), units::bytes(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{DEMO, HZ, sample};

    fn vms() -> Vec<VmView> {
        sample(DEMO, 61).vms.iter().map(|vm| VmView::new(vm, HZ)).collect()
    }

    #[test]
    fn the_list_reads_well() {
        insta::assert_snapshot!(table(&vms()).render(false));
    }

    #[test]
    fn json_is_stable() {
        let machine = MachineEntry {
            name: "demo".into(),
            phase: "running".into(),
            file: Some("demo.toml".into()),
            pid: Some(7),
            monitor_version: Some("0.1.0 (0123456)".into()),
            vms: vms().into_iter().skip(2).collect(),
        };
        let view = LsView { machines: vec![machine], defined: Vec::new() };
        insta::assert_snapshot!(serde_json::to_string_pretty(&view).expect("plain data"));
    }
}
