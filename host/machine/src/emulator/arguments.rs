//! The emulator's command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use config::{Backing, DiskPlan, Hardware, MachineInterrupts, NodePlan};

/// The files and sockets that the emulator is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// The monitor's image.
    pub monitor: PathBuf,
    /// The boot bundle.
    pub bundle: PathBuf,
    /// A listening socket, to which the emulator connects the control port.
    pub control: PathBuf,
    /// The file for the machine's own log.
    pub log: PathBuf,
    /// The directory for disks that go with the machine; each is `disk-NAME.img`, made by the caller.
    pub scratch: PathBuf,
}

impl Wiring {
    /// The file behind a disk that goes with the machine.
    #[must_use]
    pub fn scratch_disk(&self, disk: &DiskPlan) -> PathBuf {
        self.scratch.join(format!("disk-{}.img", disk.name))
    }
}

/// The emulator's arguments for this machine.
#[must_use]
pub fn arguments(hardware: &Hardware, wiring: &Wiring) -> Vec<OsString> {
    let mut line = Line::default();
    line.flag("-nodefaults").option("-display", "none").flag("-no-reboot");
    machine(&mut line, hardware);
    nodes(&mut line, &hardware.nodes);
    distances(&mut line, hardware);
    if hardware.icount {
        line.option("-icount", "shift=0");
    }
    line.value("-kernel", &wiring.monitor).value("-initrd", &wiring.bundle);
    line.option("-chardev", path_option("file,id=log,path=", &wiring.log)).option("-serial", "chardev:log");
    // The emulator is the one that connects: then nobody has to wait for its socket to appear.
    line.option("-chardev", path_option("socket,id=control,server=off,path=", &wiring.control));
    line.option("-device", "virtio-serial-pci,id=control-bus,disable-legacy=on,max_ports=1");
    line.option("-device", "virtconsole,bus=control-bus.0,chardev=control");
    for (index, disk) in hardware.disks.iter().enumerate() {
        add_disk(&mut line, index, disk, wiring);
    }
    if hardware.uplink {
        line.option("-netdev", "user,id=uplink");
        // No boot ROM: it would need a file that not every installation has.
        line.option("-device", "virtio-net-pci,netdev=uplink,disable-legacy=on,romfile=");
    }
    line.0.extend(hardware.qemu_args.iter().map(OsString::from));
    line.0
}

fn machine(line: &mut Line, hardware: &Hardware) {
    match hardware.interrupts {
        // Without `aclint` the firmware dies on machines of three nodes and more.
        MachineInterrupts::Aia { guest_files } => {
            line.option("-M", format!("virt,aia=aplic-imsic,aia-guests={guest_files},aclint=on"))
        }
        MachineInterrupts::Plic => line.option("-M", "virt"),
    };
    line.option("-cpu", &hardware.cpu);
    line.option("-smp", hardware.harts().to_string());
    line.option("-m", format!("{}M", hardware.memory_mib()));
}

fn nodes(line: &mut Line, nodes: &[NodePlan]) {
    let mut first = 0;
    for (id, node) in nodes.iter().enumerate() {
        let last = first + node.harts - 1;
        let harts = if first == last { format!("{first}") } else { format!("{first}-{last}") };
        line.option("-object", format!("memory-backend-ram,id=node{id},size={}M", node.memory_mib));
        line.option("-numa", format!("node,nodeid={id},cpus={harts},memdev=node{id}"));
        first += node.harts;
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

fn add_disk(line: &mut Line, index: usize, disk: &DiskPlan, wiring: &Wiring) {
    // A flush matters only where the data outlives the machine.
    let (path, format, cache) = match &disk.backing {
        Backing::File { path, format } => (path.clone(), format.driver(), "writeback"),
        Backing::Scratch { .. } => (wiring.scratch_disk(disk), "raw", "unsafe"),
    };
    let read_only = if disk.read_only { "on" } else { "off" };
    let options = format!("if=none,id=disk{index},format={format},readonly={read_only},cache={cache},file=");
    line.option("-drive", path_option(&options, &path));
    line.option("-device", format!("virtio-blk-pci,drive=disk{index},serial={},disable-legacy=on", disk.name));
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
    use config::ImageFormat;
    use control::Name;

    use super::*;

    fn hardware() -> Hardware {
        Hardware {
            cpu: "rva23s64".into(),
            interrupts: MachineInterrupts::Aia { guest_files: 7 },
            nodes: vec![NodePlan { harts: 2, memory_mib: 1024 }, NodePlan { harts: 1, memory_mib: 512 }],
            distances: Some(vec![vec![10, 30], vec![20, 10]]),
            disks: Vec::new(),
            uplink: false,
            icount: false,
            qemu: None,
            monitor: None,
            qemu_args: vec!["-s".into()],
        }
    }

    fn wiring() -> Wiring {
        Wiring {
            monitor: "monitor.bin".into(),
            bundle: "bundle.cpio".into(),
            control: "a,b/qemu.sock".into(),
            log: "monitor.log".into(),
            scratch: "run".into(),
        }
    }

    fn line(hardware: &Hardware) -> String {
        let words = arguments(hardware, &wiring());
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
        (hardware.uplink, hardware.icount) = (true, true);
        let backing = Backing::File { path: "d.qcow2".into(), format: ImageFormat::Qcow2 };
        hardware.disks.push(DiskPlan { name: name("debian"), backing, read_only: true });
        let backing = Backing::Scratch { size_mib: 64 };
        hardware.disks.push(DiskPlan { name: name("tmp"), backing, read_only: false });
        let line = line(&hardware);
        for part in [
            "-M virt -cpu",
            "-icount shift=0",
            "if=none,id=disk0,format=qcow2,readonly=on,cache=writeback,file=d.qcow2",
            "virtio-blk-pci,drive=disk0,serial=debian,",
            "if=none,id=disk1,format=raw,readonly=off,cache=unsafe,file=run/disk-tmp.img",
            "virtio-net-pci,netdev=uplink,disable-legacy=on,romfile=",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
}
