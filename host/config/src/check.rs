//! What only the whole description shows: names that must meet, sums, and the contract of the control protocol.

use std::collections::{HashMap, HashSet};

use control::{BootConfig, DiskMode, DiskSpec, Interrupts, MAX_DISK_NAME, SpecError, SpecProblem};

use crate::machine_file::HardwareDraft;
use crate::model::ModelError;
use crate::paths::Loader;
use crate::plan::{Backing, Hardware, MachineInterrupts};
use crate::problem::{Place, Report};
use crate::reader::Section;
use crate::suggest::hint;

/// Most nodes that the emulated machine has.
const MAX_NODES: usize = 8;
/// Most harts of a machine.
const MAX_HARTS: u32 = 64;

/// Where the fields of a description came from, by their path in the boot configuration.
#[derive(Debug, Default)]
pub struct Places {
    prefix: String,
    known: HashMap<String, (Place, String)>,
    /// What could not be read, by its path; or `node`, `disk` and so on where some of these are not among those read.
    doubtful: HashSet<String>,
}

impl Places {
    /// The paths noted next are inside of `prefix`.
    pub fn enter(&mut self, prefix: String) {
        self.prefix = prefix;
    }

    /// The paths noted next are at the top.
    pub fn leave(&mut self) {
        self.prefix.clear();
    }

    /// Notes that `field` is `key` of this section, or the section itself.
    pub fn note(&mut self, field: &str, section: &Section<'_>, key: Option<&'static str>) {
        let (place, path) = match key {
            Some(key) => (section.place_of(key), section.path(key)),
            None => (section.place().clone(), section.path("").trim_end_matches('.').to_owned()),
        };
        self.known.insert(self.whole(field), (place, path));
    }

    /// Notes that `field` could not be read, so that nothing is concluded from what stands in for it.
    pub fn doubt(&mut self, field: &str) {
        self.doubtful.insert(self.whole(field));
    }

    /// Whether this path was read.
    pub fn knows(&self, path: &str) -> bool {
        !self.doubtful.contains(path)
    }

    /// Every doubt comes with an error, so that nothing is used that was not checked.
    ///
    /// # Panics
    /// If there is one without.
    pub fn justify(&self, report: &Report) {
        assert!(report.has_errors() || self.doubtful.is_empty(), "doubts without an error: {:?}", self.doubtful);
    }

    fn whole(&self, field: &str) -> String {
        if self.prefix.is_empty() || field.is_empty() {
            format!("{}{field}", self.prefix)
        } else {
            format!("{}.{field}", self.prefix)
        }
    }

    /// Reports an error of the contract where its field stands in the file.
    pub fn report(&self, report: &Report, fallback: &str, error: &SpecError) {
        let help = help_for(&error.problem);
        let (place, key) = self.find(&error.field).or_else(|| self.find(fallback)).expect("the top is always noted");
        report.error(place, key, error.problem.to_string(), help);
    }

    /// The place of a path, or of the nearest path around it.
    fn find(&self, path: &str) -> Option<(&Place, &str)> {
        let mut path = path;
        loop {
            if let Some((place, key)) = self.known.get(path) {
                return Some((place, key));
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    fn error(&self, report: &Report, path: &str, message: String, help: Option<String>) {
        if let Some((place, key)) = self.find(path) {
            report.error(place, key, message, help);
        }
    }

    fn grant(&self, report: &Report, path: &str, what: String) {
        if let Some((place, key)) = self.find(path) {
            report.grant(place, key, what);
        }
    }

    fn warning(&self, report: &Report, path: &str, message: String, help: Option<String>) {
        if let Some((place, key)) = self.find(path) {
            report.warning(place, key, message, help);
        }
    }
}

/// Checks a machine as a whole, and decides what was left open. What depends on something that could not be read is not checked:
/// nothing would be told but what follows from the first problem.
pub fn machine(loader: &Loader, hardware: &mut HardwareDraft, boot: &BootConfig, places: &Places, report: &Report) {
    nodes(&hardware.plan, places, report);
    let knows = |groups: &[&str]| groups.iter().all(|group| places.knows(group));
    if knows(&["node", "cell"]) {
        cells(&hardware.plan, boot, places, report);
    }
    disks(hardware, boot, places, report);
    written_images(loader, &hardware.plan, places, report);
    disk_models(&hardware.plan, places, report);
    if knows(&["disk"]) {
        vm_disks(&hardware.plan, boot, places, report);
    }
    machine_features(&hardware.plan, boot, places, report);
    if knows(&["node", "node sizes", "cell"]) {
        memory(&hardware.plan, boot, places, report);
    }
    if knows(&["node", "node sizes", "model"]) {
        model(&hardware.plan, places, report);
    }
    for error in boot.problems().iter().filter(|error| !follows(boot, places, error)) {
        let fallback = duplicate(boot, error).unwrap_or_default();
        places.report(report, &fallback, error);
    }
}

/// Whether a problem may only be there because of what could not be read.
fn follows(boot: &BootConfig, places: &Places, error: &SpecError) -> bool {
    let is_nameless = |name: &str| {
        let mut vms = boot.vms.iter().enumerate().filter(|(_, vm)| vm.name.as_str() == name);
        vms.any(|(index, _)| !places.knows(&format!("vms[{index}].name")))
    };
    match &error.problem {
        SpecProblem::UnknownSubnet { .. } => !places.knows("subnet"),
        SpecProblem::Duplicate { name } => error.field == "vms" && is_nameless(name),
        SpecProblem::DiskShared { other, .. } | SpecProblem::OverlayShown { other, .. } => is_nameless(other.as_str()),
        _ => false,
    }
}

fn nodes(plan: &Hardware, places: &Places, report: &Report) {
    if plan.nodes.len() > MAX_NODES {
        let message = format!("{} nodes are too many, the emulated machine has at most {MAX_NODES}", plan.nodes.len());
        places.error(report, &format!("node[{MAX_NODES}]"), message, None);
    }
    if plan.harts() > MAX_HARTS {
        let message = format!("{} harts in all are too many, at most {MAX_HARTS} are possible", plan.harts());
        places.error(report, "node[0].harts", message, None);
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        if !node.memory_mib.is_multiple_of(2) {
            let message = format!("{} is not a multiple of 2", node.memory_mib);
            places.error(report, &format!("node[{index}].memory_mib"), message, None);
        }
    }
    let Some(rows) = plan.distances.as_ref().filter(|_| places.knows("node")) else { return };
    let count = plan.nodes.len();
    if rows.len() != count || rows.iter().any(|row| row.len() != count) {
        let message = format!("must have {count} rows of {count} numbers, one per node");
        places.error(report, "distances", message, None);
        return;
    }
    for (from, row) in rows.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            let is_possible = if from == to { *distance == 10 } else { *distance > 10 };
            if !is_possible {
                let message = format!("{distance} from node {from} to node {to} is not possible");
                let help = Some("10 from a node to itself, 11 to 255 to others (255: no way)".into());
                places.error(report, "distances", message, help);
            }
        }
    }
}

/// Every node is in one cell.
fn cells(plan: &Hardware, boot: &BootConfig, places: &Places, report: &Report) {
    if let Err(error) = boot.nodes_by_cell(plan.nodes.len()) {
        places.report(report, "cells[0]", &error);
    }
}

fn disks(hardware: &mut HardwareDraft, boot: &BootConfig, places: &Places, report: &Report) {
    for index in 0..hardware.plan.disks.len() {
        let name = hardware.plan.disks[index].name.clone();
        let path = format!("disk[{index}]");
        if name.as_str().len() > MAX_DISK_NAME {
            let message = format!("{:?} is too long for a disk, at most {MAX_DISK_NAME} characters fit", name.as_str());
            places.error(report, &path, message, None);
        }
        if hardware.plan.disks[..index].iter().any(|other| other.name == name) {
            places.error(report, &path, format!("{:?} is used twice", name.as_str()), None);
        }
        let all = boot.vms.iter().flat_map(|vm| &vm.disks);
        let keeps = |disk: &DiskSpec| disk.overlay.as_ref().is_some_and(|overlay| overlay.disk == name);
        let is_kept = all.clone().any(keeps);
        let is_written = is_kept || all.clone().any(|disk| disk.source == name && disk.mode == DiskMode::Persistent);
        let disk = &mut hardware.plan.disks[index];
        if hardware.undecided[index] {
            // Only who writes to a file asks for it: machines can share images then.
            disk.read_only = matches!(disk.backing, Backing::File { .. }) && !is_written;
        } else if disk.read_only && is_written {
            let what = if is_kept { "keeps the overlay of" } else { "is mounted persistent by" };
            let message = format!("disk {:?} {what} a VM", name.as_str());
            let help = Some("leave read_only out, or mount it copy-on-write".into());
            places.error(report, &format!("{path}.read_only"), message, help);
        }
    }
}

/// Every machine file may read the cache. To write there is another thing.
fn written_images(loader: &Loader, plan: &Hardware, places: &Places, report: &Report) {
    for (index, disk) in plan.disks.iter().enumerate() {
        let Backing::File { path, .. } = &disk.backing else { continue };
        let is_own = || report.home().is_some_and(|home| path.canonicalize().is_ok_and(|path| path.starts_with(home)));
        if !disk.read_only && loader.is_in_cache(path) && !is_own() {
            let path = path.display();
            places.grant(report, &format!("disk[{index}].file"), format!("lets VMs write {path}, in the cache"));
        }
    }
}

/// A disk's time is the machine model's.
fn disk_models(plan: &Hardware, places: &Places, report: &Report) {
    for (index, disk) in plan.disks.iter().enumerate() {
        let Some(model) = disk.model else { continue };
        let path = format!("disk[{index}].model");
        if plan.model.is_none() && places.knows("model") {
            let help = Some("say [model], or leave out the disk's".into());
            places.error(report, &path, "the machine has no model, whose time this disk could take".into(), help);
        }
        let bytes = match &disk.backing {
            Backing::File { path, .. } => std::fs::metadata(path).map_or(0, |found| found.len()),
            Backing::Scratch { size_mib } => u64::from(*size_mib) << 20,
        };
        let most = model.preset.capacity().map_or(u64::MAX, |sectors| sectors * disk_model::SECTOR_BYTES);
        if bytes > most {
            let message = format!("{} MiB are more than this disk had ({} MiB)", bytes >> 20, most >> 20);
            let help = Some("it gets more cylinders, with the same seek curve".into());
            places.warning(report, &path, message, help);
        }
    }
}

fn vm_disks(plan: &Hardware, boot: &BootConfig, places: &Places, report: &Report) {
    for (index, vm) in boot.vms.iter().enumerate() {
        for (place, disk) in vm.disks.iter().enumerate() {
            if !plan.disks.iter().any(|known| known.name == disk.source) {
                let help = hint(disk.source.as_str(), plan.disks.iter().map(|known| known.name.as_str()))
                    .or_else(|| Some("describe it with [[disk]]".into()));
                let message = format!("the machine has no disk {:?}", disk.source.as_str());
                places.error(report, &format!("vms[{index}].disks[{place}].source"), message, help);
            }
            let overlay = disk.overlay.as_ref().map(|overlay| &overlay.disk);
            if let Some(name) = overlay.filter(|name| !plan.disks.iter().any(|known| known.name == **name)) {
                let help = hint(name.as_str(), plan.disks.iter().map(|known| known.name.as_str()))
                    .or_else(|| Some("describe it with [[disk]]".into()));
                let message = format!("the machine has no disk {:?}", name.as_str());
                places.error(report, &format!("vms[{index}].disks[{place}].overlay"), message, help);
            }
        }
    }
}

fn machine_features(plan: &Hardware, boot: &BootConfig, places: &Places, report: &Report) {
    for (index, subnet) in boot.subnets.iter().enumerate() {
        if subnet.gateway && plan.uplink.is_none() && places.knows("network") {
            let help = Some("say [network] uplink = true".into());
            let message = "the machine has no network card".to_owned();
            places.error(report, &format!("subnets[{index}].gateway"), message, help);
        }
    }
    for (index, vm) in boot.vms.iter().enumerate() {
        let is_named = places.knows(&format!("vms[{index}].name"));
        if is_named && vm.interrupts == Interrupts::Aia && plan.interrupts == MachineInterrupts::Plic {
            let message = format!("VM {:?} wants AIA, the machine has only a PLIC", vm.name.as_str());
            let help = Some("say interrupts = \"auto\", or give the machine interrupts = \"aia\"".into());
            places.error(report, &format!("vms[{index}]"), message, help);
        }
    }
}

fn model(plan: &Hardware, places: &Places, report: &Report) {
    let Some(Err(error)) = plan.model.as_ref().map(|model| model.describe(plan)) else { return };
    let (path, help) = match &error {
        ModelError::Uneven { node, .. } => (format!("node[{node}]"), None),
        ModelError::NotTwoDies { .. } => ("model.preset".into(), Some("say preset = \"flash\", or give it 2 nodes")),
        ModelError::NotSquare { .. } => ("model.latency_ns".into(), None),
        ModelError::TwoClocks => ("model".into(), Some("leave icount out")),
        ModelError::Machine(_) => ("model".into(), None),
    };
    places.error(report, &path, error.to_string(), help.map(str::to_owned));
}

/// Memory is given on demand, so that more may be promised than there is; that is worth a word.
fn memory(plan: &Hardware, boot: &BootConfig, places: &Places, report: &Report) {
    for cell in 0..boot.cells.len().max(1) {
        memory_of(cell, plan, boot, places, report);
    }
}

/// The same for the VMs of one cell.
fn memory_of(cell: usize, plan: &Hardware, boot: &BootConfig, places: &Places, report: &Report) {
    let nodes = boot.cells.get(cell).map(|cell| &cell.nodes);
    let is_its = |node: usize| nodes.is_none_or(|nodes| nodes.iter().any(|own| own.index() == node));
    let own = plan.nodes.iter().enumerate().filter(|(node, _)| is_its(*node));
    let total = own.map(|(_, node)| u64::from(node.memory_mib)).sum::<u64>();
    let whose = boot.cells.get(cell).map_or("the machine".to_owned(), |cell| format!("cell {:?}", cell.name.as_str()));
    let mut promised = 0;
    for (index, vm) in boot.vms.iter().enumerate().filter(|(_, vm)| usize::from(vm.cell) == cell) {
        let path = format!("vms[{index}].memory_mib");
        if !places.knows(&path) || ["name", "cell"].iter().any(|key| !places.knows(&format!("vms[{index}].{key}"))) {
            continue;
        }
        let wanted = u64::from(vm.memory_mib);
        if wanted > total {
            places.error(report, &path, format!("{wanted} MiB are more than {whose} has ({total} MiB)"), None);
        }
        let kept = vm.kept_mib();
        promised += if vm.autostart { kept } else { 0 };
        if vm.autostart && promised > total && promised - kept <= total && wanted <= total {
            let name = vm.name.as_str();
            let message = format!("the VMs up to {name:?} are promised {promised} MiB, {whose} has {total}");
            let help = "a VM is promised its memory_mib and limit_mib of its disks; with promised_mib it runs with less \
                        kept for it, and ends if others need the rest";
            places.error(report, &path, message, Some(help.into()));
        }
        // What the monitor, kernels and initrds take is known only when it runs.
        let nearly = total - total / 16;
        if vm.autostart && (nearly..=total).contains(&promised) && promised - kept < nearly {
            let name = vm.name.as_str();
            let message = format!("the VMs up to {name:?} are promised {promised} MiB, {whose} has {total}");
            let help =
                "the monitor, kernels and initrds need some of it, too: a VM that does not fit then is not started";
            places.warning(report, &path, message, Some(help.into()));
        }
    }
}

/// The second one of a name or address that is used twice: the contract names only the list.
fn duplicate(boot: &BootConfig, error: &SpecError) -> Option<String> {
    let SpecProblem::Duplicate { name } = &error.problem else { return None };
    match error.field.as_str() {
        "vms" => {
            second(boot.vms.iter().map(|vm| vm.name.as_str()), &name.as_str()).map(|index| format!("vms[{index}]"))
        }
        "subnets" => second(boot.subnets.iter().map(|net| net.name.as_str()), &name.as_str())
            .map(|index| format!("subnets[{index}]")),
        "vms.nets.mac" => {
            let nets = || {
                boot.vms
                    .iter()
                    .enumerate()
                    .flat_map(|(vm, spec)| spec.nets.iter().enumerate().map(move |net| (vm, net)))
            };
            let at = second(nets().map(|(_, (_, net))| net.mac.map(|mac| mac.to_string())), &Some(name.clone()))?;
            nets().nth(at).map(|(vm, (net, _))| format!("vms[{vm}].nets[{net}].mac"))
        }
        _ => None,
    }
}

/// The position of the second one of these that is `wanted`.
fn second<T: PartialEq>(all: impl Iterator<Item = T>, wanted: &T) -> Option<usize> {
    all.enumerate().filter(|(_, one)| one == wanted).nth(1).map(|(index, _)| index)
}

fn help_for(problem: &SpecProblem) -> Option<String> {
    match problem {
        SpecProblem::NotMultiple { value, of } => {
            let below = value - value % of;
            Some(format!("{below} or {} would do", below + of))
        }
        SpecProblem::DiskShared { .. } => Some("mount it copy-on-write in both, or give each a partition".into()),
        SpecProblem::UnknownSubnet { .. } => Some("describe it with [[subnet]]".into()),
        SpecProblem::VirtioSlots { .. } => Some("leave out disks or nets, or say rng = false".into()),
        SpecProblem::NotInFirstCell => Some(
            "say `mode = \"copy-on-write\"` without an overlay, or `mode = \"read-only\"`; or leave `cell` out".into(),
        ),
        SpecProblem::MulticastMac => Some("the first byte must be even, as in 02:00:00:00:00:01".into()),
        _ => None,
    }
}
