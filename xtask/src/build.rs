//! Building the bare-metal programs and flattening them to what a machine loads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::command::run_shown;

use crate::flatten::flatten;
use crate::setup;
use crate::tree::{BARE_TARGET, Tree};

/// Builds the monitor and, where it exists, the probe guest; returns the flat binaries.
///
/// # Errors
/// The target is missing and cannot be installed, or a package does not build.
pub fn bare_metal(tree: &Tree) -> Result<Vec<PathBuf>> {
    setup::rust_target()?;
    let packages = tree.bare_packages()?;
    for package in &packages {
        // One at a time: built together they would share each other's features, and carry code that they do not use.
        let mut cargo = tree.cargo();
        run_shown(cargo.args(["build", "--profile", "monitor", "--target", BARE_TARGET, "-p", package]))?;
    }
    let folder = folder(tree)?;
    packages.iter().map(|package| flatten_file(&folder, package)).collect()
}

/// Where the monitor's flat binary is once it is built.
///
/// # Errors
/// cargo cannot read the workspace.
pub fn monitor_place(tree: &Tree) -> Result<PathBuf> {
    Ok(folder(tree)?.join("monitor.bin"))
}

fn folder(tree: &Tree) -> Result<PathBuf> {
    Ok(tree.target_dir()?.join(BARE_TARGET).join("monitor"))
}

fn flatten_file(folder: &Path, package: &str) -> Result<PathBuf> {
    let elf = folder.join(package);
    let bytes = std::fs::read(&elf).with_context(|| format!("cannot read {}", elf.display()))?;
    let flat = flatten(&bytes).with_context(|| format!("cannot flatten {}", elf.display()))?;
    let place = folder.join(format!("{package}.bin"));
    std::fs::write(&place, &flat)?;
    eprintln!("{} ({} KiB)", place.display(), flat.len().div_ceil(1024));
    Ok(place)
}
