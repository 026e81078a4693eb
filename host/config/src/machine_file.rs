//! Reading a machine file.

use std::path::Path;
use std::rc::Rc;

use control::{BootConfig, CellSpec, LogLevel, MAX_CELLS, MonitorOptions, Name, PlacementBy, SubnetSpec};
use disk_model::Preset;
use toml::de::DeTable;

use crate::cells;
use crate::check::{self, Places};
use crate::cpu;
use crate::image;
use crate::model::ModelPlan;
use crate::model_file;
use crate::modules::Modules;
use crate::network;
use crate::paths::Loader;
use crate::plan::{
    Backing, DiskModel, DiskPlan, Firmware, Hardware, ImageFormat, MachineInterrupts, MachinePlan, NodePlan, OnPanic,
};
use crate::problem::{ConfigError, Place, Report, Source};
use crate::reader::{At, Layer, Section};
use crate::vm_file;

/// What a server's CPU has by its profile, and Svvptc: a guest need not fence when it maps a page. QEMU empties its whole TLB
/// for a fence, and a compiler is three times as fast without.
pub const DEFAULT_CPU: &str = "rva23s64,svvptc=on";

/// Reads a machine file and all that it names.
pub fn load(loader: &Loader, file: &Path) -> Result<MachinePlan, ConfigError> {
    let report = Report::of_machine(file, loader.is_restricted);
    let source = vm_file::read_source(file, &report);
    finish(loader, source, report)
}

/// Reads the text of a machine file, which may lie nowhere.
pub fn load_text(loader: &Loader, file: &Path, text: String) -> Result<MachinePlan, ConfigError> {
    let report = Report::of_machine(file, loader.is_restricted);
    finish(loader, Some(Rc::new(Source { path: file.to_owned(), text })), report)
}

fn finish(loader: &Loader, source: Option<Rc<Source>>, report: Report) -> Result<MachinePlan, ConfigError> {
    let plan = source.and_then(|source| {
        let table = vm_file::parse(&source, &report)?;
        read(loader, &source, &table, &report)
    });
    let grants = report.grants();
    let warnings = report.finish()?;
    let plan = plan.expect("without an error there is a plan");
    Ok(MachinePlan { warnings, grants, ..plan })
}

fn read(loader: &Loader, source: &Rc<Source>, table: &DeTable<'_>, report: &Report) -> Option<MachinePlan> {
    let place = Place { source: Rc::clone(source), span: 0..0 };
    let layer = Layer { source: Rc::clone(source), table };
    let top = Section::new(report, "", place, vec![layer]);
    let mut places = Places::default();
    places.note("", &top, None);
    let name = name(&top);
    let mut hardware = read_hardware(loader, &top, &mut places);
    let on_panic = hardware.on_panic;
    let subnets = read_subnets(&top, &mut places);
    let options = read_options(&top, &mut places);
    // A table that was meant to be one of these is not among those read.
    for key in ["node", "disk", "subnet", "cell", "network", "model"] {
        if top.has_misspelled(key) {
            places.doubt(key);
        }
    }
    let nodes = places.knows("node").then_some(hardware.plan.nodes.len());
    let cells = read_cells(&top, &hardware, nodes, &mut places);
    let mut modules = Modules::default();
    let vms = read_vms(loader, &top, cells.as_deref(), &mut modules, &mut places);
    top.finish();
    places.justify(report);
    let name = top.stand_in(name, || Name::new("unknown").expect("a good name"));
    let mut boot = BootConfig::new(name);
    (boot.cells, boot.subnets, boot.vms, boot.options) = (cells.unwrap_or_default(), subnets, vms, options);
    check::machine(loader, &mut hardware, &boot, &places, report);
    Some(MachinePlan {
        name: boot.machine_name.clone(),
        file: source.path.clone(),
        hardware: hardware.plan,
        boot,
        modules: modules.into_files(),
        warnings: Vec::new(),
        grants: Vec::new(),
        on_panic,
    })
}

/// The machine's name: what the file says, or the file's own.
fn name(top: &Section<'_>) -> Option<Name> {
    if let Some(name) = top.parsed::<Name>("name") {
        return Some(name.value);
    }
    let stem = top.place().source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = Name::new(stem).ok();
    top.require("name", name, "for example name = \"demo\"")
}

/// The hardware while it is being checked.
pub struct HardwareDraft {
    pub plan: Hardware,
    /// Which disks did not say whether they are read-only.
    pub undecided: Vec<bool>,
    /// How many cells its nodes are divided into.
    pub cells: Option<At<usize>>,
    /// Whether the file says that, in whatever way.
    pub has_cells: bool,
    /// What comes after a panic.
    pub on_panic: OnPanic,
}

/// The cells; `None` if they cannot be told.
fn read_cells(
    top: &Section<'_>,
    hardware: &HardwareDraft,
    nodes: Option<usize>,
    places: &mut Places,
) -> Option<Vec<CellSpec>> {
    let is_known = places.knows("cell") && (hardware.cells.is_some() || !hardware.has_cells);
    let cells = cells::read(top, hardware.cells.as_ref(), nodes, places).filter(|_| is_known);
    if cells.is_none() {
        places.doubt("cell");
    }
    cells
}

fn read_hardware(loader: &Loader, top: &Section<'_>, places: &mut Places) -> HardwareDraft {
    let nodes = read_nodes(top, places);
    let mut disks = Vec::new();
    let mut undecided = Vec::new();
    for section in top.tables("disk") {
        places.note(&format!("disk[{}]", disks.len()), &section, Some("name"));
        places.note(&format!("disk[{}].read_only", disks.len()), &section, Some("read_only"));
        places.note(&format!("disk[{}].model", disks.len()), &section, Some("model"));
        places.note(&format!("disk[{}].file", disks.len()), &section, Some("file"));
        let read_only = section.boolean("read_only").map(|at| at.value);
        match read_disk(loader, &section, read_only.unwrap_or(false)) {
            Some(disk) => {
                undecided.push(read_only.is_none());
                disks.push(disk);
            }
            None => places.doubt("disk"),
        }
        section.finish();
    }
    if disks.is_empty() && top.has("disk") {
        places.doubt("disk");
    }
    let mut plan = Hardware {
        cpu: DEFAULT_CPU.into(),
        interrupts: MachineInterrupts::Aia { guest_files: 7 },
        nodes,
        distances: None,
        disks,
        uplink: network::read(top, places),
        icount: false,
        model: read_model(top, places),
        firmware: Firmware::OpenSbi,
        qemu: None,
        monitor: None,
        qemu_args: Vec::new(),
    };
    let (mut cells, mut has_cells, mut on_panic) = (None, false, OnPanic::Stop);
    if let Some(section) = top.table("machine") {
        read_machine(loader, &section, &mut plan, places);
        cells = section.number("cells", 1..=MAX_CELLS);
        has_cells = section.has("cells");
        let choices = [("stop", OnPanic::Stop), ("restart", OnPanic::Restart)];
        on_panic = section.choice("on_panic", &choices).map_or(on_panic, |at| at.value);
        if cells.is_some() {
            places.note("cells", &section, Some("cells"));
        }
        section.finish();
    }
    HardwareDraft { plan, undecided, cells, has_cells, on_panic }
}

fn read_model(top: &Section<'_>, places: &mut Places) -> Option<ModelPlan> {
    let errors = top.report().errors();
    let model = top.table("model").map(|section| model_file::read(&section, places));
    if top.report().errors() > errors {
        places.doubt("model");
    }
    model
}

fn read_machine(loader: &Loader, section: &Section<'_>, plan: &mut Hardware, places: &mut Places) {
    if let Some(cpu) = section.string("cpu") {
        if let Err((message, help)) = cpu::check(&cpu.value, section.has("qemu")) {
            section.error(&cpu.place, "cpu", message, help);
        }
        plan.cpu = cpu.value;
    }
    let guest_files = section.number("guest_files", 0..=7_u8);
    let is_plic = section.choice("interrupts", &[("aia", false), ("plic", true)]).is_some_and(|at| at.value);
    match (is_plic, guest_files) {
        (true, Some(files)) => {
            let help = Some("leave it out, or say interrupts = \"aia\"".to_owned());
            section.error(&files.place, "guest_files", "a PLIC has no guest interrupt files", help);
        }
        (true, None) => plan.interrupts = MachineInterrupts::Plic,
        (false, Some(files)) => plan.interrupts = MachineInterrupts::Aia { guest_files: files.value },
        (false, None) => {}
    }
    places.note("distances", section, Some("distances"));
    plan.distances = section.matrix("distances", 0..=u8::MAX).map(|at| at.value);
    plan.icount = section.boolean("icount").is_some_and(|at| at.value);
    let firmware = section.choice("firmware", &[("opensbi", Firmware::OpenSbi), ("faults", Firmware::Faults)]);
    plan.firmware = firmware.map_or(Firmware::OpenSbi, |at| at.value);
    for (key, field) in [("qemu", &mut plan.qemu), ("monitor", &mut plan.monitor)] {
        let Some(text) = section.string(key) else { continue };
        section.grant(&text.place, key, format!("runs {:?} in the place of the usual one", text.value));
        *field = loader.resolve(section, key, &text.value, &text.place);
        if let (Some(path), true) = (field.as_ref(), loader.check_files) {
            loader.inspect(section, key, path, &text.place);
        }
    }
    let args = section.strings("qemu_args").unwrap_or_default();
    if let Some(first) = args.first() {
        let what = "gives the emulator more arguments: these can run programs and open any file";
        section.grant(&first.place, "qemu_args", what);
    }
    plan.qemu_args = args.into_iter().map(|at| at.value).collect();
}

fn read_nodes(top: &Section<'_>, places: &mut Places) -> Vec<NodePlan> {
    let mut nodes = Vec::new();
    let sections = top.tables("node");
    if sections.is_empty() {
        places.doubt("node");
        top.require::<()>("node", None, "a machine has at least one [[node]] with harts and memory_mib");
    }
    for section in sections {
        for (field, key) in [("", None), (".harts", Some("harts")), (".memory_mib", Some("memory_mib"))] {
            places.note(&format!("node[{}]{field}", nodes.len()), &section, key);
        }
        let harts = section.number("harts", 1..=64_u16).map(|at| at.value);
        let harts = section.require("harts", harts, "for example harts = 2");
        let memory = section.number("memory_mib", 64..=control::MAX_MEMORY_MIB).map(|at| at.value);
        let memory = section.require("memory_mib", memory, "for example memory_mib = 2048");
        section.finish();
        if harts.is_none() || memory.is_none() {
            places.doubt("node sizes");
        }
        // How many nodes there are is known all the same.
        let (harts, memory_mib) = (section.stand_in(harts, || 1), section.stand_in(memory, || 64));
        nodes.push(NodePlan { harts, memory_mib });
    }
    nodes
}

fn read_disk(loader: &Loader, section: &Section<'_>, read_only: bool) -> Option<DiskPlan> {
    let name = section.parsed::<Name>("name").map(|at| at.value);
    let name = section.require("name", name, "the name that VMs use for it");
    let backing = image::read(loader, section);
    let backing = section.stand_in(backing, || Backing::Scratch { size_mib: 1 });
    let model = read_disk_model(section, &backing);
    Some(DiskPlan { name: name?, backing, read_only, model })
}

fn read_disk_model(section: &Section<'_>, backing: &Backing) -> Option<DiskModel> {
    let preset = section.choice("model", &[("hp97560", Preset::Hp97560), ("ssd", Preset::Ssd)]);
    let scale = section.number("scale", 1..=100_u32);
    let Some(preset) = preset else {
        if let Some(scale) = scale {
            let help = Some("say model = \"hp97560\" or \"ssd\"".to_owned());
            section.error(&scale.place, "scale", "is for a disk with a model", help);
        }
        return None;
    };
    if let Backing::File { format: ImageFormat::Qcow2 { .. }, .. } = backing {
        let help = Some("convert it: qemu-img convert -O raw".to_owned());
        section.error(&preset.place, "model", "a disk with a model needs a raw image", help);
    }
    Some(DiskModel { preset: preset.value, scale: scale.map_or(1, |at| at.value) })
}

fn read_subnets(top: &Section<'_>, places: &mut Places) -> Vec<SubnetSpec> {
    let mut subnets = Vec::new();
    for section in top.tables("subnet") {
        for (field, key) in [("", None), (".gateway", Some("gateway"))] {
            places.note(&format!("subnets[{}]{field}", subnets.len()), &section, key);
        }
        let name = section.parsed::<Name>("name").map(|at| at.value);
        let name = section.require("name", name, "for example name = \"lan\"");
        let gateway = section.boolean("gateway").is_some_and(|at| at.value);
        section.finish();
        if name.is_none() {
            places.doubt("subnet");
        }
        subnets.extend(name.map(|name| SubnetSpec { name, gateway }));
    }
    if subnets.is_empty() && top.has("subnet") {
        places.doubt("subnet");
    }
    subnets
}

fn read_options(top: &Section<'_>, places: &mut Places) -> MonitorOptions {
    let mut options = MonitorOptions::default();
    let Some(section) = top.table("options") else { return options };
    for key in ["time_slice_us", "disk_cache_mib", "console_kib"] {
        places.note(&format!("options.{key}"), &section, Some(key));
    }
    let numbers = [
        ("time_slice_us", &mut options.time_slice_us),
        ("disk_cache_mib", &mut options.disk_cache_mib),
        ("console_kib", &mut options.console_kib),
    ];
    for (key, field) in numbers {
        *field = section.any_number(key).map_or(*field, |at| at.value);
    }
    options.allow_panic = section.boolean("allow_panic").is_some_and(|at| at.value);
    options.trace = section.boolean("trace").map_or(options.trace, |at| at.value);
    let levels =
        [("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info), ("debug", LogLevel::Debug)];
    options.log = section.choice("log", &levels).map_or(options.log, |at| at.value);
    let facts = [("misses", PlacementBy::Misses), ("samples", PlacementBy::Samples)];
    options.placement_by = section.choice("placement_by", &facts).map_or(options.placement_by, |at| at.value);
    section.finish();
    options
}

fn read_vms(
    loader: &Loader,
    top: &Section<'_>,
    cells: Option<&[CellSpec]>,
    modules: &mut Modules,
    places: &mut Places,
) -> Vec<control::VmSpec> {
    let sections = top.tables("vm");
    let defaults = top.table("vm_defaults").map(|section| (section.place().clone(), section.into_layer()));
    if let (true, Some((place, _))) = (sections.is_empty(), &defaults) {
        top.report().warning(place, "vm_defaults", "there is no [[vm]] to inherit this", None);
    }
    let has_all_defaults = defaults.is_some() || !(top.has("vm_defaults") || top.has_misspelled("vm_defaults"));
    let mut vms = Vec::new();
    for mut section in sections {
        if !has_all_defaults {
            section.set_partial();
        }
        let layer = defaults.as_ref().and_then(|(_, layer)| layer.clone());
        vms.extend(vm_file::read_all(loader, section, layer, cells, modules, places, vms.len()));
    }
    places.leave();
    vms
}
