//! Where files are.

use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::{env, fs};

use control::Name;

use crate::plan::{MachinePlan, VmPlan};
use crate::problem::{ConfigError, Place};
use crate::reader::Section;
use crate::{machine_file, vm_file};

/// Names the cache directory.
pub const CACHE_VARIABLE: &str = "MIRRORBALL_CACHE";

/// Stands for the cache directory at the start of a path.
const CACHE_PREFIX: &str = "cache:";

/// Reads descriptions.
#[derive(Clone, Debug)]
pub struct Loader {
    /// What `cache:` stands for; `None` if no such place is known.
    pub cache: Option<PathBuf>,
    /// Whether files that are named must exist and be what they should be.
    pub check_files: bool,
    /// Whether a machine file is refused that asks the host for more than reading the files of its folder and of the cache: see
    /// [`MachinePlan::grants`].
    pub is_restricted: bool,
}

impl Loader {
    /// The usual one: cache from the environment, all files checked.
    #[must_use]
    pub fn from_env() -> Self {
        Self { cache: cache_dir(), check_files: true, is_restricted: false }
    }

    /// Reads a machine file and all that it names.
    ///
    /// # Errors
    /// All problems found.
    pub fn load(&self, file: &Path) -> Result<MachinePlan, ConfigError> {
        machine_file::load(self, file)
    }

    /// Reads the text of a machine file that would stand at `file`, and all that it names.
    ///
    /// # Errors
    /// All problems found.
    pub fn load_text(&self, file: &Path, text: String) -> Result<MachinePlan, ConfigError> {
        machine_file::load_text(self, file, text)
    }

    /// Reads a VM file: the keys of `[[vm]]` at its top. `name` overrides the name that it gives.
    ///
    /// # Errors
    /// All problems found.
    pub fn load_vm(&self, file: &Path, name: Option<&Name>) -> Result<VmPlan, ConfigError> {
        vm_file::load(self, file, name)
    }

    /// The path that `text` means at `place`.
    pub(crate) fn resolve(&self, section: &Section<'_>, key: &str, text: &str, place: &Place) -> Option<PathBuf> {
        let Some(inside) = text.strip_prefix(CACHE_PREFIX) else {
            let path = place.directory().join(text);
            if let Some(home) = section.report().home().filter(|home| !lies_in(&path, home)) {
                let what = format!("opens {}, which is not in the folder {}", path.display(), home.display());
                section.grant(place, key, what);
            }
            return Some(path);
        };
        if self.cache.is_none() {
            let help = Some(format!("set {CACHE_VARIABLE} or HOME"));
            section.error(place, key, "there is no cache directory", help);
        }
        let cache = self.cache.as_ref()?;
        let path = cache.join(inside);
        if section.report().home().is_some() && !lies_in(&path, cache) {
            section.grant(place, key, format!("opens {}, which is not in the cache", path.display()));
        }
        Some(path)
    }

    /// Whether a file is in the cache, so that a machine file may read it in any case.
    pub(crate) fn is_in_cache(&self, path: &Path) -> bool {
        self.cache.as_ref().is_some_and(|cache| lies_in(path, cache))
    }

    /// The size of a file that must exist, and its first bytes.
    pub(crate) fn inspect(
        &self,
        section: &Section<'_>,
        key: &str,
        path: &Path,
        place: &Place,
    ) -> Option<(u64, Vec<u8>)> {
        let complain = |message: String| {
            let in_cache = self.cache.as_ref().is_some_and(|cache| path.starts_with(cache));
            let help = in_cache
                .then(|| "files in the cache are made by `./x image`, in the source tree of Mirrorball".to_owned());
            section.error(place, key, message, help);
        };
        // Looked at before it is opened: a FIFO would wait for somebody who writes.
        let opened = fs::metadata(path).and_then(|metadata| match kind(&metadata) {
            None => fs::File::open(path).map(|file| (metadata, file)),
            Some(kind) => Err(std::io::Error::other(format!("is {kind}"))),
        });
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                complain(format!("{}: {}", path.display(), plain(&error)));
                return None;
            }
        };
        let mut head = Vec::new();
        if let Err(error) = file.take(4096).read_to_end(&mut head) {
            complain(format!("{}: {}", path.display(), plain(&error)));
            return None;
        }
        Some((metadata.len(), head))
    }
}

/// What this is, if it is no file.
fn kind(metadata: &fs::Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a pipe, not a file"),
        () if kind.is_socket() => Some("a socket, not a file"),
        () => Some("a device, not a file"),
    }
}

/// Whether a path leads to something in this folder, however it is written and whatever links it passes. Of what does not exist
/// only how it is written counts.
fn lies_in(path: &Path, folder: &Path) -> bool {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    if let Ok(path) = path.canonicalize() {
        return path.starts_with(folder);
    }
    let parent = path.parent().unwrap_or(path);
    let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
    parent.starts_with(&folder) && !parent.components().any(|part| part == Component::ParentDir)
}

/// Reads a text file of at most [`MAX_TEXT`] bytes.
///
/// # Errors
/// As [`fs::read_to_string`], or the file is too long.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_TEXT + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_TEXT {
        true => Err(std::io::Error::other("is too long for a description")),
        false => Ok(text),
    }
}

/// Most bytes of a description: one that somebody wrote is far shorter.
const MAX_TEXT: u64 = 1 << 20;

/// The cache directory: `MIRRORBALL_CACHE`, else `mirrorball` in `XDG_CACHE_HOME` or in `~/.cache`.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    let set = |variable| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set(CACHE_VARIABLE).or_else(|| Some(caches()?.join("mirrorball")))
}

/// An operating system's error without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
