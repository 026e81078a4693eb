//! Where the programs are that a machine boots: the monitor and the probe that `./x build` makes, the guests that
//! `./x image` keeps in the cache.

use std::path::{Path, PathBuf};

use crate::LabError;

/// Names the monitor's image where it is not the one that this tree built.
pub const MONITOR_VARIABLE: &str = "MIRRORBALL_MONITOR";
/// Names the probe guest where it is not the one that this tree built.
pub const PROBE_VARIABLE: &str = "MIRRORBALL_PROBE";

/// Names the program of the workload guests where it is not the one that this tree built.
const LOAD_VARIABLE: &str = "MIRRORBALL_LOAD";
/// Names the counting plugin where it is not the one that this tree built.
const COUNTER_VARIABLE: &str = "MIRRORBALL_COUNTER";

/// Names the programs on SPLASHOS where they are not those that this tree built.
const SPLASH_VARIABLE: &str = "MIRRORBALL_SPLASH";

/// Where bare-metal programs lie in the target folder.
const BARE: &str = "riscv64imac-unknown-none-elf/monitor";
/// Where programs lie that run inside Linux guests.
const GUEST: &str = "riscv64gc-unknown-none-elf/monitor";

/// The monitor's image.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn monitor() -> Result<PathBuf, LabError> {
    built(MONITOR_VARIABLE, "monitor.bin")
}

/// The probe guest.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn probe() -> Result<PathBuf, LabError> {
    built(PROBE_VARIABLE, "probe.bin")
}

/// The probe guest as the linker made it: for loaders that put it where it says.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn probe_program() -> Result<PathBuf, LabError> {
    existing(probe()?.with_extension(""), "./x build")
}

/// The parallel programs on SPLASHOS.
///
/// # Errors
/// [`LabError::Missing`] if they have not been built.
pub fn splash() -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os(SPLASH_VARIABLE).filter(|path| !path.is_empty()) {
        return existing(path.into(), "./x build");
    }
    existing(target_dir().join(GUEST).join("splash.bin"), "./x build")
}

/// The host system for KVM: its initial file system, without guests.
///
/// # Errors
/// [`LabError::Missing`] if it has not been made.
pub fn kvm_host() -> Result<PathBuf, LabError> {
    cached_load("kvm-host/kvm-host.cpio")
}

/// The fault firmware.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn firmware() -> Result<PathBuf, LabError> {
    built("MIRRORBALL_FIRMWARE", "firmware.bin")
}

/// The program that lives through faults.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn fault_probe() -> Result<PathBuf, LabError> {
    built("MIRRORBALL_FAULT_PROBE", "fault-probe.bin")
}

/// The machine model's plugin for the emulator.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn numa_plugin() -> Result<PathBuf, LabError> {
    plugin("MIRRORBALL_NUMA_MODEL", machine::PLUGIN_FILE)
}

/// A plugin of the emulator: the one named by the environment, else beside this program, else built by the tree.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn plugin(variable: &str, name: &str) -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return existing(path.into(), "./x build");
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.ancestors().skip(1).take(3).map(|folder| folder.join(name));
    let built = ["debug", "release"].map(|profile| target_dir().join(profile).join(name));
    let found = beside.chain(built).find(|path| path.is_file());
    found.ok_or(LabError::Missing { path: name.into(), maker: "./x build" })
}

/// What the workloads of crate `loads` are made of. Their files are looked for when they are needed.
///
/// # Errors
/// [`LabError::Missing`] if the program that the guests run has not been built.
pub fn load_files() -> Result<loads::Files, LabError> {
    let cache = config::cache_dir().unwrap_or_default();
    let named = std::env::var_os(LOAD_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let program = named.unwrap_or_else(|| target_dir().join(GUEST).join("load"));
    Ok(loads::Files { cache, program: existing(program, "./x build")? })
}

/// A file of the cache, as `kernel/Image`.
///
/// # Errors
/// [`LabError::Missing`] if it has not been made.
pub fn cached(name: &str) -> Result<PathBuf, LabError> {
    let path = config::cache_dir().map(|cache| cache.join(name)).unwrap_or_default();
    existing(path, "./x image")
}

/// A file of the cache that only some experiments boot, as `loads-nfs/nfs.cpio`.
///
/// # Errors
/// [`LabError::Missing`] if it has not been made.
pub fn cached_load(name: &str) -> Result<PathBuf, LabError> {
    let path = config::cache_dir().map(|cache| cache.join(name)).unwrap_or_default();
    existing(path, "./x image --loads")
}

/// The instruction-counting plugin.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn counter() -> Result<PathBuf, LabError> {
    plugin(COUNTER_VARIABLE, "libinstruction_counter.so")
}

/// A program built by this tree, or named by the environment.
///
/// # Errors
/// [`LabError::Missing`] if it has not been built.
pub fn built(variable: &str, name: &str) -> Result<PathBuf, LabError> {
    if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
        return existing(path.into(), "./x build");
    }
    existing(target_dir().join(BARE).join(name), "./x build")
}

/// The folder that cargo builds a tree of this project into: the one where the running program lies; or, where it was
/// installed, that of the tree around the working directory, or of the tree that it was built from.
pub fn target_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        return dir.into();
    }
    let program = std::env::current_exe().unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    let around = program.ancestors().map(Path::to_owned).chain(here.ancestors().map(|dir| dir.join("target")));
    let built_from = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    around.into_iter().find(|dir| dir.join(BARE).is_dir()).unwrap_or_else(built_from)
}

fn existing(path: PathBuf, maker: &'static str) -> Result<PathBuf, LabError> {
    if path.is_file() { Ok(path) } else { Err(LabError::Missing { path, maker }) }
}
