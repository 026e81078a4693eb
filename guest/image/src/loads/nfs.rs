//! The NFS disk: what a Debian guest of the root image lacks to serve files by NFS and to mount them. A disk beside the root,
//! so that guests that do not ask for NFS stay as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::files::{Packages, Selection};
use crate::cache::Cache;
use crate::command::{output_of, tool};
use crate::debian;
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::{Recipe, RecipeKey};

const PACKAGES: [&str; 1] = ["nfs-kernel-server"];
const PROGRAMS: [&str; 3] = ["exportfs", "rpc.mountd", "rpc.nfsd"];
const SCRIPT: &str = include_str!("../../files/loads/nfs.sh");
/// Modules by who loads them, with the name of the list.
const MODULES: [(&str, &str); 2] = [("server", "nfsd"), ("client", "nfsv4")];
const SIZE: &str = "64M";

/// The built disk.
#[derive(Clone, Debug)]
pub struct NfsDisk {
    dir: PathBuf,
}

impl NfsDisk {
    /// The recipe that decides what the artifact contains.
    pub fn recipe() -> RecipeKey {
        let recipe = Recipe::new("loads-nfs").with("format", "1").with("kernel", Kernel::recipe().to_string());
        let recipe = recipe.with("suite", debian::GUEST_SUITE).with_list("packages", &PACKAGES);
        let recipe = recipe.with_list("programs", &PROGRAMS).with("script", SCRIPT).with("size", SIZE);
        MODULES.iter().fold(recipe, |recipe, (list, module)| recipe.with(list, *module)).key()
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
}

fn build(cache: &Cache, kernel: &Kernel, dir: &Path) -> Result<()> {
    let packages = Packages::fetch(cache, &PACKAGES, "loads-nfs")?;
    let tree = packages.work("tree");
    let mut selection = Selection::new(packages.root());
    selection.files("usr/sbin", &PROGRAMS)?;
    selection.lay_out(&tree)?;
    for (list, module) in MODULES {
        add_modules(&tree.join("modules"), list, &kernel.further_modules(cache, &[module])?)?;
    }
    let script = tree.join("nfs");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let step = Step::begin("NFS disk");
    let mut mke2fs = tool("mke2fs")?;
    mke2fs.args(["-q", "-t", "ext4", "-L", "nfs", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0"]);
    mke2fs.arg("-d").arg(&tree).arg(dir.join("nfs.img")).arg(SIZE);
    output_of(&mut mke2fs)?;
    step.finish("made");
    Ok(())
}

/// Writes modules, and the list of them in the order in which they can be loaded.
fn add_modules(folder: &Path, list: &str, modules: &[crate::modules::Module]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut order = String::new();
    for module in modules {
        fs::write(folder.join(format!("{}.ko", module.name)), &module.content)?;
        order.push_str(&module.name);
        order.push('\n');
    }
    fs::write(folder.join(list), order)?;
    Ok(())
}
