//! Experiment `overhead`: whole programs in a VM against the same kernel and files on the bare machine.
//!
//! Both runs are of one emulated hart; a QEMU plugin counts all instructions, by privilege mode, between marks that the
//! workload guest sets. So the VM's counts hold everything that the monitor does for it, and the breakdown tells what
//! part of them is the monitor's own.

mod compile;
mod count;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use control::VmSpec;
use image::Archive;
use tempfile::TempDir;

use crate::exits::{describe, ratio};
use crate::figure::Figure;
use crate::report::{Report, commit_of};
use crate::rig::{Rig, WATCHDOG, debian_vm};
use crate::{LabError, Options, artifacts};
use count::{Counts, Modes};

/// Memory of the guest, bare or in the VM.
const MEMORY_MIB: u32 = 256;
/// The initial file system's module.
const INITRD: &str = "workload.cpio";
/// Names the counting plugin where it is not the one that this tree built.
const PLUGIN_VARIABLE: &str = "MIRRORBALL_COUNTER";

/// A workload: its name, the figure that it gives or belongs to, its number (see the workload guest).
struct Workload {
    name: &'static str,
    figure: Option<&'static str>,
    number: u16,
}

const fn workload(number: u16, name: &'static str, figure: Option<&'static str>) -> Workload {
    Workload { name, figure, number }
}

const WORKLOADS: &[Workload] = &[
    workload(1, "compute", Some("cpu_ratio")),
    workload(2, "getppid", None),
    workload(3, "pipe", None),
    workload(4, "fork", None),
    workload(5, "fork_exec", None),
    workload(6, "mmap_touch", None),
    workload(7, "sched_yield", None),
    workload(8, "sleep", Some("sleep_ratio")),
    workload(9, "compile", Some("compile_ratio")),
];
/// Those whose worst is `syscall_ratios`.
const SYSTEM_CALLS: std::ops::RangeInclusive<u16> = 2..=7;

/// Runs the experiment.
///
/// # Errors
/// [`LabError`] if one of the two runs fails. Without a compiler in the cache only that figure is missing.
pub fn run(options: &Options) -> Result<Report, LabError> {
    let dir = tempfile::Builder::new().prefix("mb-bench-").tempdir().map_err(LabError::io("a temporary directory"))?;
    let files = Files::prepare(&dir, options)?;
    options.progress("the bare machine");
    let bare = files.run_bare(options)?;
    options.progress("the same in a VM");
    let (machine, commit, virtual_machine) = files.run_in_vm(options)?;
    let figures = compare(&bare, &virtual_machine, &files);
    Ok(Report { name: "overhead".into(), machine, commit, figures })
}

/// What both runs use.
struct Files {
    dir: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
    plugin: PathBuf,
    /// Why there is no compiler.
    no_compiler: Option<String>,
}

impl Files {
    fn prepare(dir: &TempDir, options: &Options) -> Result<Self, LabError> {
        let program = artifacts::built("MIRRORBALL_WORKLOAD", "workload")?;
        let content = std::fs::read(&program).map_err(LabError::io(program.display().to_string()))?;
        let mut archive = Archive::new();
        archive.directory("dev").character_device("dev/console", 5, 1).file("init", 0o755, &content);
        let no_compiler = compile::add_to(&mut archive, dir.path(), options.quick).err();
        let initrd = dir.path().join(INITRD);
        std::fs::write(&initrd, archive.finish()).map_err(LabError::io("the initial file system"))?;
        let kernel = artifacts::cached("kernel/Image")?;
        Ok(Self { dir: dir.path().to_owned(), kernel, initrd, plugin: plugin()?, no_compiler })
    }

    fn cmdline(options: &Options) -> String {
        format!("quiet scale={}", if options.quick { 2 } else { 1 })
    }

    fn plugin_option(&self, out: &Path) -> String {
        format!("{},out={}", self.plugin.display(), out.display())
    }

    fn run_bare(&self, options: &Options) -> Result<Counts, LabError> {
        let (out, console) = (self.dir.join("bare.counts"), self.dir.join("bare.console"));
        let mut qemu = Command::new("qemu-system-riscv64");
        qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-M", "virt,aia=aplic-imsic,aclint=on"]);
        qemu.args(["-cpu", "rva23s64", "-smp", "1", "-icount", "shift=0", "-m", &format!("{MEMORY_MIB}M")]);
        qemu.arg("-kernel").arg(&self.kernel).arg("-initrd").arg(&self.initrd);
        qemu.args([
            "-append",
            &format!("console=ttyS0 {}", Self::cmdline(options)),
            "-serial",
            &format!("file:{}", console.display()),
        ]);
        qemu.args(["-plugin", &self.plugin_option(&out)]);
        let mut child = qemu.stdin(Stdio::null()).spawn().map_err(LabError::io("qemu-system-riscv64"))?;
        count::wait(&mut child, WATCHDOG)?;
        check("the bare machine", "it ended", std::fs::read_to_string(&console).unwrap_or_default())?;
        Counts::read(&out)
    }

    fn run_in_vm(&self, options: &Options) -> Result<(String, String, Counts), LabError> {
        let out = self.dir.join("vm.counts");
        let plugin = ["-plugin".to_owned(), self.plugin_option(&out)];
        let rig =
            Rig::new("bench-overhead", 1, 1024)?.counting().hardware(|hardware| hardware.qemu_args.extend(plugin));
        let rig = rig.module(crate::rig::KERNEL, self.kernel.clone())?.module(INITRD, self.initrd.clone())?;
        let machine = rig.boot()?;
        let info = machine.client().machine_info()?;
        let spec = VmSpec {
            ports: Vec::new(),
            rng: false,
            balloon: false,
            ..debian_vm("workload", 1, MEMORY_MIB, INITRD, &Self::cmdline(options))?
        };
        machine.start(&spec)?;
        // As long as the marks need; the machine's watchdog is for short things.
        for _ in 0..4 {
            if machine.wait_stopped(&spec.name).is_ok() {
                break;
            }
        }
        let ended = machine.end_of(&spec.name)?;
        check("the VM", &format!("it stopped with {:?}", ended.summary.reason), ended.console)?;
        Ok((describe(&info), commit_of(&info.monitor.version), Counts::read(&out)?))
    }
}

/// Did the workloads run, all of them?
fn check(whose: &str, end: &str, console: String) -> Result<(), LabError> {
    if console.contains("WORKLOAD done") && !console.contains("failed") {
        return Ok(());
    }
    Err(LabError::Guest { experiment: whose.to_owned(), reason: end.to_owned(), console })
}

fn plugin() -> Result<PathBuf, LabError> {
    artifacts::plugin(PLUGIN_VARIABLE, "libinstruction_counter.so")
}

fn compare(bare: &Counts, vm: &Counts, files: &Files) -> Vec<Figure> {
    let mut goals = Vec::new();
    let mut parts = Vec::new();
    let mut worst: Option<(f64, &str)> = None;
    for workload in WORKLOADS {
        let (Some(plain), Some(within)) = (bare.workload(workload.number), vm.workload(workload.number)) else {
            if let Some(figure) = workload.figure {
                goals.push(Figure::missing(figure, "a mark is missing: the workload did not run"));
            }
            continue;
        };
        if let (9, Some(why)) = (workload.number, &files.no_compiler) {
            goals.push(Figure::missing("compile_ratio", why));
            continue;
        }
        let value = ratio(within.total(), plain.total().max(1));
        match workload.figure {
            Some(figure) => goals.push(Figure::new(figure, value, "ratio", 1)),
            None => parts.push(Figure::new(&format!("{}_ratio", workload.name), value, "ratio", 1)),
        }
        if SYSTEM_CALLS.contains(&workload.number) && worst.is_none_or(|(most, _)| value > most) {
            worst = Some((value, workload.name));
        }
        parts.extend(breakdown(workload.name, plain, within));
    }
    if let Some((value, name)) = worst {
        let mut figure = Figure::new("syscall_ratios", value, "ratio", 1);
        figure.note = format!("{}: {name}", figure.note);
        goals.push(figure);
    }
    match (bare.boot("hs"), vm.boot("vs")) {
        (Some(plain), Some(within)) => {
            goals.push(Figure::new("boot_ratio", ratio(within.total(), plain.total().max(1)), "ratio", 1));
            parts.extend(breakdown("boot", plain, within));
        }
        _ => goals.push(Figure::missing("boot_ratio", "a mark is missing")),
    }
    goals.extend(parts);
    goals
}

/// Bare instructions, and where in the VM's run the others are.
fn breakdown(name: &str, bare: Modes, vm: Modes) -> Vec<Figure> {
    let part = |what: &str, count: u64| Figure::new(&format!("{name}_{what}"), ratio(count, 1), "instructions", 1);
    vec![
        part("bare", bare.total()),
        part("guest", vm.guest()),
        part("monitor", vm.monitor()),
        part("firmware", vm.machine),
    ]
}
