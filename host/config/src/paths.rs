//! Where files are.

use std::io::Read;
use std::path::{Path, PathBuf};
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
}

impl Loader {
    /// The usual one: cache from the environment, all files checked.
    #[must_use]
    pub fn from_env() -> Self {
        Self { cache: cache_dir(), check_files: true }
    }

    /// Reads a machine file and all that it names.
    ///
    /// # Errors
    /// All problems found.
    pub fn load(&self, file: &Path) -> Result<MachinePlan, ConfigError> {
        machine_file::load(self, file)
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
            return Some(place.directory().join(text));
        };
        if self.cache.is_none() {
            let help = Some(format!("set {CACHE_VARIABLE} or HOME"));
            section.error(place, key, "there is no cache directory", help);
        }
        Some(self.cache.as_ref()?.join(inside))
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
        let opened = fs::File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                complain(format!("{}: {}", path.display(), plain(&error)));
                return None;
            }
        };
        if metadata.is_dir() {
            complain(format!("{}: is a directory", path.display()));
            return None;
        }
        let mut head = Vec::new();
        if let Err(error) = file.take(4096).read_to_end(&mut head) {
            complain(format!("{}: {}", path.display(), plain(&error)));
            return None;
        }
        Some((metadata.len(), head))
    }
}

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
