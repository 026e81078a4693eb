//! The root image: a Debian system with a compiler, installed without root rights on the host's side beyond what
//! `fakeroot` gives and without any emulation of single programs.
//!
//! Debian's own two steps are kept: packages are unpacked here, on the host, and configured by their own scripts inside the
//! emulated machine, on Debian's own kernel. Then a reference build of the workload runs there; its checksum is kept beside
//! the image.

mod database;
mod partition;
mod tree;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;

use crate::cache::Cache;
use crate::command::{output_of, tool};
use crate::debian;
use crate::emulator::PlainMachine;
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};
pub(crate) use tree::{Owners, RootTree};
pub(crate) use workload::{download as patched_source, download_upstream as upstream_source};

/// What is installed, besides what these depend on. The first is apt's name for what every Debian system has.
const PACKAGES: [&str; 16] = [
    "?essential",
    "systemd-sysv",
    "udev",
    "kmod",
    "login",
    "passwd",
    "procps",
    "netbase",
    "iproute2",
    "iputils-ping",
    "e2fsprogs",
    "qemu-guest-agent",
    "gcc",
    "make",
    "libc6-dev",
    "xz-utils",
];

/// Logical size of the file system; unused space takes none on the host's disk.
const FILE_SYSTEM_MIB: u64 = 1200;

/// Memory of the emulated machine that configures the packages.
const MEMORY_MIB: u32 = 1024;

/// A line that ends a successful second stage, and the stem of the workload's result line.
const SECOND_STAGE_DONE: &str = "mirrorball-install: done";
const RESULT_LINE: &str = "mirrorball-build: ok ";

/// The built root image.
#[derive(Clone, Debug)]
pub struct RootImage {
    dir: PathBuf,
}

impl RootImage {
    /// The recipe that decides what the image contains.
    pub fn recipe() -> RecipeKey {
        let recipe = Recipe::new("root")
            .with("format", "1")
            .with("kernel", Kernel::recipe().to_string())
            .with("suite", debian::GUEST_SUITE)
            .with_list("packages", &PACKAGES)
            .with("size", FILE_SYSTEM_MIB.to_string())
            .with("source", workload::SOURCE_PACKAGE);
        tree::add_files_to(recipe).key()
    }

    /// Finds the image in the cache, or downloads and builds it: several minutes.
    ///
    /// # Errors
    /// A download, a tool or the installation inside the emulated machine failed.
    pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, kernel, dir))?;
        Ok(Self { dir })
    }

    /// The disk image: a partition table and one ext4 file system.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("root.img")
    }

    /// The file with the checksum that the workload must print.
    pub fn reference_file(&self) -> PathBuf {
        self.dir.join("reference.sha256")
    }
}

fn build(cache: &Cache, kernel: &Kernel, dir: &Path) -> Result<()> {
    // The permissions in the image must not depend on who builds it.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let apt = debian::guest_apt(cache)?;
    let scratch = cache.scratch("root-packages")?;
    let debs = scratch.path.join("debs");
    let packages = apt.download_with_dependencies(&PACKAGES, &debs, "packages of the root image")?;
    let source = workload::download(&apt, workload::SOURCE_PACKAGE, &scratch.path.join("source"))?;

    let tree = RootTree::new(scratch.path.join("files"), Owners::new(&scratch.path)?);
    tree.unpack(&packages)?;
    tree.add_files(kernel, &source)?;
    let disk = dir.join("root.img");
    make_file_system(&tree, &disk)?;
    fs::write(dir.join("packages.txt"), tree.package_list(&packages)?)?;
    install(kernel, &disk)?;
    let reference = measure_reference(kernel, &disk)?;
    fs::write(dir.join("reference.sha256"), format!("{}\n", reference.checksum))?;
    fs::write(dir.join("reference.txt"), format!("{}\n", reference.line))?;
    check_file_system(&disk)
}

/// One partition, because boot loaders look for one; ext4 with everything laid out at once, so that no guest spends its first minutes on it. The identity is fixed: clones
/// of one image are told apart by their machine-id, not by their file system.
fn make_file_system(tree: &RootTree, disk: &Path) -> Result<()> {
    let step = Step::begin("root file system");
    let mut mke2fs = tree.owners().tool("mke2fs")?;
    mke2fs.args(["-q", "-t", "ext4", "-L", "mirrorball", "-m", "0", "-J", "size=16", "-F"]);
    mke2fs.args(["-U", "6d697272-6f72-4261-8c6c-000000000001"]);
    let options = "lazy_itable_init=0,lazy_journal_init=0,hash_seed=6d697272-6f72-4261-8c6c-000000000002";
    mke2fs.args(["-E", &format!("{options},offset={}", partition::START_BYTES)]);
    mke2fs.arg("-d").arg(tree.path()).arg(disk).arg(format!("{FILE_SYSTEM_MIB}M"));
    output_of(&mut mke2fs)?;
    partition::write_table(disk, FILE_SYSTEM_MIB << 20)?;
    step.finish("made");
    Ok(())
}

/// The second stage: every package's own configuration, on the emulated machine.
fn install(kernel: &Kernel, disk: &Path) -> Result<()> {
    let step = Step::begin("configuring the packages on an emulated machine (minutes)");
    let machine = PlainMachine {
        kernel,
        initrd: kernel.initrd(),
        disk: Some(disk),
        memory_mib: MEMORY_MIB,
        log: &disk.with_file_name("install.log"),
        command_line: "root=/dev/vda1 rw init=/usr/lib/mirrorball/second-stage",
        limit: Duration::from_secs(1800),
    };
    let log = machine.run(&step, |line, step| {
        if let Some(package) = line.strip_prefix("Setting up ") {
            step.note(package);
        }
    })?;
    if !log.iter().any(|line| line.contains(SECOND_STAGE_DONE)) {
        bail!("the packages could not be configured:\n{}", log[log.len().saturating_sub(60)..].join("\n"));
    }
    step.finish("configured");
    Ok(())
}

struct Reference {
    checksum: String,
    line: String,
}

/// A boot as any guest does it, and one build: it shows that the image works, and gives the reference.
fn measure_reference(kernel: &Kernel, disk: &Path) -> Result<Reference> {
    let step = Step::begin("reference build on the plain emulated machine (minutes)");
    // The build must leave no trace in the image, so it runs on a copy.
    let copy = disk.with_file_name("reference.img");
    output_of(tool("cp")?.args(["--sparse=always", "--reflink=auto"]).arg(disk).arg(&copy))?;
    let machine = PlainMachine {
        kernel,
        initrd: kernel.initrd(),
        disk: Some(&copy),
        memory_mib: MEMORY_MIB,
        log: &disk.with_file_name("reference.log"),
        command_line: "root=/dev/vda1 rw systemd.run=/usr/local/bin/mirrorball-reference systemd.run_success_action=poweroff \
                       systemd.run_failure_action=poweroff",
        limit: Duration::from_secs(1800),
    };
    let log = machine.run(&step, |_, _| ());
    fs::remove_file(&copy)?;
    let log = log?;
    let line = log.iter().find_map(|line| line.split_once(RESULT_LINE).map(|(_, rest)| rest));
    let line = line.with_context(|| format!("the reference build failed:\n{}", log.join("\n")))?;
    let checksum = line.split_whitespace().find_map(|word| word.strip_prefix("sha256="));
    let checksum = checksum.context("the build printed no checksum")?.to_owned();
    step.finish(line);
    Ok(Reference { checksum, line: line.to_owned() })
}

fn check_file_system(disk: &Path) -> Result<()> {
    let mut place = disk.as_os_str().to_owned();
    place.push(format!("?offset={}", partition::START_BYTES));
    output_of(tool("e2fsck")?.args(["-f", "-n"]).arg(place)).context("the finished root image is damaged")?;
    Ok(())
}
