//! The tree being worked on: where it is, what cargo knows of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use image::command::output_of;
use serde_json::Value;

/// Rust's name for the machine that the monitor and the probes run on: no F and D, so that the compiler never touches a
/// guest's floating-point state.
pub const BARE_TARGET: &str = "riscv64imac-unknown-none-elf";

/// Rust's name for the machine that the workloads' program runs on, as a Linux program: with F and D.
pub const GUEST_TARGET: &str = "riscv64gc-unknown-none-elf";

/// Packages that only build for [`BARE_TARGET`].
pub const BARE_PACKAGES: [&str; 4] = ["monitor", "probe", FIRMWARE, "fault-probe"];

/// The one of them that also has a library for the host.
pub const FIRMWARE: &str = "firmware";

/// The package whose program runs the lab's workloads inside guests, built for [`GUEST_TARGET`].
pub const WORKLOADS: &str = "workloads";

/// The library operating system, whose programs are built for [`GUEST_TARGET`], too.
pub const SPLASHOS: &str = "splashos";

/// The package with the tests that need the emulated machine.
pub const SYSTEM_TESTS: &str = "system-tests";

/// The workspace's root folder.
pub struct Tree {
    root: PathBuf,
}

/// A workspace package as cargo describes it.
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its folder, relative to the tree's root.
    pub folder: PathBuf,
    /// Folders, relative to the root, of the workspace packages that it is linked with (tests left out).
    pub dependencies: Vec<PathBuf>,
}

impl Tree {
    /// The tree that this program was built from.
    ///
    /// # Errors
    /// The program was moved to another machine.
    pub fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no parent folder")?;
        Ok(Self { root: root.canonicalize().context("the tree that built this program is gone")? })
    }

    /// Its root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// cargo, in this tree.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    /// Every package of the workspace.
    ///
    /// # Errors
    /// cargo cannot read the workspace.
    pub fn packages(&self) -> Result<Vec<Package>> {
        let metadata = self.metadata()?;
        let packages = metadata["packages"].as_array().context("cargo's metadata lists no packages")?;
        packages.iter().map(|package| self.package(package)).collect()
    }

    /// The names of the bare-metal packages that exist.
    ///
    /// # Errors
    /// cargo cannot read the workspace.
    pub fn bare_packages(&self) -> Result<Vec<String>> {
        let names = self.packages()?.into_iter().map(|package| package.name);
        Ok(names.filter(|name| BARE_PACKAGES.contains(&name.as_str())).collect())
    }

    /// The folder that cargo builds into.
    ///
    /// # Errors
    /// cargo cannot read the workspace.
    pub fn target_dir(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        metadata["target_directory"].as_str().map(PathBuf::from).context("cargo's metadata has no target folder")
    }

    fn metadata(&self) -> Result<Value> {
        let text = output_of(self.cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
        serde_json::from_str(&text).context("cargo's metadata is not JSON")
    }

    fn package(&self, package: &Value) -> Result<Package> {
        let name = package["name"].as_str().context("a package without a name")?.to_owned();
        let manifest = package["manifest_path"].as_str().context("a package without a manifest")?;
        let folder = Path::new(manifest).parent().context("a manifest without a folder")?;
        let edges = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let linked = edges.iter().filter(|edge| edge["kind"].as_str() != Some("dev"));
        let paths = linked.filter_map(|edge| edge["path"].as_str());
        Ok(Package {
            name,
            folder: self.relative(folder),
            dependencies: paths.map(|path| self.relative(Path::new(path))).collect(),
        })
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root).unwrap_or(path).to_owned()
    }
}
