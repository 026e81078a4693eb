//! Which Debian the guests are, and how its packages come here.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::apt::PrivateApt;
use crate::cache::Cache;
use crate::command::{output_of, tool};
use crate::progress::Step;
use crate::sources::Mirror;

/// The release that guests run: Debian 13.
pub const GUEST_SUITE: &str = "trixie";

/// Debian's name for the guests' architecture.
pub const GUEST_ARCHITECTURE: &str = "riscv64";

/// The value of `field` in an `os-release` file, without quotes.
pub fn os_release_field(text: &str, field: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

/// The code name of this machine's Debian release.
///
/// # Errors
/// This machine does not say that it runs a Debian release.
pub fn codename_of_this_machine() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    os_release_field(&text, "VERSION_CODENAME").context("/etc/os-release names no release (VERSION_CODENAME)")
}

/// apt for the guests' packages, its lists fetched.
///
/// # Errors
/// No mirror is configured, or it cannot be reached.
pub fn guest_apt(cache: &Cache) -> Result<PrivateApt> {
    let mirror = Mirror::of_this_machine(&codename_of_this_machine()?)?;
    let dir = cache.root().join(format!("apt/{GUEST_SUITE}-{GUEST_ARCHITECTURE}"));
    let apt = PrivateApt::foreign(&dir, &mirror, GUEST_SUITE, GUEST_ARCHITECTURE)?;
    let step = Step::begin(format!("package lists of Debian {GUEST_SUITE} {GUEST_ARCHITECTURE}"));
    apt.update()?;
    step.finish("ready");
    Ok(apt)
}

/// Unpacks a package's files below `dir`.
///
/// # Errors
/// The package file is damaged, or the disk is full.
pub fn unpack(package: &Path, dir: &Path) -> Result<()> {
    let command: &mut Command = &mut tool("dpkg-deb")?;
    output_of(command.arg("-x").arg(package).arg(dir))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_values_are_unquoted() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=trixie\nID=debian\n";
        assert_eq!(os_release_field(text, "VERSION_CODENAME").as_deref(), Some("trixie"));
        assert_eq!(os_release_field(text, "NAME").as_deref(), Some("Debian GNU/Linux"));
        assert_eq!(os_release_field(text, "VERSION"), None);
    }
}
