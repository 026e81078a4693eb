//! The KVM host: Debian's kernel with its KVM module, and Debian's own `qemu-system-riscv64` for the guests' architecture,
//! so that a workload guest can run under KVM on the emulated machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::base;
use super::files::{Packages, Selection};
use crate::cache::Cache;
use crate::cpio::Archive;
use crate::debian;
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const INIT: &str = include_str!("../../files/loads/kvm-init.sh");
const PACKAGES: [&str; 1] = ["qemu-system-riscv"];
const EMULATOR: &str = "usr/bin/qemu-system-riscv64";

/// The built host.
#[derive(Clone, Debug)]
pub struct KvmHost {
    dir: PathBuf,
}

impl KvmHost {
    /// The recipe that decides what the artifact contains.
    pub fn recipe() -> RecipeKey {
        Recipe::new("kvm-host")
            .with("format", "1")
            .with("kernel", Kernel::recipe().to_string())
            .with("suite", debian::GUEST_SUITE)
            .with_list("packages", &PACKAGES)
            .with("init", INIT)
            .key()
    }

    /// Finds the host in the cache, or downloads and builds it.
    ///
    /// # Errors
    /// A download or a tool failed.
    pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, kernel, dir))?;
        Ok(Self { dir })
    }

    /// The host's part of an initial file system: without a guest.
    pub fn part(&self) -> PathBuf {
        self.dir.join("kvm-host.cpio")
    }

    /// Writes the initial file system of a host whose guests boot `kernel` and `initrd`.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn initrd_with_guest(&self, kernel: &Path, initrd: &Path, to: &Path) -> Result<()> {
        let mut guest = Archive::new();
        guest.directory("guest").file_from("guest/Image", 0o644, kernel)?.file_from("guest/initrd", 0o644, initrd)?;
        fs::write(to, [fs::read(self.part()).context("the KVM host's archive is gone")?, guest.finish()].concat())
            .with_context(|| format!("cannot write {}", to.display()))
    }
}

fn build(cache: &Cache, kernel: &Kernel, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "kvm-host")?;
    let modules = kernel.further_modules(cache, &["kvm"])?;
    let step = Step::begin("initial file system of the KVM host");
    let mut archive = base::archive(&kernel.busybox(), INIT)?;
    let mut selection = Selection::new(packages.root());
    selection.file(EMULATOR)?;
    selection.write(&mut archive)?;
    let mut order = String::new();
    for module in modules {
        archive.file(&format!("modules/{}.ko", module.name), 0o644, &module.content);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes());
    fs::write(dir.join("kvm-host.cpio"), archive.finish())?;
    step.finish("made");
    Ok(())
}
