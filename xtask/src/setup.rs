//! Setting a machine up: what is there is left alone, what is missing is installed, and nothing else is changed.
//!
//! Packages come from the mirror that apt is set up for, through a private apt: Debian 12 gets QEMU from its backports
//! without a change to its sources.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use image::command::{find_program, output_of, run_shown, tool};
use image::{Cache, Mirror, PrivateApt, Step, codename_of_this_machine};

use crate::tree::{BARE_TARGET, GUEST_TARGET, Tree};

const EMULATOR: &str = "qemu-system-riscv64";
const OLDEST_QEMU: u32 = 10;

/// Firmware that QEMU starts with when no `-bios` is given.
const FIRMWARE: &str = "opensbi-riscv64-generic-fw_dynamic.bin";

/// Small tools: program and the package that has it.
const TOOLS: [(&str, &str); 7] = [
    ("mke2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("xz", "xz-utils"),
    ("bzip2", "bzip2"),
    ("patch", "patch"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
];

/// Installs everything that building and running need.
///
/// # Errors
/// Something is missing and cannot be installed; the message says what to do.
pub fn machine(_tree: &Tree) -> Result<()> {
    rust_target()?;
    install_missing(missing_packages)
}

/// Installs what running a machine needs: no tools that make guests.
///
/// # Errors
/// As [`machine`].
pub fn emulator() -> Result<()> {
    rust_target()?;
    install_missing(missing_emulator)
}

fn install_missing(missing_now: impl Fn() -> Vec<&'static str>) -> Result<()> {
    let missing = missing_now();
    if missing.is_empty() {
        return Ok(());
    }
    install(&missing)?;
    let still = missing_now();
    ensure!(still.is_empty(), "installed, and still missing or too old: {}", still.join(", "));
    Ok(())
}

/// Adds the targets of the bare machine and of its guests to the Rust toolchain.
///
/// # Errors
/// The toolchain has no such target and there is no rustup to add it.
pub fn rust_target() -> Result<()> {
    [BARE_TARGET, GUEST_TARGET].into_iter().try_for_each(add_rust_target)
}

/// Whether the Rust toolchain has both targets.
///
/// # Errors
/// There is no Rust compiler.
pub fn has_rust_targets() -> Result<bool> {
    Ok(has_rust_target(BARE_TARGET)? && has_rust_target(GUEST_TARGET)?)
}

fn add_rust_target(target: &str) -> Result<()> {
    if has_rust_target(target)? {
        return Ok(());
    }
    if find_program("rustup").is_none() {
        bail!("this Rust toolchain lacks the target {target}, and there is no rustup to add it: install rustup");
    }
    let step = Step::begin(format!("Rust target {target}"));
    // Inside `cargo run` RUSTUP_TOOLCHAIN is set, so this is the toolchain that will build.
    output_of(Command::new("rustup").args(["target", "add", target]))?;
    step.finish("installed");
    Ok(())
}

fn has_rust_target(target: &str) -> Result<bool> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let libraries = output_of(Command::new(rustc).args(["--print", "target-libdir", "--target", target]))?;
    let entries = std::fs::read_dir(libraries.trim()).into_iter().flatten().flatten();
    Ok(entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-")))
}

/// The packages with emulator and firmware, if this machine lacks them, or has them in a version too old.
pub fn missing_emulator() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if qemu_version().is_none_or(|major| major < OLDEST_QEMU) {
        missing.push("qemu-system-riscv");
    }
    if !missing.is_empty() || !has_firmware() {
        missing.push("opensbi");
    }
    missing
}

/// All packages that this machine lacks, or has in a version too old.
pub fn missing_packages() -> Vec<&'static str> {
    let mut missing = missing_emulator();
    missing.extend(TOOLS.iter().filter(|(program, _)| find_program(program).is_none()).map(|(_, package)| package));
    missing.dedup();
    // Only root can make files of root without it.
    if !is_root() && find_program("fakeroot").is_none() {
        missing.push("fakeroot");
    }
    missing
}

fn qemu_version() -> Option<u32> {
    let text = output_of(tool(EMULATOR).ok()?.arg("--version")).ok()?;
    parse_qemu_version(&text)
}

/// `QEMU emulator version 10.0.2 (Debian ...)` is 10.
fn parse_qemu_version(text: &str) -> Option<u32> {
    let version = text.split_whitespace().skip_while(|word| *word != "version").nth(1)?;
    version.split('.').next()?.parse().ok()
}

/// Asks QEMU itself where it looks for firmware.
fn has_firmware() -> bool {
    let folders = tool(EMULATOR).and_then(|mut qemu| output_of(qemu.args(["-L", "help"]))).unwrap_or_default();
    folders.lines().any(|folder| Path::new(folder.trim()).join(FIRMWARE).exists())
}

fn install(packages: &[&str]) -> Result<()> {
    let codename = codename_of_this_machine()?;
    let mirror = Mirror::of_this_machine(&codename)?;
    let (suites, preferred) = suites_for(&codename);
    let cache = Cache::open()?;
    let suites: Vec<&str> = suites.iter().map(String::as_str).collect();
    let dir = cache.root().join("apt/this-machine");
    let apt = PrivateApt::for_this_machine(&dir, &mirror, &codename, &suites)?;
    let step = Step::begin(format!("installing {}", packages.join(" ")));
    apt.update()?;
    apt.install(packages, &preferred, |command| {
        as_root(command).with_context(|| how_to_install(packages, &preferred))
    })?;
    step.finish("done");
    Ok(())
}

fn how_to_install(packages: &[&str], suite: &str) -> String {
    format!(
        "missing on this machine: {}. Install them from {suite} (QEMU in version {OLDEST_QEMU} or newer), or run \
         `./x setup` as root or where `sudo` asks for no password",
        packages.join(", ")
    )
}

/// Debian 12's own QEMU is too old, its backports' is not; later releases' own will do.
fn suites_for(codename: &str) -> (Vec<String>, String) {
    if codename == "bookworm" {
        let backports = format!("{codename}-backports");
        (vec![codename.into(), backports.clone()], backports)
    } else {
        (vec![codename.into()], codename.into())
    }
}

fn is_root() -> bool {
    output_of(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The same command run by root: as it is, or by a `sudo` that asks nothing.
fn as_root(command: Command) -> Result<Command> {
    if is_root() {
        return Ok(command);
    }
    let words = || std::iter::once(command.get_program()).chain(command.get_args());
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "DEBIAN_FRONTEND=noninteractive"]).args(words());
    if run_shown(Command::new("sudo").args(["-n", "true"])).is_err() {
        let shown = words().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        bail!("not root, and sudo asks for a password; the command is\n  sudo {shown}");
    }
    Ok(sudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_versions_are_read() {
        let debian = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2+deb13u1~bpo12+1)\nCopyright (c) 2003-2025";
        assert_eq!(parse_qemu_version(debian), Some(10));
        assert_eq!(parse_qemu_version("QEMU emulator version 7.2.15"), Some(7));
        assert_eq!(parse_qemu_version("something else"), None);
    }

    #[test]
    fn only_the_old_release_needs_backports() {
        assert_eq!(suites_for("bookworm").1, "bookworm-backports");
        assert_eq!(suites_for("trixie"), (vec!["trixie".into()], "trixie".into()));
    }
}
