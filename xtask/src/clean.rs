//! Cleaning the cache: only what the builders of this tree have made, and can make again.

use std::fs;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use image::{Cache, CloudImage, Kernel, KvmHost, LoadParts, NfsDisk, RecipeKey, RootImage, UBoot};

/// Folders of downloads, and those that an interrupted build may leave beside its kind's `-packages`.
const OTHERS: [&str; 3] = ["apt", "kernel-modules", "u-boot-package"];

/// Removes artifacts and downloads from the cache; with `old` only artifacts of earlier recipes. Results of the lab, and whatever
/// else lies there, stay.
///
/// # Errors
/// Nobody says yes, or something cannot be removed.
pub fn cache(old: bool, yes: bool) -> Result<()> {
    let cache = Cache::open()?;
    let entries = entries(cache.root())?;
    let (made, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| is_made(path));
    let removed: Vec<_> = made.into_iter().filter(|path| !old || is_outdated(path)).collect();
    let kept: Vec<_> = others.iter().filter(|path| !path.ends_with("lock")).collect();
    if removed.is_empty() {
        println!("nothing to remove in {}", cache.root().display());
        return Ok(());
    }
    println!("in {}, these go:", cache.root().display());
    removed.iter().for_each(|path| show(path));
    if !kept.is_empty() {
        println!("these stay:");
        kept.iter().for_each(|path| show(path));
    }
    agree(yes)?;
    for path in removed {
        let is_folder = path.is_dir() && !path.is_symlink();
        let gone = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        gone.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn entries(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn recipes() -> Vec<RecipeKey> {
    let own = [
        Kernel::recipe(),
        UBoot::recipe(),
        RootImage::recipe(),
        CloudImage::recipe(),
        KvmHost::recipe(),
        NfsDisk::recipe(),
    ];
    own.into_iter().chain(LoadParts::recipes()).collect()
}

/// Whether this is an artifact, the link to one, or a download.
fn is_made(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let unpacked = name.strip_suffix("-packages").filter(|_| path.is_dir());
    let is_link_of = |key: &RecipeKey| name == key.kind() && path.is_symlink();
    // An interrupted build leaves its folder.
    let built = name.strip_suffix(".unfinished").unwrap_or(name);
    OTHERS.contains(&name)
        || recipes().iter().any(|key| is_link_of(key) || key.is_sibling(built) || unpacked == Some(key.kind()))
}

fn is_outdated(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    recipes().iter().any(|key| key.is_sibling(&name) && *name != key.to_string())
}

fn show(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    println!("  {:>6} MiB  {name}", bytes(path).div_ceil(1 << 20));
}

/// What a file or folder takes on the disk, links not followed.
fn bytes(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let inside = if found.is_dir() { entries(path).unwrap_or_default() } else { Vec::new() };
    found.blocks() * 512 + inside.iter().map(|entry| bytes(entry)).sum::<u64>()
}

fn agree(yes: bool) -> Result<()> {
    if yes || std::env::var("CI").is_ok_and(|value| value == "true") {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("nothing is removed without a yes, and there is no terminal to ask on: say --yes");
    }
    print!("Remove them? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    ensure!(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()), "nothing was removed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn results_and_files_of_the_user_stay() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let key = Kernel::recipe().to_string();
        let made =
            [key.as_str(), "root-0123456789abcdef", "kernel-0123456789abcdef.unfinished", "apt", "root-packages"];
        let kept = ["lab", "my.img", "root", "kernel-mine", "payloads", "lock"];
        made.iter()
            .chain(&["lab", "root", "kernel-mine", "payloads"])
            .for_each(|name| fs::create_dir(at(name)).unwrap());
        ["my.img", "lock"].iter().for_each(|name| fs::write(at(name), "").unwrap());
        symlink(&key, at("kernel")).unwrap();
        for name in made.iter().chain(&["kernel"]) {
            assert!(is_made(&at(name)), "{name}");
        }
        for name in kept {
            assert!(!is_made(&at(name)), "{name}");
        }
        assert!(is_outdated(&at("root-0123456789abcdef")) && !is_outdated(&at(&key)) && !is_outdated(&at("apt")));
    }

    #[test]
    fn sizes_are_those_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), vec![1; 3 << 20]).unwrap();
        symlink("/usr", dir.path().join("link")).unwrap();
        let size = bytes(dir.path());
        assert!((3 << 20..4 << 20).contains(&size), "{size}");
    }
}
