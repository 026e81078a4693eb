//! The emulator's command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::tree;
use config::{Backing, DiskPlan, Forward, Hardware, ImageFormat, MachineInterrupts, NodePlan, Reach, Uplink};

/// The files and sockets that the emulator is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// What it boots.
    pub payload: Payload,
    /// The file for what the machine says on its serial port.
    pub log: PathBuf,
    /// The directory for disks that go with the machine; each is `disk-NAME.img`, made by the caller.
    pub scratch: PathBuf,
    /// The model that it runs with.
    pub model: Option<ModelWiring>,
    /// The firmware that can make parts of it fail.
    pub faults: Option<FaultWiring>,
}

/// What the firmware starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The monitor.
    Monitor {
        /// Its image.
        image: PathBuf,
        /// The boot bundle.
        bundle: PathBuf,
        /// A listening socket, to which the emulator connects the control port.
        control: PathBuf,
    },
    /// A kernel, on the bare machine.
    Linux {
        /// Its image.
        kernel: PathBuf,
        /// Its initial file system.
        initrd: Option<PathBuf>,
        /// Its command line.
        cmdline: String,
    },
}

/// The fault firmware, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultWiring {
    /// Its image.
    pub firmware: PathBuf,
    /// The machine's RAM, as in [`ModelWiring::ram`]: its mailbox is in there.
    pub ram: PathBuf,
}

/// The files of the machine model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelWiring {
    /// The plugin.
    pub plugin: PathBuf,
    /// The file that it shares with the monitor and with tools.
    pub shared: PathBuf,
    /// Its size: a power of two.
    pub shared_bytes: u64,
    /// The description of the machine.
    pub description: PathBuf,
    /// Where it writes a line per mark.
    pub marks: PathBuf,
    /// The machine's RAM: that of each node behind that of the node before.
    pub ram: PathBuf,
    /// Seed of the firmware's random numbers.
    pub seed: u64,
}

impl Wiring {
    /// The file behind a disk that goes with the machine.
    #[must_use]
    pub fn scratch_disk(&self, disk: &DiskPlan) -> PathBuf {
        self.scratch.join(format!("disk-{}.img", disk.name))
    }

    /// The file behind a disk.
    #[must_use]
    pub fn disk_file(&self, disk: &DiskPlan) -> PathBuf {
        match &disk.backing {
            Backing::File { path, .. } => path.clone(),
            Backing::Scratch { .. } => self.scratch_disk(disk),
        }
    }

    /// Where a disk with a model is served.
    #[must_use]
    pub fn disk_socket(&self, disk: &DiskPlan) -> PathBuf {
        self.scratch.join(format!("disk-{}.sock", disk.name))
    }
}

/// The emulator's arguments for this machine.
#[must_use]
pub fn arguments(hardware: &Hardware, wiring: &Wiring) -> Vec<OsString> {
    let mut line = Line::default();
    line.flag("-nodefaults").option("-display", "none").flag("-no-reboot");
    machine(&mut line, hardware, wiring.faults.is_some());
    let ram = wiring.model.as_ref().map(|model| &model.ram);
    nodes(&mut line, &tree::sockets(&hardware.nodes), ram.or(wiring.faults.as_ref().map(|faults| &faults.ram)));
    // Between more nodes than the emulator has they are in the tree that is made for it.
    if hardware.nodes.len() <= tree::MOST_SOCKETS {
        distances(&mut line, hardware);
    }
    if hardware.icount {
        line.option("-icount", "shift=0");
    }
    if let Some(faults) = &wiring.faults {
        line.value("-bios", &faults.firmware);
    }
    if let Some(model) = &wiring.model {
        add_model(&mut line, model);
    }
    line.option("-chardev", path_option("file,id=log,path=", &wiring.log)).option("-serial", "chardev:log");
    add_payload(&mut line, &wiring.payload);
    for (index, disk) in hardware.disks.iter().enumerate() {
        add_disk(&mut line, index, disk, wiring);
    }
    if let Some(uplink) = &hardware.uplink {
        add_uplink(&mut line, uplink);
    }
    line.0.extend(hardware.qemu_args.iter().map(OsString::from));
    line.0
}

fn machine(line: &mut Line, hardware: &Hardware, can_fail: bool) {
    match hardware.interrupts {
        // Without `aclint` the firmware dies on machines of three nodes and more.
        MachineInterrupts::Aia { guest_files } => {
            line.option("-M", format!("virt,aia=aplic-imsic,aia-guests={guest_files},aclint=on"))
        }
        MachineInterrupts::Plic => line.option("-M", "virt"),
    };
    // Memory is lost by physical memory protection, which the emulator's profile CPUs lack unless told otherwise.
    let cpu = if can_fail { format!("{},pmp=on", hardware.cpu) } else { hardware.cpu.clone() };
    line.option("-cpu", cpu);
    line.option("-smp", hardware.harts().to_string());
    line.option("-m", format!("{}M", hardware.memory_mib()));
}

fn nodes(line: &mut Line, nodes: &[NodePlan], ram: Option<&PathBuf>) {
    let (mut first, mut offset) = (0, 0);
    for (id, node) in nodes.iter().enumerate() {
        let last = first + node.harts - 1;
        let harts = if first == last { format!("{first}") } else { format!("{first}-{last}") };
        let size = format!("id=node{id},size={}M", node.memory_mib);
        match ram {
            None => line.option("-object", format!("memory-backend-ram,{size}")),
            Some(ram) => {
                let options = format!("memory-backend-file,{size},share=on,offset={offset},mem-path=");
                line.option("-object", path_option(&options, ram))
            }
        };
        line.option("-numa", format!("node,nodeid={id},cpus={harts},memdev=node{id}"));
        first += node.harts;
        offset += u64::from(node.memory_mib) << 20;
    }
}

fn distances(line: &mut Line, hardware: &Hardware) {
    for (from, row) in hardware.distances.iter().flatten().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            if from != to {
                line.option("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }
}

/// The plugin counts time by itself, which needs one thread for all harts and a clock that nothing else moves.
fn add_model(line: &mut Line, model: &ModelWiring) {
    line.option("-accel", "tcg,thread=single").option("-rtc", "base=2026-01-01T00:00:00,clock=vm");
    line.option("-seed", model.seed.to_string());
    let mut plugin = path_option("", &model.plugin);
    for (key, path) in
        [("shared", &model.shared), ("machine", &model.description), ("ram", &model.ram), ("marks", &model.marks)]
    {
        plugin.push(path_option(&format!(",{key}="), path));
    }
    line.option("-plugin", plugin);
    let options = format!("memory-backend-file,id=model,share=on,size={},mem-path=", model.shared_bytes);
    line.option("-object", path_option(&options, &model.shared));
    line.option("-device", "ivshmem-plain,memdev=model");
}

fn add_payload(line: &mut Line, payload: &Payload) {
    match payload {
        Payload::Monitor { image, bundle, control } => {
            line.value("-kernel", image).value("-initrd", bundle);
            // The emulator is the one that connects: then nobody has to wait for its socket to appear.
            line.option("-chardev", path_option("socket,id=control,server=off,path=", control));
            line.option("-device", "virtio-serial-pci,id=control-bus,disable-legacy=on,max_ports=1");
            line.option("-device", "virtconsole,bus=control-bus.0,chardev=control");
        }
        Payload::Linux { kernel, initrd, cmdline } => {
            line.value("-kernel", kernel).option("-append", cmdline);
            if let Some(initrd) = initrd {
                line.value("-initrd", initrd);
            }
        }
    }
}

fn add_disk(line: &mut Line, index: usize, disk: &DiskPlan, wiring: &Wiring) {
    let read_only = if disk.read_only { "on" } else { "off" };
    let device = format!("virtio-blk-pci,drive=disk{index},serial={},disable-legacy=on", disk.name);
    if disk.model.is_some() {
        // Without ioeventfd a request is in the server's socket before the hart that rang the doorbell goes on.
        let options = format!(
            "if=none,id=disk{index},format=raw,readonly={read_only},cache=writeback,file.driver=nbd,\
             file.server.type=unix,file.export={},file.server.path=",
            disk.name
        );
        line.option("-drive", path_option(&options, &wiring.disk_socket(disk)));
        line.option("-device", format!("{device},ioeventfd=off"));
        return;
    }
    // A flush matters only where the data outlives the machine.
    let (format, cache) = match &disk.backing {
        Backing::File { format, .. } => (format.driver(), "writeback"),
        Backing::Scratch { .. } => ("raw", "unsafe"),
    };
    // Format and protocol are said of each file: the emulator would otherwise find a format in what a guest has written, and a
    // protocol in a file's name.
    let options = format!(
        "if=none,id=disk{index},format={format},readonly={read_only},cache={cache},file.driver=file,file.filename="
    );
    let mut drive = path_option(&options, &wiring.disk_file(disk));
    if let Backing::File { format: ImageFormat::Qcow2 { backing: Some(below) }, .. } = &disk.backing {
        let format = if below.is_qcow2 { "qcow2" } else { "raw" };
        let options = format!(",backing.driver={format},backing.file.driver=file,backing.file.filename=");
        drive.push(path_option(&options, &below.path));
    }
    line.option("-drive", drive);
    line.option("-device", device);
}

/// The emulator's user network speaks for this host's user: it leads to the host's own ports as well, unless it is closed.
fn add_uplink(line: &mut Line, uplink: &Uplink) {
    let mut network = String::from("user,id=uplink");
    if uplink.reach == Reach::Nothing {
        network.push_str(",restrict=on");
    }
    for Forward { host_port, guest } in &uplink.forwards {
        network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{host_port}-{guest}"));
    }
    line.option("-netdev", network);
    // No boot ROM: it would need a file that not every installation has.
    line.option("-device", "virtio-net-pci,netdev=uplink,disable-legacy=on,romfile=");
}

/// `options` with a path at the end. In the emulator's option lists a comma is written twice.
fn path_option(options: &str, path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut bytes = options.as_bytes().to_vec();
    for byte in path.as_os_str().as_bytes() {
        bytes.push(*byte);
        if *byte == b',' {
            bytes.push(*byte);
        }
    }
    OsString::from_vec(bytes)
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn flag(&mut self, flag: &str) -> &mut Self {
        self.0.push(flag.into());
        self
    }

    fn option(&mut self, flag: &str, value: impl Into<OsString>) -> &mut Self {
        self.0.push(flag.into());
        self.0.push(value.into());
        self
    }

    fn value(&mut self, flag: &str, path: &Path) -> &mut Self {
        self.option(flag, path.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use config::{BackingImage, DiskModel};
    use control::Name;
    use disk_model::Preset;

    use super::*;

    fn hardware() -> Hardware {
        Hardware {
            cpu: "rva23s64".into(),
            interrupts: MachineInterrupts::Aia { guest_files: 7 },
            nodes: vec![NodePlan { harts: 2, memory_mib: 1024 }, NodePlan { harts: 1, memory_mib: 512 }],
            distances: Some(vec![vec![10, 30], vec![20, 10]]),
            disks: Vec::new(),
            uplink: None,
            icount: false,
            model: None,
            firmware: config::Firmware::OpenSbi,
            qemu: None,
            monitor: None,
            qemu_args: vec!["-s".into()],
        }
    }

    fn wiring() -> Wiring {
        Wiring {
            payload: Payload::Monitor {
                image: "monitor.bin".into(),
                bundle: "bundle.cpio".into(),
                control: "a,b/qemu.sock".into(),
            },
            log: "monitor.log".into(),
            scratch: "run".into(),
            model: None,
            faults: None,
        }
    }

    fn line(hardware: &Hardware) -> String {
        line_of(hardware, &wiring())
    }

    fn line_of(hardware: &Hardware, wiring: &Wiring) -> String {
        let words = arguments(hardware, wiring);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nodes_may_be_uneven_and_far() {
        let line = line(&hardware());
        for part in [
            "-M virt,aia=aplic-imsic,aia-guests=7,aclint=on -cpu rva23s64 -smp 3 -m 1536M",
            "-object memory-backend-ram,id=node0,size=1024M -numa node,nodeid=0,cpus=0-1,memdev=node0",
            "-object memory-backend-ram,id=node1,size=512M -numa node,nodeid=1,cpus=2,memdev=node1",
            "-numa dist,src=0,dst=1,val=30 -numa dist,src=1,dst=0,val=20",
            "path=a,,b/qemu.sock",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(line.ends_with(" -s"));
        assert!(!line.contains("netdev") && !line.contains("icount"));
    }

    #[test]
    fn disks_and_network() {
        let name = |text| Name::new(text).expect("a good name");
        let mut hardware = hardware();
        hardware.interrupts = MachineInterrupts::Plic;
        (hardware.uplink, hardware.icount) = (Some(Uplink::default()), true);
        let backing = Backing::File { path: "d.qcow2".into(), format: ImageFormat::Qcow2 { backing: None } };
        hardware.disks.push(DiskPlan { name: name("debian"), backing, read_only: true, model: None });
        let backing = Backing::Scratch { size_mib: 64 };
        hardware.disks.push(DiskPlan { name: name("tmp"), backing, read_only: false, model: None });
        let model = Some(DiskModel { preset: Preset::Hp97560, scale: 2 });
        let backing = Backing::Scratch { size_mib: 64 };
        hardware.disks.push(DiskPlan { name: name("slow"), backing, read_only: false, model });
        let line = line(&hardware);
        for part in [
            "-M virt -cpu",
            "-icount shift=0",
            "if=none,id=disk0,format=qcow2,readonly=on,cache=writeback,file.driver=file,file.filename=d.qcow2",
            "virtio-blk-pci,drive=disk0,serial=debian,",
            "if=none,id=disk1,format=raw,readonly=off,cache=unsafe,file.driver=file,\
             file.filename=run/disk-tmp.img",
            "if=none,id=disk2,format=raw,readonly=off,cache=writeback,file.driver=nbd,file.server.type=unix,\
             file.export=slow,file.server.path=run/disk-slow.sock",
            "virtio-blk-pci,drive=disk2,serial=slow,disable-legacy=on,ioeventfd=off",
            "-netdev user,id=uplink,restrict=on -device virtio-net-pci,netdev=uplink,disable-legacy=on,romfile=",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn the_network_is_open_only_if_the_machine_file_says_so() {
        let mut hardware = hardware();
        let guest = "10.0.2.15:22".parse().expect("an address");
        let mut uplink = Uplink { reach: Reach::Nothing, forwards: vec![Forward { host_port: 2222, guest }] };
        hardware.uplink = Some(uplink.clone());
        let closed = "-netdev user,id=uplink,restrict=on,hostfwd=tcp:127.0.0.1:2222-10.0.2.15:22 ";
        assert!(line(&hardware).contains(closed), "{}", line(&hardware));
        uplink.reach = Reach::Host;
        hardware.uplink = Some(uplink);
        assert!(!line(&hardware).contains("restrict"), "{}", line(&hardware));
    }

    #[test]
    fn an_image_lies_over_what_the_machine_file_says() {
        let mut hardware = hardware();
        let below = BackingImage { path: "a,b.img".into(), is_qcow2: false };
        let format = ImageFormat::Qcow2 { backing: Some(below) };
        let backing = Backing::File { path: "nbd:host:1".into(), format };
        let name = Name::new("debian").expect("a good name");
        hardware.disks.push(DiskPlan { name, backing, read_only: false, model: None });
        let line = line(&hardware);
        let wanted = "file.driver=file,file.filename=nbd:host:1,backing.driver=raw,backing.file.driver=file,\
                      backing.file.filename=a,,b.img";
        assert!(line.contains(wanted), "{line}");
    }

    #[test]
    fn a_model_has_shared_memory_a_plugin_and_a_device() {
        let model = ModelWiring {
            plugin: "libnuma_model.so".into(),
            shared: "a,b/model.bin".into(),
            shared_bytes: 1 << 20,
            description: "model.json".into(),
            marks: "marks.jsonl".into(),
            ram: "/proc/1/fd/3".into(),
            seed: 5,
        };
        let line = line_of(&hardware(), &Wiring { model: Some(model), ..wiring() });
        for part in [
            "-object memory-backend-file,id=node0,size=1024M,share=on,offset=0,mem-path=/proc/1/fd/3 -numa",
            "-object memory-backend-file,id=node1,size=512M,share=on,offset=1073741824,mem-path=/proc/1/fd/3 -numa",
            "-accel tcg,thread=single -rtc base=2026-01-01T00:00:00,clock=vm -seed 5",
            "-plugin libnuma_model.so,shared=a,,b/model.bin,machine=model.json,ram=/proc/1/fd/3,marks=marks.jsonl",
            "-object memory-backend-file,id=model,share=on,size=1048576,mem-path=a,,b/model.bin",
            "-device ivshmem-plain,memdev=model",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("memory-backend-ram"));
    }

    #[test]
    fn hardware_that_can_fail_has_its_firmware_and_shared_memory() {
        let faults = FaultWiring { firmware: "firmware.bin".into(), ram: "/proc/1/fd/3".into() };
        let line = line_of(&hardware(), &Wiring { faults: Some(faults), ..wiring() });
        for part in [
            "-cpu rva23s64,pmp=on",
            "-bios firmware.bin",
            "-object memory-backend-file,id=node1,size=512M,share=on,offset=1073741824,mem-path=/proc/1/fd/3 -numa",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("memory-backend-ram") && !line.contains("-plugin"));
    }

    #[test]
    fn a_bare_kernel_has_no_control_port() {
        let payload =
            Payload::Linux { kernel: "Image".into(), initrd: Some("root.cpio".into()), cmdline: "quiet a=b".into() };
        let line = line_of(&hardware(), &Wiring { payload, ..wiring() });
        assert!(line.contains("-kernel Image -append quiet a=b -initrd root.cpio"), "{line}");
        assert!(!line.contains("control") && !line.contains("virtconsole"));
    }
}
