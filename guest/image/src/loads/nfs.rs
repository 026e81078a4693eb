//! What a Debian guest of the root image lacks to serve files by NFS and to mount them, as a disk beside the root, so that
//! guests that do not ask for NFS stay as they are; and the same as a part of an initial file system, in folder `nfs`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files::{Packages, Selection};
use crate::cache::Cache;
use crate::command::{output_of, tool};
use crate::cpio::Archive;
use crate::debian;
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const PACKAGES: [&str; 1] = ["nfs-kernel-server"];
const PROGRAMS: [&str; 3] = ["exportfs", "rpc.mountd", "rpc.nfsd"];
const SCRIPT: &str = include_str!("../../files/loads/nfs.sh");
/// Programs that the script uses, as busybox of an initial file system has them.
const TOOLS: [&str; 2] = ["dirname", "umount"];
/// Modules by who loads them, with the name of the list.
const MODULES: [(&str, &[&str]); 3] =
    [("network", &["virtio_mmio", "virtio_net"]), ("server", &["nfsd"]), ("client", &["nfsv4"])];
const SIZE: &str = "64M";

/// The built disk and part.
#[derive(Clone, Debug)]
pub struct NfsDisk {
    dir: PathBuf,
}

impl NfsDisk {
    /// The recipe that decides what the artifact contains.
    pub fn recipe() -> RecipeKey {
        let recipe = Recipe::new("loads-nfs").with("format", "2").with("kernel", Kernel::recipe().to_string());
        let recipe = recipe.with("suite", debian::GUEST_SUITE).with_list("packages", &PACKAGES);
        let recipe = recipe.with_list("programs", &PROGRAMS).with("script", SCRIPT).with("size", SIZE);
        let recipe = recipe.with_list("tools", &TOOLS);
        MODULES.iter().fold(recipe, |recipe, (list, modules)| recipe.with_list(list, modules)).key()
    }

    /// Finds the disk in the cache, or downloads and builds it.
    ///
    /// # Errors
    /// A download or a tool failed.
    pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let dir = cache.get_or_build(&Self::recipe(), |dir| build(cache, kernel, dir))?;
        Ok(Self { dir })
    }

    /// The disk image: one ext4 file system, no partitions.
    pub fn disk(&self) -> PathBuf {
        self.dir.join("nfs.img")
    }

    /// The part of an initial file system that follows that of a workload.
    pub fn part(&self) -> PathBuf {
        self.dir.join("nfs.cpio")
    }
}

fn build(cache: &Cache, kernel: &Kernel, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "loads-nfs")?;
    let mut selection = Selection::new(packages.root());
    selection.files("usr/sbin", &PROGRAMS)?;
    let files = files(cache, kernel)?;
    let step = Step::begin("NFS disk and part");
    let tree = packages.work("tree");
    selection.lay_out(&tree)?;
    for File { name, permissions, content } in &files {
        let place = tree.join(name);
        fs::create_dir_all(place.parent().unwrap_or(&tree))?;
        fs::write(&place, content).with_context(|| format!("cannot write {}", place.display()))?;
        fs::set_permissions(&place, fs::Permissions::from_mode(*permissions))?;
    }
    let mut mke2fs = tool("mke2fs")?;
    mke2fs.args(["-q", "-t", "ext4", "-L", "nfs", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0"]);
    mke2fs.arg("-d").arg(&tree).arg(dir.join("nfs.img")).arg(SIZE);
    output_of(&mut mke2fs)?;
    fs::write(dir.join("nfs.cpio"), part(&selection, &files)?).context("cannot write the archive")?;
    step.finish("made");
    Ok(())
}

/// A file that is no package's.
struct File {
    name: String,
    permissions: u32,
    content: Vec<u8>,
}

/// The script, the modules, and a list of them for each who loads them, in the order in which they can be loaded.
fn files(cache: &Cache, kernel: &Kernel) -> Result<Vec<File>> {
    let mut files = vec![File { name: "nfs".to_owned(), permissions: 0o755, content: SCRIPT.into() }];
    for (list, names) in MODULES {
        let mut order = String::new();
        for module in kernel.further_modules(cache, names)? {
            order.push_str(&module.name);
            order.push('\n');
            let name = format!("modules/{}.ko", module.name);
            // Lists have modules in common.
            files.retain(|file| file.name != name);
            files.push(File { name, permissions: 0o644, content: module.content });
        }
        files.push(File { name: format!("modules/{list}"), permissions: 0o644, content: order.into() });
    }
    Ok(files)
}

fn part(selection: &Selection, files: &[File]) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for tool in TOOLS {
        archive.symlink(&format!("usr/bin/{tool}"), "busybox");
    }
    archive.directory("nfs").directory("nfs/modules");
    selection.write_below("nfs/", &mut archive)?;
    for File { name, permissions, content } in files {
        archive.file(&format!("nfs/{name}"), *permissions, content);
    }
    Ok(archive.finish())
}
