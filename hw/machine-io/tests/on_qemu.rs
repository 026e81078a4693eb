//! Boots the probe (`examples/machine-io-probe`) on emulated machines: disks, network and control port over PCI Express
//! and both generations of virtio-mmio, with every kind of interrupt controller.
//!
//! Needs `qemu-system-riscv64` and the Rust target, so it runs when asked:
//! `cargo test -p machine-io --test on_qemu -- --ignored`.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// The whole run of one machine must end in this time.
const LIMIT: Duration = Duration::from_secs(120);

/// Builds the probe once.
fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probe");
        let triple = "riscv64imac-unknown-none-elf";
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--package", "machine-io", "--example", "machine-io-probe"])
            .args(["--target", triple, "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the probe builds");
        target.join(triple).join("release/examples/machine-io-probe")
    })
}

/// The bus that devices sit on.
#[derive(Clone, Copy)]
enum Bus {
    Pci,
    /// virtio-mmio version 2.
    Mmio,
    /// virtio-mmio version 1.
    LegacyMmio,
}

/// A running machine; killed when it goes out of scope.
struct Machine {
    child: Child,
    folder: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    fn start(name: &str, machine: &[&str], bus: Bus) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // What an earlier run left would be taken for this one's.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("folder");
        for (disk, mib) in [("scratch", 8), ("root", 2)] {
            let pattern: Vec<u8> = (0..mib << 20).map(|byte: u32| (byte / 512) as u8).collect();
            fs::write(folder.join(disk), pattern).expect("disk image");
        }
        let kind = if matches!(bus, Bus::Pci) { "pci" } else { "device" };
        // The network card's boot ROM is no part of this machine, and not of every installation.
        let no_rom = if matches!(bus, Bus::Pci) { ",romfile=" } else { "" };
        let mut qemu = Command::new("qemu-system-riscv64");
        qemu.current_dir(&folder).args(machine).args(["-display", "none", "-monitor", "none", "-m", "1G"]);
        qemu.args(["-serial", "file:log", "-kernel"]).arg(probe());
        if matches!(bus, Bus::Mmio) {
            qemu.args(["-global", "virtio-mmio.force-legacy=false"]);
        }
        qemu.args(["-drive", "file=scratch,if=none,format=raw,id=scratch"]);
        qemu.args(["-device", &format!("virtio-blk-{kind},drive=scratch,serial=scratch")]);
        qemu.args(["-drive", "file=root,if=none,format=raw,id=root,readonly=on"]);
        qemu.args(["-device", &format!("virtio-blk-{kind},drive=root")]);
        qemu.args(["-netdev", "user,id=net", "-device", &format!("virtio-net-{kind},netdev=net{no_rom}")]);
        qemu.args(["-chardev", "socket,path=control,server=on,wait=off,id=control"]);
        qemu.args(["-device", &format!("virtio-serial-{kind}"), "-device", "virtconsole,chardev=control"]);
        let child = qemu.stdin(Stdio::null()).spawn().expect("qemu-system-riscv64 runs");
        Self { child, folder }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join("log")).unwrap_or_default()).into_owned()
    }

    /// Waits for a line in the log.
    fn wait_for(&mut self, line: &str) {
        let start = Instant::now();
        while !self.log().contains(line) {
            let is_over = self.child.try_wait().expect("child").is_some() || start.elapsed() > LIMIT;
            assert!(!is_over || self.log().contains(line), "no {line:?} in:\n{}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a megabyte through the control port and back, then ends the conversation.
    fn converse(&mut self) {
        self.wait_for("control port ready");
        let mut port = UnixStream::connect(self.folder.join("control")).expect("control socket");
        port.set_read_timeout(Some(LIMIT)).expect("timeout");
        let mut sent: Vec<u8> = (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        sent.extend(b"\nquit\n");
        let mut writer = port.try_clone().expect("socket");
        let (mut got, copy) = (vec![0; sent.len()], sent.clone());
        let writing = thread::spawn(move || writer.write_all(&copy));
        port.read_exact(&mut got).expect("everything comes back");
        writing.join().expect("writer").expect("everything is taken");
        assert!(got == sent, "the echo is what was sent");
    }
}

fn run(name: &str, machine: &[&str], bus: Bus) {
    let mut machine = Machine::start(name, machine, bus);
    machine.converse();
    machine.wait_for("probe passed");
    let log = machine.log();
    for line in ["disk \"scratch\", 16384 sectors, read-only false", "disk \"disk@", "500 ARP answers", "echoed 10485"]
    {
        assert!(log.contains(line), "no {line:?} in:\n{log}");
    }
}

const AIA: &[&str] = &["-M", "virt,aia=aplic-imsic,aia-guests=7,aclint=on", "-cpu", "rva23s64", "-smp", "2"];
const PLIC: &[&str] = &["-M", "virt", "-cpu", "max", "-smp", "2"];
const WIRED_APLIC: &[&str] = &["-M", "virt,aia=aplic", "-cpu", "max", "-smp", "1"];

#[test]
#[ignore = "boots QEMU"]
fn pci_with_messages() {
    run("pci-aia", AIA, Bus::Pci);
}

#[test]
#[ignore = "boots QEMU"]
fn pci_with_plic() {
    run("pci-plic", PLIC, Bus::Pci);
}

#[test]
#[ignore = "boots QEMU"]
fn mmio_with_messages() {
    run("mmio-aia", AIA, Bus::Mmio);
}

#[test]
#[ignore = "boots QEMU"]
fn old_mmio_with_plic() {
    run("mmio-plic", PLIC, Bus::LegacyMmio);
}

#[test]
#[ignore = "boots QEMU"]
fn pci_with_wired_aplic() {
    run("pci-aplic", WIRED_APLIC, Bus::Pci);
}

/// Four sockets: PCI interrupts go to the third socket's controller.
#[test]
#[ignore = "boots QEMU"]
fn pci_on_four_nodes() {
    let mut machine: Vec<String> =
        ["-M", "virt,aia=aplic-imsic,aia-guests=3,aclint=on", "-cpu", "rva23s64", "-smp", "8,sockets=4"]
            .map(String::from)
            .into();
    for node in 0..4 {
        machine.extend(["-object".into(), format!("memory-backend-ram,size=256M,id=m{node}"), "-numa".into()]);
        machine.push(format!("node,nodeid={node},cpus={}-{},memdev=m{node}", 2 * node, 2 * node + 1));
    }
    let machine: Vec<&str> = machine.iter().map(String::as_str).collect();
    run("pci-nodes", &machine, Bus::Pci);
}
