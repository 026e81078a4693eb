//! Whole Debian guests: systemd, a shell through the guest agent, an orderly end. Tests that compare what guests read do so by MD5
//! sums: an emulated guest takes ten times as long for SHA-256, and nobody forges what these read.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use control::{Boot, DEFAULT_MTU, DiskMode, DiskSpec, Name, NetSpec, StopReason, VmSpec};
use lab::artifacts;
use lab::rig::{Rig, Running, debian_vm, label, name};
use machine::{GuestAgent, ShutdownMode};

use crate::ok;

/// The machine's disk with the root image.
pub const ROOT: &str = "debian";
/// The module with U-Boot.
const FIRMWARE: &str = "u-boot";
/// The initial file system that mounts the root disk.
const INITRD: &str = "initrd.cpio";

/// Longest wait for a guest to come up, for a command in it, and for its end. Only a watchdog.
const PATIENCE: Duration = Duration::from_secs(600);

/// A machine with all that Debian guests need: kernel, U-Boot, root image. Its CPU is the one that users have.
///
/// # Panics
/// If the images have not been made.
#[track_caller]
#[must_use]
pub fn with_debian(rig: Rig) -> Rig {
    let rig = ok(rig.sparing_fences().with_debian(INITRD));
    let rig = ok(rig.module(FIRMWARE, ok(artifacts::cached("u-boot/u-boot.bin"))));
    ok(rig.image(ROOT, ok(artifacts::cached("root/root.img"))))
}

/// A Debian guest on a copy-on-write disk.
///
/// # Panics
/// If the name is none.
#[track_caller]
#[must_use]
pub fn debian(vm: &str, vcpus: u16) -> VmSpec {
    let cmdline = format!("root=/dev/vda1 rw quiet systemd.hostname={vm}");
    let spec = ok(debian_vm(vm, vcpus, 320, INITRD, &cmdline));
    VmSpec { disks: vec![disk("root", ROOT, DiskMode::CopyOnWrite)], ..spec }
}

/// The same, but it finds its kernel itself: U-Boot looks for it on the disk.
///
/// # Panics
/// If the name is none.
#[track_caller]
#[must_use]
pub fn debian_by_firmware(vm: &str, vcpus: u16) -> VmSpec {
    VmSpec { boot: Boot::Firmware { module: ok(label(FIRMWARE)) }, ..debian(vm, vcpus) }
}

/// A disk of a VM.
///
/// # Panics
/// If a name is none.
#[track_caller]
#[must_use]
pub fn disk(disk: &str, source: &str, mode: DiskMode) -> DiskSpec {
    DiskSpec { name: ok(name(disk)), source: ok(name(source)), partition: None, mode, overlay: None, limit_mib: None }
}

/// An interface on a subnet.
///
/// # Panics
/// If the name is none.
#[track_caller]
#[must_use]
pub fn net(subnet: &str, mtu: Option<u16>) -> NetSpec {
    NetSpec { subnet: ok(name(subnet)), mac: None, mtu: mtu.unwrap_or(DEFAULT_MTU) }
}

/// A shell in a guest.
pub struct Shell {
    vm: Name,
    agent: GuestAgent,
}

impl Shell {
    /// Starts a VM that exists, and waits for its agent.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    #[must_use]
    pub fn start(machine: &Running, vm: &VmSpec) -> Self {
        let [shell] = Self::start_all(machine, [vm]);
        shell
    }

    /// The same with several at once.
    ///
    /// # Panics
    /// If one does not come up.
    #[track_caller]
    #[must_use]
    pub fn start_all<const N: usize>(machine: &Running, vms: [&VmSpec; N]) -> [Self; N] {
        vms.iter().for_each(|vm| ok(machine.client().start_vm(&vm.name)));
        vms.map(|vm| Self::connect(machine, vm.name.clone()))
    }

    /// A shell in a VM that runs; waits for its agent.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    #[must_use]
    pub fn connect(machine: &Running, vm: Name) -> Self {
        match GuestAgent::connect(machine.client(), &vm, PATIENCE) {
            Ok(agent) => Self { vm, agent },
            Err(error) => panic!("{error}; its console:\n{}", machine.console(&vm).unwrap_or_default()),
        }
    }

    /// Runs a script to its end; gives its output.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn run(&mut self, script: &str) -> String {
        self.run_with(script, &[])
    }

    /// Runs a script with arguments (`$1` and so on).
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn run_with(&mut self, script: &str, arguments: &[&str]) -> String {
        let mut words = vec!["-euo", "pipefail", "-c", script, "script"];
        words.extend(arguments);
        let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
        let result = ok(self.agent.exec("bash", &words, &[], Some(PATIENCE)));
        let (out, err) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
        assert!(result.status.is_success(), "{}: {script}: {:?}\n{out}\n{err}", self.vm, result.status);
        out.trim_end().to_owned()
    }

    /// The guest's agent.
    pub const fn agent(&mut self) -> &mut GuestAgent {
        &mut self.agent
    }

    /// Stops the guest as `mirrorball stop` does, and waits for its end. The VM is still there.
    ///
    /// # Panics
    /// If it does not end by itself.
    #[track_caller]
    pub fn stop(mut self, machine: &Running) {
        ok(self.agent.shutdown(ShutdownMode::PowerDown));
        let summary = ok(machine.wait_stopped(&self.vm));
        assert_eq!(summary.reason, Some(StopReason::PowerOff), "{}", self.vm);
    }
}

/// Checks a file system from outside; `at` is the image file, or what `e2fsck` takes for one.
///
/// # Panics
/// If it is not clean.
#[track_caller]
pub fn assert_clean_file_system(at: &Path) {
    // Nothing is repaired (-n), everything is looked at although the guest says that it is clean (-f).
    let output = Command::new("e2fsck").args(["-f", "-n"]).arg(at).env("PATH", search_path()).output();
    let output = ok(output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}{}", at.display(), String::from_utf8_lossy(&output.stderr));
}

/// Programs for administrators are not in everybody's path.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
