//! dpkg's database for packages that were unpacked by hand: every package "unpacked, not yet configured".
//!
//! dpkg itself cannot run here, since maintainer scripts are programs of the other architecture; configuring is left to
//! dpkg inside the emulated machine, which finds the state that `dpkg --unpack` would have left.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{output_of, tool};

/// The database being written below a root folder's `var/lib/dpkg`.
pub struct Database {
    status: String,
    /// Trigger -> lines of its file, as in `deb-triggers(5)`: explicit names each have a file, paths share `File`.
    triggers: BTreeMap<String, String>,
}

impl Database {
    /// An empty database, its folders made.
    pub fn create(root: &Path) -> Result<Self> {
        let dpkg = root.join("var/lib/dpkg");
        for dir in ["info", "updates", "triggers", "alternatives", "parts"] {
            fs::create_dir_all(dpkg.join(dir))?;
        }
        fs::write(dpkg.join("info/format"), "1\n")?;
        for file in ["available", "diversions", "statoverride"] {
            fs::write(dpkg.join(file), "")?;
        }
        Ok(Self { status: String::new(), triggers: BTreeMap::new() })
    }

    /// Adds a package: `control` is a folder with its unpacked control files, `files` the paths it installed.
    pub fn add(&mut self, root: &Path, control: &Path, files: &str) -> Result<()> {
        let stanza = fs::read_to_string(control.join("control")).context("a package without a control file")?;
        let stem = info_stem(&stanza).context("a package without a name")?;
        let info = root.join("var/lib/dpkg/info");
        fs::write(info.join(format!("{stem}.list")), files)?;
        for entry in fs::read_dir(control)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "control" {
                fs::copy(entry.path(), info.join(format!("{stem}.{name}")))?;
            }
        }
        let conffiles = conffile_sums(root, &read_or_empty(&control.join("conffiles")))?;
        self.add_triggers(&stem, &read_or_empty(&control.join("triggers")));
        self.status.push_str(&status_entry(&stanza, &conffiles));
        Ok(())
    }

    /// Writes what was collected.
    pub fn finish(self, root: &Path) -> Result<()> {
        let dpkg = root.join("var/lib/dpkg");
        fs::write(dpkg.join("status"), self.status)?;
        for (name, lines) in self.triggers {
            fs::write(dpkg.join("triggers").join(name), lines)?;
        }
        Ok(())
    }

    fn add_triggers(&mut self, package: &str, text: &str) {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(directive), Some(name)) = (words.next(), words.next()) else { continue };
            let options = match directive {
                "interest" | "interest-await" => "",
                "interest-noawait" => "/noawait",
                _ => continue,
            };
            let (file, entry) = match name.starts_with('/') {
                true => ("File", format!("{name} {package}{options}\n")),
                false => (name, format!("{package}{options}\n")),
            };
            self.triggers.entry(file.to_owned()).or_default().push_str(&entry);
        }
    }
}

fn read_or_empty(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// dpkg names the files of packages that can be installed for several architectures at once with the architecture.
fn info_stem(stanza: &str) -> Option<String> {
    let package = field(stanza, "Package")?;
    match (field(stanza, "Multi-Arch"), field(stanza, "Architecture")) {
        (Some("same"), Some(architecture)) => Some(format!("{package}:{architecture}")),
        _ => Some(package.to_owned()),
    }
}

/// The stanza in dpkg's status file: the control fields, the state after the name, the configuration files at the end.
fn status_entry(stanza: &str, conffiles: &str) -> String {
    let mut entry = String::new();
    for line in stanza.lines().filter(|line| !line.is_empty()) {
        entry.push_str(line);
        entry.push('\n');
        if line.starts_with("Package:") {
            entry.push_str("Status: install ok unpacked\n");
        }
    }
    if !conffiles.is_empty() {
        entry.push_str("Conffiles:\n");
        entry.push_str(conffiles);
    }
    entry.push('\n');
    entry
}

/// ` /etc/name md5sum` for every configuration file, as dpkg records them.
fn conffile_sums(root: &Path, conffiles: &str) -> Result<String> {
    // Lines with a flag ("remove-on-upgrade /etc/x") name files that are not in the package.
    let files: Vec<&str> = conffiles.lines().filter(|line| line.starts_with('/')).collect();
    if files.is_empty() {
        return Ok(String::new());
    }
    let relative = files.iter().map(|file| file.trim_start_matches('/'));
    let sums = output_of(tool("md5sum")?.current_dir(root).arg("--").args(relative))?;
    let mut lines = String::new();
    for (sum, file) in sums.lines().zip(&files) {
        let sum = sum.split_whitespace().next().unwrap_or_default();
        writeln!(lines, " {file} {sum}")?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZA: &str =
        "Package: libc6\nVersion: 2.41\nArchitecture: riscv64\nMulti-Arch: same\nDescription: C\n library\n";

    #[test]
    fn packages_for_several_architectures_carry_theirs_in_the_name() {
        assert_eq!(info_stem(STANZA).as_deref(), Some("libc6:riscv64"));
        assert_eq!(info_stem("Package: make\nArchitecture: riscv64\nMulti-Arch: allowed\n").as_deref(), Some("make"));
    }

    #[test]
    fn the_status_says_unpacked_and_keeps_every_field() {
        let entry = status_entry(STANZA, " /etc/x abc\n");
        assert!(entry.starts_with("Package: libc6\nStatus: install ok unpacked\nVersion: 2.41\n"), "{entry}");
        assert!(entry.ends_with("Description: C\n library\nConffiles:\n /etc/x abc\n\n"), "{entry}");
    }

    #[test]
    fn a_package_is_written_as_dpkg_would() {
        let dir = tempfile::tempdir().unwrap();
        let (root, control) = (dir.path().join("root"), dir.path().join("control"));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(&control).unwrap();
        fs::write(root.join("etc/ld.so.conf"), "x\n").unwrap();
        fs::write(control.join("control"), STANZA).unwrap();
        fs::write(control.join("conffiles"), "/etc/ld.so.conf\n").unwrap();
        fs::write(control.join("triggers"), "interest-noawait ldconfig\ninterest /usr/lib\nactivate-noawait x\n")
            .unwrap();
        fs::write(control.join("postinst"), "#!/bin/sh\n").unwrap();
        let mut database = Database::create(&root).unwrap();
        database.add(&root, &control, "/.\n/etc\n").unwrap();
        database.finish(&root).unwrap();
        let read = |name: &str| fs::read_to_string(root.join("var/lib/dpkg").join(name)).unwrap();
        assert_eq!(read("info/libc6:riscv64.list"), "/.\n/etc\n");
        assert_eq!(read("info/libc6:riscv64.postinst"), "#!/bin/sh\n");
        assert_eq!(read("triggers/ldconfig"), "libc6:riscv64/noawait\n");
        assert_eq!(read("triggers/File"), "/usr/lib libc6:riscv64\n");
        assert!(read("status").contains(" /etc/ld.so.conf 401b30e3b8b5d629635a5c613cdb7919\n"), "{}", read("status"));
    }
}
