//! Choosing files of unpacked packages for an initial file system: programs with the libraries that they need.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::cache::{Cache, Scratch};
use crate::cpio::Archive;
use crate::debian;

/// Where Debian's libraries for the guests are.
const LIBRARIES: &str = "usr/lib/riscv64-linux-gnu";

/// Packages unpacked into one folder of the cache, for as long as this lives.
pub struct Packages {
    scratch: Scratch,
}

impl Packages {
    /// Downloads `names` with all that they depend on, and unpacks them.
    ///
    /// # Errors
    /// A package cannot be downloaded or unpacked.
    pub fn fetch(cache: &Cache, names: &[&str], what: &str) -> Result<Self> {
        let apt = debian::guest_apt(cache)?;
        let scratch = cache.scratch(&format!("{what}-packages"))?;
        let title = format!("packages of {what}");
        for package in apt.download_with_dependencies(names, &scratch.path.join("debs"), &title)? {
            debian::unpack(&package, &scratch.path.join("files"))?;
        }
        Ok(Self { scratch })
    }

    /// The folder that stands for `/`.
    pub fn root(&self) -> PathBuf {
        self.scratch.path.join("files")
    }

    /// A folder beside it for other things.
    pub fn work(&self, name: &str) -> PathBuf {
        self.scratch.path.join(name)
    }
}

/// What an entry of the archive is.
enum Entry {
    File(PathBuf),
    Link(String),
}

/// Files chosen from a folder that stands for `/`, by their names in the archive.
pub struct Selection {
    root: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Selection {
    /// Nothing yet, from `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root, entries: BTreeMap::new() }
    }

    /// Takes a file. A link is taken with what it points at; a program or library with the libraries that it needs.
    ///
    /// # Errors
    /// There is no such file, or a library that it needs is not there.
    pub fn file(&mut self, name: &str) -> Result<&mut Self> {
        self.take(name, 0)?;
        Ok(self)
    }

    /// Takes a program under another name.
    ///
    /// # Errors
    /// As [`Selection::file`].
    pub fn file_as(&mut self, name: &str, place: &str) -> Result<&mut Self> {
        self.take(name, 0)?;
        if let Some(entry) = self.entries.remove(name) {
            self.entries.insert(place.to_owned(), entry);
        }
        Ok(self)
    }

    /// Takes several files, as [`Selection::file`] does.
    ///
    /// # Errors
    /// As [`Selection::file`].
    pub fn files(&mut self, folder: &str, names: &[&str]) -> Result<&mut Self> {
        for name in names {
            self.take(&format!("{folder}/{name}"), 0)?;
        }
        Ok(self)
    }

    /// Takes the files below a folder whose name passes `wanted`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn below(&mut self, folder: &str, wanted: impl Fn(&str) -> bool) -> Result<&mut Self> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let path = self.root.join(&folder);
            for entry in fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))? {
                let entry = entry?;
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.file_type()?.is_dir() {
                    folders.push(name);
                } else if wanted(&name) {
                    self.take(&name, 0)?;
                }
            }
        }
        Ok(self)
    }

    /// Adds everything, and the folders that it lies in, to an archive.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn write(&self, archive: &mut Archive) -> Result<()> {
        self.write_below("", archive)
    }

    /// The same below a folder that is in the archive already: `FOLDER/`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn write_below(&self, parent: &str, archive: &mut Archive) -> Result<()> {
        let folders: BTreeSet<&Path> =
            self.entries.keys().flat_map(|name| Path::new(name).ancestors().skip(1)).collect();
        for folder in folders.into_iter().filter(|folder| !folder.as_os_str().is_empty()) {
            archive.directory(&format!("{parent}{}", folder.display()));
        }
        for (name, entry) in &self.entries {
            let name = &format!("{parent}{name}");
            match entry {
                Entry::Link(target) => archive.symlink(name, target),
                Entry::File(path) => {
                    let mode = fs::metadata(path)?.permissions().mode();
                    archive.file_from(name, if mode & 0o100 == 0 { 0o644 } else { 0o755 }, path)?
                }
            };
        }
        Ok(())
    }

    /// Lays everything out in a folder of the host.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn lay_out(&self, folder: &Path) -> Result<()> {
        for (name, entry) in &self.entries {
            let place = folder.join(name);
            let parent = place.parent().unwrap_or(folder);
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            match entry {
                Entry::Link(target) => std::os::unix::fs::symlink(target, &place),
                Entry::File(path) => fs::copy(path, &place).map(drop),
            }
            .with_context(|| format!("cannot write {}", place.display()))?;
        }
        Ok(())
    }

    fn take(&mut self, name: &str, depth: usize) -> Result<()> {
        if depth > 64 {
            bail!("links or libraries go in a circle at {name}");
        }
        if self.entries.contains_key(name) {
            return Ok(());
        }
        let path = self.root.join(name);
        let kind = path.symlink_metadata().with_context(|| format!("the packages have no /{name}"))?.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(&path)?.to_string_lossy().into_owned();
            self.entries.insert(name.to_owned(), Entry::Link(target.clone()));
            return self.take(&resolved(name, &target), depth + 1);
        }
        self.entries.insert(name.to_owned(), Entry::File(path.clone()));
        for needed in needed_by(&path)? {
            let place = if needed.starts_with('/') {
                // The loader's name in programs is the one from before /lib became a part of /usr.
                needed.replacen("/lib/", "usr/lib/", 1)
            } else {
                format!("{LIBRARIES}/{needed}")
            };
            self.take(&place, depth + 1).with_context(|| format!("needed by /{name}"))?;
        }
        Ok(())
    }
}

/// What a link called `name` points at, as a name without `.` and `..`.
fn resolved(name: &str, target: &str) -> String {
    let base = Path::new(name).parent().unwrap_or(Path::new("")).join(target);
    let mut parts: Vec<String> = Vec::new();
    for component in base.components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::RootDir => parts.clear(),
            _ => {}
        }
    }
    parts.join("/")
}

/// The libraries and the loader that a program or library names; nothing for other files.
fn needed_by(path: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let Ok(header) = FileHeader64::<Endianness>::parse(&*bytes) else { return Ok(Vec::new()) };
    names_in(header, &bytes).with_context(|| format!("{} is damaged", path.display()))
}

fn names_in(header: &FileHeader64<Endianness>, bytes: &[u8]) -> Result<Vec<String>> {
    let endian = header.endian()?;
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or(b"")).into_owned();
    let mut names = Vec::new();
    for segment in header.program_headers(endian, bytes)? {
        if segment.p_type(endian) == PT_INTERP {
            names.push(text(segment.data(endian, bytes).unwrap_or_default()));
        }
    }
    let sections = header.sections(endian, bytes)?;
    if let Some((entries, strings)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        for entry in entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED) {
            names.push(text(entry.string(endian, strings)?));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_by_name() {
        assert_eq!(resolved("usr/bin/gcc", "gcc-14"), "usr/bin/gcc-14");
        assert_eq!(resolved("usr/bin/x", "../lib/./x"), "usr/lib/x");
        assert_eq!(resolved("usr/bin/x", "/etc/x"), "etc/x");
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = Selection::new(dir.path().into()).file("usr/bin/nothing").err().unwrap();
        assert!(error.to_string().contains("/usr/bin/nothing"), "{error}");
    }

    #[test]
    fn links_bring_their_targets_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/file"), "text").unwrap();
        std::os::unix::fs::symlink("b/file", dir.path().join("a/link")).unwrap();
        let mut selection = Selection::new(dir.path().into());
        selection.file("a/link").unwrap();
        let mut archive = Archive::new();
        selection.write(&mut archive).unwrap();
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        for name in ["a\0", "a/b\0", "a/b/file\0", "a/link\0"] {
            assert!(text.contains(name), "{name:?} is not in {text}");
        }
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("b")).unwrap();
        // Each link is taken once; what they should lead to does not exist, and nothing runs for ever.
        assert!(Selection::new(dir.path().into()).file("a").is_ok());
    }
}
