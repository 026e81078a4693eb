//! The cloud image: a Debian that boots by EFI and is told by cloud-init who it is, as distributions publish theirs. It is what `mirrorball
//! launch` starts if nobody names an image.
//!
//! It is installed as the root image is: unpacked here, configured by its own scripts on an emulated machine. Then it gets what makes
//! it a stock image: a GPT, an EFI system partition with Debian's GRUB, Debian's kernel and initial file system inside.

use std::fs::{self, OpenOptions};
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
use crate::root::{Owners, RootTree};

/// What is installed, besides what these depend on.
const PACKAGES: [&str; 22] = [
    "?essential",
    "systemd-sysv",
    "systemd-resolved",
    "libpam-systemd",
    "dbus",
    "udev",
    "kmod",
    "login",
    "passwd",
    "procps",
    "netbase",
    "iproute2",
    "iputils-ping",
    "e2fsprogs",
    "ca-certificates",
    "qemu-guest-agent",
    "openssh-server",
    "sudo",
    "cloud-init",
    "cloud-guest-utils",
    "linux-image-riscv64",
    "grub-efi-riscv64",
];

const FILES: [(&str, u32, &str); 11] = [
    ("etc/apt/apt.conf.d/90-lab", 0o644, include_str!("../files/root/apt.conf")),
    ("etc/cloud/cloud.cfg.d/90-mirrorball.cfg", 0o644, include_str!("../files/cloud/cloud.cfg")),
    ("etc/default/grub.d/90-mirrorball.cfg", 0o644, include_str!("../files/cloud/grub.cfg")),
    ("etc/dpkg/dpkg.cfg.d/90-lab", 0o644, include_str!("../files/root/dpkg.cfg")),
    ("etc/fstab", 0o644, include_str!("../files/cloud/fstab")),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/hostname", 0o644, "debian\n"),
    ("etc/initramfs-tools/conf.d/mirrorball", 0o644, "MODULES=list\nCOMPRESS=gzip\nCOMPRESSLEVEL=1\n"),
    (
        "etc/initramfs-tools/modules",
        0o644,
        "virtio_mmio\nvirtio_pci\nvirtio_blk\nvirtio_scsi\nvirtio_net\nsd_mod\next4\n",
    ),
    ("etc/kernel-img.conf", 0o644, "do_symlinks = no\n"),
    ("usr/lib/mirrorball/second-stage", 0o755, include_str!("../files/cloud/second-stage.sh")),
];

/// The root file system's identity, by which GRUB and the kernel find it.
const ROOT_UUID: &str = "6d697272-6f72-4261-8c6c-000000000011";

/// Logical size of the root file system; `launch --disk` makes it larger.
const FILE_SYSTEM_MIB: u64 = 1600;
const ESP_BYTES: usize = 48 << 20;
/// Memory of the emulated machine that configures the packages.
const MEMORY_MIB: u32 = 1024;

/// The last line of a second stage that succeeded.
const SECOND_STAGE_DONE: &str = "mirrorball-install: done";

const GRUB: &str = "usr/lib/grub/riscv64-efi/monolithic/grubriscv64.efi";

/// The built cloud image.
#[derive(Clone, Debug)]
pub struct CloudImage {
    dir: PathBuf,
}

impl CloudImage {
    /// The recipe that decides what the image contains.
    pub fn recipe() -> RecipeKey {
        let recipe = Recipe::new("cloud")
            .with("format", "1")
            .with("kernel", Kernel::recipe().to_string())
            .with("suite", debian::GUEST_SUITE)
            .with_list("packages", &PACKAGES)
            .with("size", FILE_SYSTEM_MIB.to_string())
            .with("esp", ESP_BYTES.to_string())
            .with("uuid", ROOT_UUID)
            .with("grub", grub_stub());
        let files = FILES.iter();
        files.fold(recipe, |recipe, (path, mode, content)| recipe.with(&format!("{path} {mode:o}"), content)).key()
    }

    /// Finds the image in the cache, or downloads and builds it: several minutes.
    ///
    /// # Errors
    /// A download, a tool or the installation inside the emulated machine failed.
    pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, kernel, dir))?;
        Ok(Self { dir })
    }

    /// The image, raw.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("cloud.img")
    }
}

/// What GRUB finds beside itself: where the rest of it is.
fn grub_stub() -> String {
    format!("search.fs_uuid {ROOT_UUID} root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n")
}

fn build(cache: &Cache, kernel: &Kernel, dir: &Path) -> Result<()> {
    // The permissions in the image must not depend on who builds it.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let apt = debian::guest_apt(cache)?;
    let scratch = cache.scratch("cloud-packages")?;
    let packages =
        apt.download_with_dependencies(&PACKAGES, &scratch.path.join("debs"), "packages of the cloud image")?;
    let tree = RootTree::new(scratch.path.join("files"), Owners::new(&scratch.path)?);
    tree.unpack(&packages)?;
    // Empty, not absent: every VM makes up its own at its first boot.
    tree.lay(&[FILES.as_slice(), &[("etc/machine-id", 0o644, "")]].concat(), &[])?;
    let grub = fs::read(tree.path().join(GRUB)).with_context(|| format!("the packages have no {GRUB}"))?;
    let disk = dir.join("cloud.img");
    make_disk(&tree, &grub, &disk)?;
    fs::write(dir.join("packages.txt"), tree.package_list(&packages)?)?;
    install(kernel, &disk, &dir.join("install.log"))?;
    check_file_system(&disk)
}

fn make_disk(tree: &RootTree, grub: &[u8], disk: &Path) -> Result<()> {
    let step = Step::begin("cloud image's file systems");
    let root_bytes = FILE_SYSTEM_MIB << 20;
    let mut mke2fs = tree.owners().tool("mke2fs")?;
    mke2fs.args(["-q", "-t", "ext4", "-L", "cloudimg-rootfs", "-m", "0", "-J", "size=16", "-F", "-U", ROOT_UUID]);
    let options = "lazy_itable_init=0,lazy_journal_init=0,hash_seed=6d697272-6f72-4261-8c6c-000000000012";
    mke2fs.args(["-E", &format!("{options},offset={}", root_start())]);
    mke2fs.arg("-d").arg(tree.path()).arg(disk).arg(format!("{FILE_SYSTEM_MIB}M"));
    output_of(&mut mke2fs)?;
    let stub = grub_stub();
    let files: [(&str, &[u8]); 2] = [("EFI/BOOT/BOOTRISCV64.EFI", grub), ("EFI/debian/grub.cfg", stub.as_bytes())];
    let esp = efi_disk::fat::volume(ESP_BYTES, "ESP", &files).context("cannot make the EFI system partition")?;
    let file = OpenOptions::new().read(true).write(true).open(disk)?;
    file.set_len(efi_disk::disk::image_bytes(ESP_BYTES as u64, root_bytes))?;
    efi_disk::disk::write(file, &esp, root_bytes).context("cannot write the partition table")?;
    step.finish("made");
    Ok(())
}

const fn root_start() -> u64 {
    efi_disk::disk::root_range(ESP_BYTES as u64, FILE_SYSTEM_MIB << 20).start
}

/// The second stage: every package's own configuration, on the emulated machine.
fn install(kernel: &Kernel, disk: &Path, log: &Path) -> Result<()> {
    let step = Step::begin("configuring the cloud image on an emulated machine (minutes)");
    let machine = PlainMachine {
        kernel,
        initrd: kernel.initrd(),
        disk: Some(disk),
        memory_mib: MEMORY_MIB,
        log,
        command_line: "root=/dev/vda1 rw init=/usr/lib/mirrorball/second-stage",
        limit: Duration::from_secs(3600),
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

fn check_file_system(disk: &Path) -> Result<()> {
    let mut place = disk.as_os_str().to_owned();
    place.push(format!("?offset={}", root_start()));
    output_of(tool("e2fsck")?.args(["-f", "-n"]).arg(place)).context("the finished cloud image is damaged")?;
    Ok(())
}
