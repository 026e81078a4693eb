//! The guests' kernel: Debian's own package, unpacked, with two initial file systems made for it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::apt::PrivateApt;
use crate::cache::Cache;
use crate::cpio::Archive;
use crate::debian;
use crate::modules::{Module, ModuleTree};
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

/// The package whose one dependency of the form `linux-image-VERSION` is the kernel.
const META_PACKAGE: &str = "linux-image-riscv64";
const BUSYBOX_PACKAGE: &str = "busybox-static";
const INIT_ROOT: &str = include_str!("../files/init-root.sh");
const INIT_TINY: &str = include_str!("../files/init-tiny.sh");

/// Drivers that the initial file system loads: the virtual platform's, and the root disk's file system (whose checksum
/// module is a "soft" dependency that its module does not list).
const BOOT_MODULES: [&str; 7] =
    ["virtio_mmio", "virtio_blk", "crc32c_generic", "ext4", "virtio_net", "virtio_rng", "virtio_balloon"];

/// Further modules that are put into the root image: what systemd and common commands ask for.
pub(crate) const ROOT_MODULES: [&str; 5] = ["autofs4", "loop", "overlay", "vfat", "8021q"];

/// The built kernel artifact.
#[derive(Clone, Debug)]
pub struct Kernel {
    dir: PathBuf,
}

impl Kernel {
    /// The recipe that decides what the artifact contains.
    pub fn recipe() -> RecipeKey {
        Recipe::new("kernel")
            .with("format", "1")
            .with("suite", debian::GUEST_SUITE)
            .with_list("packages", &[META_PACKAGE, BUSYBOX_PACKAGE])
            .with_list("boot modules", &BOOT_MODULES)
            .with_list("root modules", &ROOT_MODULES)
            .with("init-root", INIT_ROOT)
            .with("init-tiny", INIT_TINY)
            .key()
    }

    /// Finds the artifact in the cache, or downloads and builds it.
    ///
    /// # Errors
    /// A download or a tool failed.
    pub fn get_or_build(cache: &Cache) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, dir))?;
        Ok(Self { dir })
    }

    /// The kernel, raw, as a boot loader starts it: the RISC-V `Image` format.
    pub fn image(&self) -> PathBuf {
        self.dir.join("Image")
    }

    /// Initial file system that mounts the root disk and starts its `init`.
    pub fn initrd(&self) -> PathBuf {
        self.dir.join("initrd.cpio")
    }

    /// Initial file system that prints `MIRRORBALL-GUEST-UP` and powers off.
    pub fn tiny_initrd(&self) -> PathBuf {
        self.dir.join("initrd-tiny.cpio")
    }

    /// busybox, linked statically.
    pub fn busybox(&self) -> PathBuf {
        self.dir.join("busybox")
    }

    /// Modules of this very kernel that the artifact does not carry, in an order in which they can be loaded.
    ///
    /// # Errors
    /// The kernel's package cannot be downloaded: the mirror may have a newer one only.
    pub(crate) fn further_modules(&self, cache: &Cache, names: &[&str]) -> Result<Vec<Module>> {
        let (apt, scratch, release) = (debian::guest_apt(cache)?, cache.scratch("kernel-modules")?, self.release()?);
        let package = format!("linux-image-{release}");
        let step = Step::begin(format!("modules of {package}"));
        let files = scratch.path.join("files");
        for package in apt
            .download(&[&package], &scratch.path.join("debs"))
            .context("the mirror no longer has the cached kernel: remove it with `./x clean-cache`, then build again")?
        {
            debian::unpack(&package, &files)?;
        }
        let modules = ModuleTree::scan(&files.join(format!("usr/lib/modules/{release}")))?.load_order(names)?;
        step.finish("unpacked");
        Ok(modules)
    }

    /// Folder that holds `lib/modules/VERSION` as in the root image.
    pub fn module_overlay(&self) -> PathBuf {
        self.dir.join("overlay")
    }

    /// The kernel's release, as `uname -r` says it.
    ///
    /// # Errors
    /// The artifact is damaged.
    pub fn release(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.join("release"))?.trim().to_owned())
    }
}

fn build(cache: &Cache, dir: &Path) -> Result<()> {
    let apt = debian::guest_apt(cache)?;
    let scratch = cache.scratch("kernel-packages")?;
    let unpacked = download_and_unpack(&apt, &scratch.path)?;

    let step = Step::begin("kernel and initial file systems");
    let release = kernel_release(&unpacked)?;
    let image = fs::read(unpacked.join(format!("boot/vmlinux-{release}")))
        .or_else(|_| fs::read(unpacked.join(format!("boot/vmlinuz-{release}"))))
        .context("the kernel package has no kernel")?;
    ensure!(is_riscv_image(&image), "the kernel package's kernel is not a raw RISC-V Image");
    fs::write(dir.join("Image"), image)?;
    fs::copy(unpacked.join(format!("boot/config-{release}")), dir.join("config"))?;
    fs::write(dir.join("release"), format!("{release}\n"))?;

    let tree = ModuleTree::scan(&unpacked.join(format!("usr/lib/modules/{release}")))?;
    let busybox = fs::read(unpacked.join("usr/bin/busybox")).context("the busybox package has no busybox")?;
    fs::write(dir.join("busybox"), &busybox)?;
    fs::write(dir.join("initrd-tiny.cpio"), initrd(&busybox, INIT_TINY).finish())?;
    fs::write(dir.join("initrd.cpio"), root_initrd(&busybox, &tree)?.finish())?;
    copy_modules(&unpacked, dir, &release, &tree)?;
    step.finish(&release);
    Ok(())
}

fn download_and_unpack(apt: &PrivateApt, scratch: &Path) -> Result<PathBuf> {
    let dependencies = apt.direct_dependencies(META_PACKAGE)?;
    let kernel = dependencies.iter().find(|name| name.starts_with("linux-image-"));
    let kernel = kernel.with_context(|| format!("package {META_PACKAGE} names no kernel"))?;
    let step = Step::begin(format!("{kernel}, {BUSYBOX_PACKAGE}"));
    let packages = apt.download(&[kernel, BUSYBOX_PACKAGE], &scratch.join("debs"))?;
    let unpacked = scratch.join("files");
    for package in &packages {
        debian::unpack(package, &unpacked)?;
    }
    step.finish("downloaded and unpacked");
    Ok(unpacked)
}

fn kernel_release(unpacked: &Path) -> Result<String> {
    let mut versions = fs::read_dir(unpacked.join("usr/lib/modules")).context("the kernel package has no modules")?;
    let version = versions.next().context("the kernel package has no modules")??;
    Ok(version.file_name().to_string_lossy().into_owned())
}

/// Byte 56 of the header holds "RSC\x05" ("Boot image header in RISC-V Linux", field `magic2`).
fn is_riscv_image(image: &[u8]) -> bool {
    image.get(56..60) == Some(b"RSC\x05")
}

/// What both initial file systems share: busybox, an init script, the console.
fn initrd(busybox: &[u8], init: &str) -> Archive {
    let mut archive = Archive::new();
    archive.directory("bin").directory("dev").directory("proc").directory("sys").directory("root");
    archive.character_device("dev/console", 5, 1).character_device("dev/null", 1, 3);
    archive.file("bin/busybox", 0o755, busybox).symlink("bin/sh", "busybox").file("init", 0o755, init.as_bytes());
    archive
}

/// Modules are stored unpacked: the host unpacks them far faster than an emulated guest would.
fn root_initrd(busybox: &[u8], tree: &ModuleTree) -> Result<Archive> {
    let mut archive = initrd(busybox, INIT_ROOT);
    archive.directory("modules");
    let mut order = String::new();
    for module in tree.load_order(&BOOT_MODULES)? {
        archive.file(&format!("modules/{}.ko", module.name), 0o644, &module.content);
        order.push_str(&module.name);
        order.push('\n');
    }
    archive.file("modules/order", 0o644, order.as_bytes());
    Ok(archive)
}

/// Copies the modules that the root image carries, in their own folders, packed as Debian ships them.
fn copy_modules(unpacked: &Path, dir: &Path, release: &str, tree: &ModuleTree) -> Result<()> {
    let from = unpacked.join("usr/lib/modules").join(release);
    let to = dir.join("overlay/usr/lib/modules").join(release);
    fs::create_dir_all(&to)?;
    for file in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        fs::copy(from.join(file), to.join(file))?;
    }
    let wanted: Vec<&str> = BOOT_MODULES.iter().chain(&ROOT_MODULES).copied().collect();
    for module in tree.load_order(&wanted)? {
        let file = tree.file(&module.name).context("the module was found a moment ago")?;
        let place = to.join(file.strip_prefix(&from)?);
        fs::create_dir_all(place.parent().unwrap_or(&to))?;
        fs::copy(file, place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_raw_images_are_taken_for_kernels() {
        let mut image = vec![0; 64];
        assert!(!is_riscv_image(&image));
        image[56..60].copy_from_slice(b"RSC\x05");
        assert!(is_riscv_image(&image));
        assert!(!is_riscv_image(b"\x1f\x8b"));
    }
}
