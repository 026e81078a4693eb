//! Building the bare-metal programs, flattening them to what a machine loads, and the plugins of the emulator.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::command::run_shown;

use crate::flatten::flatten;
use crate::tree::{BARE_TARGET, GUEST_TARGET, SPLASHOS, Tree, WORKLOADS};
use crate::{setup, stamp};

/// The package that is the monitor.
const MONITOR: &str = "monitor";
/// The emulator's plugin that `mirrorball bench overhead` counts with.
const COUNTER: &str = "instruction-counter";

/// The program of [`SPLASHOS`] that experiments boot.
const SPLASH: &str = "splash";

/// The emulator's plugin that is the machine model.
const MODEL: &str = "numa-plugin";

/// `relax` lets the linker shorten calls: the compiler writes two instructions for each, and nearly all reach with one. The
/// feature has no stable name, and the compiler would say so for every package; its other warnings are `./x check`'s.
///
/// Harts with the hypervisor extension and Sstc have the bit manipulation of RVA22 and RVA23, too: the monitor checks that first.
const FLAGS: &str =
    r#"target.riscv64imac-unknown-none-elf.rustflags=["-Ctarget-feature=+relax,+zba,+zbb,+zbs", "-Awarnings"]"#;

/// A flat binary.
pub struct Flat {
    /// Where it is.
    pub place: PathBuf,
    /// Its size in bytes.
    pub bytes: usize,
}

/// Builds all that a machine boots and that an experiment needs; returns the flat binaries of the monitor, the probe
/// guest, the firmware and the programs on SPLASHOS.
///
/// # Errors
/// The target is missing and cannot be installed, or a package does not build.
pub fn machine_programs(tree: &Tree) -> Result<Vec<Flat>> {
    setup::rust_target()?;
    let packages = tree.bare_packages()?;
    let folder = folder(tree)?;
    // The very first build takes a minute: let cargo show it.
    let quiet = folder.join("monitor.bin").exists().then_some("-q");
    for package in &packages {
        // One at a time: built together they would share each other's features, and carry code that they do not use.
        let mut cargo = tree.cargo();
        cargo.args(["build", "--config", FLAGS, "--profile", "monitor", "--target", BARE_TARGET, "-p", package]);
        run_shown(cargo.args(quiet))?;
    }
    let mut cargo = tree.cargo();
    cargo.args(["build", "--profile", "monitor", "--target", GUEST_TARGET, "-p", WORKLOADS, "--bin", "load"]);
    run_shown(cargo.args(quiet))?;
    let mut cargo = tree.cargo();
    cargo.args(["build", "--profile", "monitor", "--target", GUEST_TARGET, "-p", SPLASHOS, "--bins", "--examples"]);
    run_shown(cargo.args(quiet))?;
    run_shown(tree.cargo().args(["build", "-p", COUNTER, "-p", MODEL]).args(quiet))?;
    let guests = tree.target_dir()?.join(GUEST_TARGET).join("monitor");
    let flat = packages.iter().map(|package| flatten_file(tree, &folder, package));
    flat.chain([flatten_file(tree, &guests, SPLASH)]).collect()
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

fn flatten_file(tree: &Tree, folder: &Path, package: &str) -> Result<Flat> {
    let elf = folder.join(package);
    let bytes = std::fs::read(&elf).with_context(|| format!("cannot read {}", elf.display()))?;
    let mut flat = flatten(&bytes).with_context(|| format!("cannot flatten {}", elf.display()))?;
    if let (MONITOR, Some(commit)) = (package, stamp::commit(tree)) {
        stamp::write(&mut flat, &commit)?;
    }
    let place = folder.join(format!("{package}.bin"));
    replace(&place, &flat)?;
    Ok(Flat { place, bytes: flat.len() })
}

/// A machine may be reading the old file at this moment: it keeps it.
fn replace(place: &Path, content: &[u8]) -> Result<()> {
    if std::fs::read(place).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let fresh = place.with_extension("new");
    std::fs::write(&fresh, content)?;
    std::fs::rename(&fresh, place).with_context(|| format!("cannot write {}", place.display()))
}
