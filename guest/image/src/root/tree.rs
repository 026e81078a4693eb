//! The root file system as a folder on the host, before it becomes a disk image.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::database::Database;
use crate::command::{find_program, output_of, tool, watch_lines};
use crate::kernel::Kernel;
use crate::progress::Step;
use crate::recipe::Recipe;

/// Files laid over Debian's: path, permissions, content.
const FILES: [(&str, u32, &str); 14] = [
    ("boot/extlinux/extlinux.conf", 0o644, include_str!("../../files/root/extlinux.conf")),
    ("etc/apt/apt.conf.d/90-lab", 0o644, include_str!("../../files/root/apt.conf")),
    ("etc/dpkg/dpkg.cfg.d/90-lab", 0o644, include_str!("../../files/root/dpkg.cfg")),
    ("etc/fstab", 0o644, include_str!("../../files/root/fstab")),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/hostname", 0o644, "debian\n"),
    ("etc/motd", 0o644, include_str!("../../files/root/motd")),
    ("etc/resolv.conf", 0o644, include_str!("../../files/root/resolv.conf")),
    ("etc/systemd/journald.conf.d/90-lab.conf", 0o644, include_str!("../../files/root/journald.conf")),
    ("etc/systemd/network/50-ethernet.network", 0o644, include_str!("../../files/root/ethernet.network")),
    (
        "etc/systemd/system/serial-getty@.service.d/autologin.conf",
        0o644,
        include_str!("../../files/root/autologin.conf"),
    ),
    ("usr/lib/mirrorball/second-stage", 0o755, include_str!("../../files/root/second-stage.sh")),
    ("usr/local/bin/mirrorball-build", 0o755, include_str!("../../files/root/mirrorball-build.sh")),
    ("usr/local/bin/mirrorball-reference", 0o755, include_str!("../../files/root/mirrorball-reference.sh")),
];

/// Left out of the image, as in Debian's own container images; licences stay.
const LEFT_OUT: [&str; 5] =
    ["usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/gcc"];

/// Where the workload's source lies in the image.
const SOURCE_PLACE: &str = "usr/src/workload";

/// Adds all that this module puts into the image to its recipe.
pub fn add_files_to(recipe: Recipe) -> Recipe {
    let recipe = recipe.with_list("left out", &LEFT_OUT).with("source place", SOURCE_PLACE);
    FILES.iter().fold(recipe, |recipe, (path, mode, content)| recipe.with(&format!("{path} {mode:o}"), content))
}

/// Unpacks the packages given after the tree, a folder for lists of their files, and what to leave out, up to `--`; says
/// each one's name.
const UNPACK: &str = r#"
set -e
root=$1
lists=$2
shift 2
left_out=
while [ "$1" != -- ]; do
    left_out="$left_out $1"
    shift
done
shift
for package; do
    dpkg-deb -X "$package" "$root" >"$lists/${package##*/}"
    echo "${package##*/}"
done
cd "$root"
rm -rf $left_out
"#;

/// Who owns files of the tree: root for real, or root as `fakeroot` remembers it between commands.
pub struct Owners {
    /// fakeroot's memory; None when the build runs as root.
    memory: Option<PathBuf>,
}

impl Owners {
    /// Decides by who runs this.
    ///
    /// # Errors
    /// Not root, and no `fakeroot`.
    pub fn new(scratch: &Path) -> Result<Self> {
        if rustix::process::geteuid().is_root() {
            return Ok(Self { memory: None });
        }
        ensure!(find_program("fakeroot").is_some(), "building the root image without root rights needs `fakeroot`");
        let memory = scratch.join("owners");
        fs::write(&memory, "")?;
        Ok(Self { memory: Some(memory) })
    }

    /// A command that sees, and sets, those owners.
    pub fn tool(&self, program: &str) -> Result<Command> {
        let command = tool(program)?;
        let Some(memory) = &self.memory else { return Ok(command) };
        let mut fakeroot = tool("fakeroot")?;
        fakeroot.arg("-i").arg(memory).arg("-s").arg(memory).arg("--").arg(command.get_program());
        Ok(fakeroot)
    }
}

/// The tree being filled.
pub struct RootTree {
    path: PathBuf,
    owners: Owners,
}

impl RootTree {
    /// A tree in a folder that does not exist yet.
    pub fn new(path: PathBuf, owners: Owners) -> Self {
        Self { path, owners }
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who owns its files.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Unpacks the packages and writes dpkg's database.
    pub fn unpack(&self, packages: &[PathBuf]) -> Result<()> {
        let step = Step::begin_counted("unpacking", packages.len() as u64);
        fs::create_dir_all(&self.path)?;
        let mut database = Database::create(&self.path)?;
        // base-files first: its links from /bin to /usr/bin decide where the files of others go.
        let (base, others): (Vec<_>, Vec<_>) = packages.iter().partition(|deb| is_package(deb, "base-files"));
        ensure!(base.len() == 1, "package base-files is missing");
        let lists = self.path.with_extension("lists");
        fs::create_dir_all(&lists)?;
        // One command for all: fakeroot reads and writes its whole memory every time that it starts.
        let mut unpack = self.owners.tool("sh")?;
        unpack
            .args(["-c", UNPACK, "unpack"])
            .arg(&self.path)
            .arg(&lists)
            .args(LEFT_OUT)
            .arg("--")
            .args(base)
            .args(others);
        watch_lines(&mut unpack, |package| step.advance(package))?;
        let control = self.path.with_extension("control");
        for package in packages {
            output_of(tool("dpkg-deb")?.arg("-e").arg(package).arg(&control))?;
            let names = fs::read_to_string(lists.join(package.file_name().unwrap_or_default()))?;
            database.add(&self.path, &control, &names.lines().map(listed).collect::<String>())?;
            fs::remove_dir_all(&control)?;
        }
        database.finish(&self.path)?;
        step.finish(format!("{} packages", packages.len()));
        Ok(())
    }

    /// Lays this project's files, the kernel with its modules and the workload's source over Debian's.
    pub fn add_files(&self, kernel: &Kernel, source: &Path) -> Result<()> {
        // Empty, not absent: every clone makes up its own at its first boot.
        let files = [FILES.as_slice(), &[("etc/machine-id", 0o644, "")]].concat();
        let (modules, image, initrd) = (kernel.module_overlay().join("."), kernel.image(), kernel.initrd());
        let copies = [(modules.as_path(), ""), (&image, "boot"), (&initrd, "boot"), (&source.join("."), SOURCE_PLACE)];
        self.lay(&files, &copies)
    }

    /// Lays files over Debian's, and copies of others: from there, to this folder of the tree.
    pub fn lay(&self, files: &[(&str, u32, &str)], copies: &[(&Path, &str)]) -> Result<()> {
        let overlay = self.path.with_extension("overlay");
        for (path, mode, content) in files {
            write(&overlay, path, *mode, content.as_bytes())?;
        }
        for (from, to) in copies {
            let to = overlay.join(to);
            fs::create_dir_all(&to)?;
            copy(&mut tool("cp")?, from, &to)?;
        }
        // fakeroot knows files by their inodes: whatever replaces one of them has to go through it.
        copy(&mut self.owners.tool("cp")?, &overlay.join("."), &self.path)
    }

    /// Name and version of every package, for the record.
    pub fn package_list(&self, packages: &[PathBuf]) -> Result<String> {
        let mut list = String::new();
        for package in packages {
            list.push_str(&output_of(tool("dpkg-deb")?.arg("--show").arg(package))?);
        }
        Ok(list)
    }
}

fn write(root: &Path, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let place = root.join(path);
    fs::create_dir_all(place.parent().unwrap_or(root))?;
    fs::write(&place, content).with_context(|| format!("cannot write {}", place.display()))?;
    fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Copies with `cp`; a link in the way is replaced, not followed out of the tree.
fn copy(cp: &mut Command, from: &Path, to: &Path) -> Result<()> {
    output_of(cp.args(["-r", "--remove-destination", "--preserve=mode,timestamps,links"]).arg(from).arg(to))?;
    Ok(())
}

/// Whether a package file `name_version_architecture.deb` is that of package `name`.
fn is_package(file: &Path, name: &str) -> bool {
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    file.split('_').next() == Some(name)
}

/// `./usr/bin/` as tar shows it is `/usr/bin` in dpkg's list, and the root itself `/.`.
fn listed(name: &str) -> String {
    let name = name.strip_prefix('.').unwrap_or(name);
    match name.trim_end_matches('/') {
        "" => "/.\n".into(),
        path => format!("{path}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_names_become_dpkg_names() {
        assert_eq!(listed("./"), "/.\n");
        assert_eq!(listed("./usr/bin/"), "/usr/bin\n");
        assert_eq!(listed("./usr/bin/gcc"), "/usr/bin/gcc\n");
    }

    #[test]
    fn packages_are_told_by_their_whole_name() {
        assert!(is_package(Path::new("/x/base-files_13.8_riscv64.deb"), "base-files"));
        assert!(!is_package(Path::new("/x/base-files-extra_13.8_riscv64.deb"), "base-files"));
    }
}
