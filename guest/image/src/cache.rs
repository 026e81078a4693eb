//! The cache folder: built artifacts, each in a folder named by its recipe, and the downloads they were made from.
//!
//! An artifact is built in a temporary folder and moved into place when complete, so a folder with a recipe's name is
//! always whole. A stable link (`kernel`, `root`, ...) points at the newest one, for people and for scripts.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use crate::recipe::RecipeKey;

/// The cache folder, with its lock held: one builder at a time, others wait.
pub struct Cache {
    root: PathBuf,
    _lock: File,
}

impl Cache {
    /// Opens the cache in [`Cache::default_root`], waiting for another builder to finish.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn open() -> Result<Self> {
        Self::open_at(Self::default_root()?)
    }

    /// Opens a cache in the given folder.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn open_at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| format!("cannot make the cache folder {}", root.display()))?;
        let lock = File::create(root.join("lock")).context("cannot make the cache's lock file")?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("waiting for another build to leave {} ...", root.display());
            flock(&lock, FlockOperation::LockExclusive).context("cannot lock the cache")?;
        }
        Ok(Self { root, _lock: lock })
    }

    /// `$MIRRORBALL_CACHE`, else `mirrorball` in the user's cache folder.
    ///
    /// # Errors
    /// Neither that variable nor a home folder is set.
    pub fn default_root() -> Result<PathBuf> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(root) = set("MIRRORBALL_CACHE") {
            return Ok(root);
        }
        let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        caches.map(|dir| dir.join("mirrorball")).context("set MIRRORBALL_CACHE or HOME: no place for the cache")
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the artifact of this recipe is, if it has been built.
    pub fn find(&self, key: &RecipeKey) -> Option<PathBuf> {
        Some(self.root.join(key.to_string())).filter(|dir| dir.is_dir())
    }

    /// The artifact of this recipe: found, or made by `build` in the empty folder that it is given.
    ///
    /// # Errors
    /// Those of `build`; nothing of a failed build is left behind.
    pub fn get_or_build(&self, key: &RecipeKey, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let place = self.root.join(key.to_string());
        if !place.is_dir() {
            let unfinished = self.scratch(&format!("{key}.unfinished"))?;
            build(&unfinished.path).with_context(|| format!("building {} failed", key.kind()))?;
            fs::rename(&unfinished.path, &place).context("cannot move the finished artifact into place")?;
        }
        self.point(key.kind(), &key.to_string())?;
        Ok(place)
    }

    /// An empty folder for temporary files, removed when dropped.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn scratch(&self, name: &str) -> Result<Scratch> {
        let path = self.root.join(name);
        remove_if_there(&path)?;
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch { path })
    }

    /// Removes artifacts of older recipes of the same kind.
    ///
    /// # Errors
    /// A folder cannot be listed or removed.
    pub fn remove_older(&self, key: &RecipeKey) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if key.is_sibling(&name) && name != key.to_string() {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn point(&self, link: &str, target: &str) -> Result<()> {
        let link = self.root.join(link);
        if fs::read_link(&link).is_ok_and(|now| now == Path::new(target)) {
            return Ok(());
        }
        if link.is_dir() && !link.is_symlink() {
            bail!("{} is a folder where the cache keeps a link: remove it", link.display());
        }
        let _ = fs::remove_file(&link);
        symlink(target, &link).with_context(|| format!("cannot make the link {}", link.display()))
    }
}

/// A temporary folder inside the cache.
pub struct Scratch {
    /// Its path.
    pub path: PathBuf,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // After a successful build the folder has been renamed and this finds nothing.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    fn build_value(cache: &Cache, value: &str) -> PathBuf {
        let key = Recipe::new("thing").with("value", value).key();
        cache.get_or_build(&key, |dir| Ok(fs::write(dir.join("value"), value)?)).unwrap()
    }

    #[test]
    fn an_artifact_is_built_once_and_found_by_its_link() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open_at(dir.path().into()).unwrap();
        let place = build_value(&cache, "one");
        let key = Recipe::new("thing").with("value", "one").key();
        let again = cache.get_or_build(&key, |_| bail!("must not be built again")).unwrap();
        assert_eq!(place, again);
        assert_eq!(fs::read_to_string(dir.path().join("thing/value")).unwrap(), "one");
    }

    #[test]
    fn a_changed_recipe_builds_again_and_old_ones_can_go() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open_at(dir.path().into()).unwrap();
        let (old, new) = (build_value(&cache, "one"), build_value(&cache, "two"));
        assert_eq!(fs::read_to_string(dir.path().join("thing/value")).unwrap(), "two");
        cache.remove_older(&Recipe::new("thing").with("value", "two").key()).unwrap();
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_failed_build_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open_at(dir.path().into()).unwrap();
        let key = Recipe::new("thing").key();
        cache.get_or_build(&key, |_| bail!("no")).unwrap_err();
        assert!(cache.find(&key).is_none());
        assert!(fs::read_dir(dir.path()).unwrap().all(|entry| entry.unwrap().file_name() == "lock"));
    }
}
