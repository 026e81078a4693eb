//! Reading a VM: `[[vm]]` of a machine file, the file that it names, and the defaults.

use std::path::Path;
use std::rc::Rc;

use control::{
    Boot, CellSpec, DEFAULT_MTU, DiskMode, DiskSpec, Gang, Interrupts, Label, MAX_MEMORY_MIB, MAX_VCPUS, MacAddress,
    Name, NetSpec, OnCrash, OnFailure, OverlaySpec, Pages, Placement, VmSpec,
};
use toml::de::DeTable;

use crate::cells;
use crate::check::Places;
use crate::modules::{Found, ModuleKind, Modules};
use crate::paths::{Loader, plain, read_text};
use crate::plan::VmPlan;
use crate::problem::{ConfigError, Place, Report, Source};
use crate::program::{self, Program};
use crate::reader::{At, Layer, Section};

/// Most VMs that one `[[vm]]` may stand for.
const MAX_COUNT: u16 = 64;

/// Reads a file with one VM.
pub fn load(loader: &Loader, file: &Path, name: Option<&Name>) -> Result<VmPlan, ConfigError> {
    let report = Report::default();
    let mut modules = Modules::default();
    let mut spec = None;
    if let Some(source) = read_source(file, &report)
        && let Some(table) = parse(&source, &report)
    {
        let layer = Layer { source: Rc::clone(&source), table: &table };
        let section = Section::new(&report, "", Place { source: Rc::clone(&source), span: 0..0 }, vec![layer]);
        let mut places = Places::default();
        let reader =
            VmReader { loader, section: &section, modules: &mut modules, places: &mut places, cells: Some(&[]) };
        let read = reader.read(name, None);
        section.finish();
        places.justify(&report);
        read.problems().iter().for_each(|error| places.report(&report, "", error));
        spec = Some(read);
    }
    let warnings = report.finish()?;
    let spec = spec.expect("without an error there is a VM");
    Ok(VmPlan { spec, modules: modules.into_files(), warnings })
}

/// Reads the VMs that one `[[vm]]` stands for. Their places are noted under `vms[N]`, counted from `first`.
pub fn read_all(
    loader: &Loader,
    section: Section<'_>,
    defaults: Option<Layer<'_>>,
    cells: Option<&[CellSpec]>,
    modules: &mut Modules,
    places: &mut Places,
    first: usize,
) -> Vec<VmSpec> {
    let count = section.number("count", 1..=MAX_COUNT);
    let file = section.string("file");
    let source = file.as_ref().and_then(|file| included(loader, &section, file));
    let table = source.as_ref().and_then(|source| parse(source, section.report()));
    // From here on it also reads tables that live no longer than this function.
    let mut section = section;
    if let (Some(source), Some(table)) = (&source, &table) {
        inherit(&mut section, Layer { source: Rc::clone(source), table });
    }
    if section.has("file") && table.is_none() {
        section.set_partial();
    }
    if let Some(defaults) = defaults {
        inherit(&mut section, defaults);
    }
    // Of replicas that cannot be, one is enough to hear what else is wrong.
    let can_be = can_replicate(&section, count.as_ref());
    let numbers = 1..=count.as_ref().filter(|_| can_be).map_or(1, |count| count.value);
    let mut specs = Vec::new();
    for number in numbers {
        places.enter(format!("vms[{}]", first + specs.len()));
        let reader = VmReader { loader, section: &section, modules, places, cells };
        specs.push(reader.read(None, Some(number)));
    }
    section.finish();
    specs
}

/// `file` and `count` say what a `[[vm]]` stands for; to inherit them would make no sense.
fn inherit<'a>(section: &mut Section<'a>, layer: Layer<'a>) {
    for (key, value) in layer.table {
        if matches!(key.get_ref().as_ref(), "file" | "count") {
            let place = Place { source: Rc::clone(&layer.source), span: value.span() };
            let help = Some("say it in the [[vm]] itself".to_owned());
            section.error(&place, key.get_ref(), "cannot be inherited", help);
        }
    }
    section.inherit(layer);
}

/// Complains about what several VMs cannot have in common.
fn can_replicate(section: &Section<'_>, count: Option<&At<u16>>) -> bool {
    let Some(count) = count.filter(|count| count.value > 1) else { return true };
    let errors = section.report().errors();
    let name = section.string("name");
    if name.is_some_and(|name| !name.value.contains("{n}")) {
        let help = Some("for example name = \"build-{n}\" gives build-1, build-2, ...".to_owned());
        section.error(&count.place, "count", "several VMs need `{n}` in their name", help);
    }
    for net in section.tables("net") {
        if let Some(mac) = net.string("mac") {
            let help = Some("leave it out: each gets an address of its own".to_owned());
            net.error(&mac.place, "mac", "several VMs cannot have one address", help);
        }
    }
    section.report().errors() == errors
}

fn included(loader: &Loader, section: &Section<'_>, file: &At<String>) -> Option<Rc<Source>> {
    let path = loader.resolve(section, "file", &file.value, &file.place)?;
    match read_included(&path) {
        Ok(text) => Some(Rc::new(Source { path, text })),
        Err(error) => {
            section.error(&file.place, "file", format!("{}: {}", path.display(), plain(&error)), None);
            None
        }
    }
}

/// Only a file can be included: a machine file may come from anybody, and a FIFO would wait for one who writes.
fn read_included(path: &Path) -> std::io::Result<String> {
    match std::fs::metadata(path)?.is_file() {
        true => read_text(path),
        false => Err(std::io::Error::other("is no file")),
    }
}

/// Reads a whole file.
pub fn read_source(file: &Path, report: &Report) -> Option<Rc<Source>> {
    match read_text(file) {
        Ok(text) => Some(Rc::new(Source { path: file.to_owned(), text })),
        Err(error) => {
            report.file_error(file, plain(&error), None);
            None
        }
    }
}

/// Takes a file apart. Of one that is no TOML nobody knows what its parts are: all that is wrong with its syntax is told, and no
/// more.
pub fn parse<'a>(source: &'a Rc<Source>, report: &Report) -> Option<DeTable<'a>> {
    let (table, mut errors) = DeTable::parse_recoverable(&source.text);
    errors.sort_by_key(|error| error.span().map_or(0, |span| span.start));
    let reliable = if errors.iter().any(may_mislead) { 1 } else { errors.len() };
    let mut last_line = None;
    for error in errors.iter().take(reliable) {
        let span = error.span().unwrap_or(0..0);
        let line = source.text.get(..span.start).map(|before| before.matches('\n').count());
        // The rest of a line is wrong for the same reason.
        if line.is_none() || line != last_line {
            let place = Place { source: Rc::clone(source), span };
            report.error(&place, "", error.message().lines().collect::<Vec<_>>().join(", "), None);
        }
        last_line = line;
    }
    errors.is_empty().then(|| table.into_inner())
}

/// Whether what is wrong is open over lines, so that it makes lines behind it wrong.
fn may_mislead(error: &toml::de::Error) -> bool {
    let starts = ["unclosed array,", "unclosed inline table", "missing comma between", "missing key for inline table"];
    let message = error.message();
    starts.iter().any(|start| message.starts_with(start)) || message.contains("multi-line")
}

/// Reads one VM.
struct VmReader<'r, 's> {
    loader: &'r Loader,
    section: &'r Section<'s>,
    modules: &'r mut Modules,
    places: &'r mut Places,
    /// The machine's cells; none of a VM alone, `None` if they could not be read.
    cells: Option<&'r [CellSpec]>,
}

/// Stands in for the name of a VM that has none.
const NAMELESS: &str = "a-vm-without-a-name";

impl VmReader<'_, '_> {
    /// The VM; what could not be read is doubted, and something stands in for it with which nothing else is wrong.
    fn read(mut self, name: Option<&Name>, number: Option<u16>) -> VmSpec {
        self.places.note("", self.section, None);
        for (field, key) in [("ports", "ports"), ("disks", "disk"), ("nets", "net"), ("memory_mib", "memory_mib")] {
            self.places.note(field, self.section, Some(key));
        }
        for key in ["vcpus", "weight", "nodes", "cell", "promised_mib"] {
            self.places.note(key, self.section, Some(key));
        }
        self.places.note("boot", self.section, Some("kernel"));
        self.places.note("boot.cmdline", self.section, Some("cmdline"));
        let given = self.name(number);
        let name = name.cloned().or(given);
        let vcpus = self.section.any_number("vcpus").map(|at| at.value);
        let vcpus = vcpus.unwrap_or(if self.section.has("vcpus") { MAX_VCPUS } else { 1 });
        let memory = self.section.any_number("memory_mib").map(|at| at.value);
        let memory = self.section.require("memory_mib", memory, "for example memory_mib = 512");
        let words = Words { name: name.as_ref().map_or("", Name::as_str).to_owned(), number };
        let boot = self.boot(&words);
        let disks = self.disks(&words);
        let nets = self.nets();
        for (field, is_known) in [("name", name.is_some()), ("memory_mib", memory.is_some())] {
            if !is_known {
                self.places.doubt(field);
            }
        }
        let section = self.section;
        let name = section.stand_in(name, || Name::new(NAMELESS).expect("a good name"));
        let memory = section.stand_in(memory, || MAX_MEMORY_MIB);
        let nothing = || Boot::Firmware { module: Label::new("unknown").expect("a good label") };
        let mut spec = VmSpec::new(name, vcpus, memory, section.stand_in(boot, nothing));
        spec.disks = disks;
        spec.nets = nets;
        self.rest(&mut spec);
        spec
    }

    fn name(&self, number: Option<u16>) -> Option<Name> {
        let template = self.section.string("name");
        let template = match number {
            Some(_) => self.section.require("name", template, "for example name = \"debian\"")?,
            None => template.unwrap_or_else(|| self.name_of_file()),
        };
        let text = Words { name: String::new(), number }.fill(&template.value);
        match Name::new(text) {
            Ok(name) => Some(name),
            Err(error) => {
                self.section.error(&template.place, "name", format!("{:?}: {error}", template.value), None);
                None
            }
        }
    }

    /// A VM in a file of its own is named after it, if it says nothing else.
    fn name_of_file(&self) -> At<String> {
        let place = self.section.place().clone();
        let value = place.source.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        At { value, place }
    }

    fn boot(&mut self, words: &Words) -> Option<Boot> {
        let kernel = self.section.string("kernel");
        let initrd = self.section.string("initrd");
        let cmdline = self.section.string("cmdline");
        let firmware = self.section.string("firmware");
        let address = self.section.any_number::<u64>("load_address");
        match (kernel, firmware) {
            (Some(kernel), None) => {
                let kernel = self.kernel(&kernel, address.as_ref());
                let initrd = match initrd {
                    Some(initrd) => Some(self.module("initrd", &initrd, ModuleKind::Initrd)?.label),
                    None => None,
                };
                let cmdline = cmdline.map_or_else(|| "console=ttyS0".to_owned(), |text| words.fill(&text.value));
                Some(match kernel? {
                    (kernel, None) => Boot::Kernel { kernel, initrd, cmdline },
                    (program, Some(Program { entry, segments })) => {
                        Boot::Program { program, entry, segments, initrd, cmdline }
                    }
                })
            }
            (None, Some(firmware)) => {
                let address = address.map(|address| address.place);
                let initrd = initrd.map(|initrd| initrd.place);
                let cmdline = cmdline.map(|cmdline| cmdline.place);
                for (key, place) in [("initrd", initrd), ("cmdline", cmdline), ("load_address", address)] {
                    if let Some(place) = place {
                        let help = (key != "load_address").then(|| "the firmware finds its own on the disk".to_owned());
                        self.section.error(&place, key, "goes with a kernel, not with a firmware", help);
                    }
                }
                Some(Boot::Firmware { module: self.module("firmware", &firmware, ModuleKind::Firmware)?.label })
            }
            (Some(_), Some(firmware)) => {
                let help = Some("a VM boots either a kernel or a firmware".to_owned());
                self.section.error(&firmware.place, "firmware", "there is a kernel already", help);
                None
            }
            (None, None) => {
                let help = "say `kernel = \"cache:kernel/Image\"`, or `firmware = ...` to boot from a disk";
                self.section.require("kernel", None, help)
            }
        }
    }

    /// The kernel's module, and where it goes if it is not a Linux image.
    fn kernel(&mut self, kernel: &At<String>, address: Option<&At<u64>>) -> Option<(Label, Option<Program>)> {
        let Some(address) = address else {
            let found = self.module("kernel", kernel, ModuleKind::Kernel)?;
            let program = match found.is_elf {
                true => Some(self.modules.program(self.section, "kernel", &kernel.place, &found)?),
                false => None,
            };
            return Some((found.label, program));
        };
        self.places.note("boot", self.section, Some("load_address"));
        let found = self.module("kernel", kernel, ModuleKind::Flat)?;
        // Without a look at files their size is not known: at least one byte.
        Some((found.label, Some(program::flat(address.value, found.bytes.max(1)))))
    }

    fn module(&mut self, key: &'static str, text: &At<String>, kind: ModuleKind) -> Option<Found> {
        self.modules.add(self.loader, self.section, key, text, kind)
    }

    fn disks(&mut self, words: &Words) -> Vec<DiskSpec> {
        let mut disks = Vec::new();
        for section in self.section.tables("disk") {
            for (field, key) in [("", None), (".name", Some("name")), (".source", Some("source"))] {
                self.places.note(&format!("disks[{}]{field}", disks.len()), &section, key);
            }
            for key in ["partition", "overlay", "overlay_partition", "limit_mib"] {
                self.places.note(&format!("disks[{}].{key}", disks.len()), &section, Some(key));
            }
            disks.extend(read_disk(&section, words, disks.len()));
            section.finish();
        }
        disks
    }

    fn nets(&mut self) -> Vec<NetSpec> {
        let mut nets = Vec::new();
        for section in self.section.tables("net") {
            for (field, key) in [("", None), (".subnet", Some("subnet")), (".mac", Some("mac")), (".mtu", Some("mtu"))]
            {
                self.places.note(&format!("nets[{}]{field}", nets.len()), &section, key);
            }
            nets.extend(read_net(&section));
            section.finish();
        }
        nets
    }

    /// What has a default.
    fn rest(&mut self, spec: &mut VmSpec) {
        fn set<T>(field: &mut T, value: Option<At<T>>) {
            if let Some(value) = value {
                *field = value.value;
            }
        }
        let section = self.section;
        spec.promised_mib = section.any_number("promised_mib").map(|at| at.value);
        set(&mut spec.rng, section.boolean("rng"));
        set(&mut spec.balloon, section.boolean("balloon"));
        set(&mut spec.autostart, section.boolean("autostart"));
        set(&mut spec.weight, section.any_number("weight"));
        set(&mut spec.gang, section.choice("gang", &Gang::LABELS));
        set(&mut spec.nodes, section.any_number("nodes"));
        let interrupts = [("auto", Interrupts::Auto), ("aia", Interrupts::Aia), ("plic", Interrupts::Plic)];
        set(&mut spec.interrupts, section.choice("interrupts", &interrupts));
        set(&mut spec.sharing, section.boolean("sharing"));
        set(&mut spec.pages, section.choice("pages", &[("large", Pages::Large), ("base", Pages::Base)]));
        set(&mut spec.on_crash, section.choice("on_crash", &[("stop", OnCrash::Stop), ("reset", OnCrash::Reset)]));
        let failures = [("stop", OnFailure::Stop), ("restart", OnFailure::Restart)];
        set(&mut spec.on_failure, section.choice("on_failure", &failures));
        let placements = [
            ("dynamic", Placement::Dynamic),
            ("migrate", Placement::Migrate),
            ("replicate", Placement::Replicate),
            ("first-touch", Placement::FirstTouch),
        ];
        set(&mut spec.placement, section.choice("placement", &placements));
        let cell = self.cells.map(|cells| cells::position(section, cells));
        if section.has("cell") && !matches!(cell, Some(Some(_))) {
            self.places.doubt("cell");
        }
        spec.cell = cell.flatten().unwrap_or(0);
        if let Some(ports) = section.strings("ports") {
            spec.ports = ports.iter().filter_map(|port| self.port(port)).collect();
        }
    }

    fn port(&self, text: &At<String>) -> Option<Label> {
        match Label::new(text.value.clone()) {
            Ok(label) => Some(label),
            Err(error) => {
                self.section.error(&text.place, "ports", format!("{:?}: {error}", text.value), None);
                None
            }
        }
    }
}

/// What could not be read of it gets a value with which nothing else is wrong.
fn read_disk(section: &Section<'_>, words: &Words, index: usize) -> Option<DiskSpec> {
    let source = section.string("source");
    let source = section.require("source", source, "the name of one of the machine's disks");
    let source = source.and_then(|text| match Name::new(words.fill(&text.value)) {
        Ok(name) => Some(name),
        Err(error) => {
            section.error(&text.place, "source", format!("{:?}: {error}", text.value), None);
            None
        }
    });
    let mut name = section.parsed::<Name>("name").map(|at| at.value);
    if name.is_none() && section.has("name") {
        name = Name::new(format!("disk-{index}")).ok();
    }
    let mut partition = section.string("partition").map(|at| at.value);
    if partition.is_none() && section.has("partition") {
        partition = Some(format!("unknown {index}"));
    }
    let modes = [
        ("copy-on-write", DiskMode::CopyOnWrite),
        ("persistent", DiskMode::Persistent),
        ("read-only", DiskMode::ReadOnly),
    ];
    let mode = section.choice("mode", &modes).map_or(DiskMode::CopyOnWrite, |at| at.value);
    let overlay = read_overlay(section, words);
    let limit_mib = section.any_number("limit_mib").map(|at| at.value);
    let source = source?;
    Some(DiskSpec { name: name.unwrap_or_else(|| source.clone()), source, partition, mode, overlay, limit_mib })
}

fn read_overlay(section: &Section<'_>, words: &Words) -> Option<OverlaySpec> {
    let partition = section.string("overlay_partition");
    let snapshot = section.parsed::<Name>("snapshot");
    let Some(disk) = section.string("overlay") else {
        let stray = [("overlay_partition", partition.map(|at| at.place)), ("snapshot", snapshot.map(|at| at.place))];
        for (key, place) in stray {
            if let Some(place) = place {
                let help = Some("say `overlay = ...`, the machine's disk that keeps what the VM writes".to_owned());
                section.error(&place, key, "goes with an overlay", help);
            }
        }
        return None;
    };
    match Name::new(words.fill(&disk.value)) {
        // Without its partition it is on the whole disk, or on its own source.
        Ok(_) if partition.is_none() && section.has("overlay_partition") => None,
        Ok(name) => {
            let (partition, snapshot) = (partition.map(|at| at.value), snapshot.map(|at| at.value));
            Some(OverlaySpec { disk: name, partition, snapshot })
        }
        Err(error) => {
            section.error(&disk.place, "overlay", format!("{:?}: {error}", disk.value), None);
            None
        }
    }
}

fn read_net(section: &Section<'_>) -> Option<NetSpec> {
    let subnet = section.parsed::<Name>("subnet").map(|at| at.value);
    let subnet = section.require("subnet", subnet, "the name of one of the machine's subnets");
    let mac = section.parsed::<MacAddress>("mac").map(|at| at.value);
    let mtu = section.any_number("mtu").map_or(DEFAULT_MTU, |at| at.value);
    Some(NetSpec { subnet: subnet?, mac, mtu })
}

/// What `{name}` and `{n}` stand for in a VM's texts.
struct Words {
    name: String,
    number: Option<u16>,
}

impl Words {
    fn fill(&self, text: &str) -> String {
        let text = text.replace("{name}", &self.name);
        match self.number {
            Some(number) => text.replace("{n}", &number.to_string()),
            None => text,
        }
    }
}
