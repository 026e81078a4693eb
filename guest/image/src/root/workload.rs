//! The workload: a Debian source package in C, built inside the guests. Its source comes from the mirror as Debian ships it:
//! upstream's archive plus Debian's patches.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::apt::PrivateApt;
use crate::command::{output_of, tool};
use crate::progress::Step;

/// The source package. It needs no configure script, which would be most of the time on an emulated machine, it compiles
/// with gcc and make alone, its results do not depend on time or place, and it brings tests of its own.
pub const SOURCE_PACKAGE: &str = "bzip2";

/// Downloads a source package and unpacks it, Debian's patches applied; returns the folder.
///
/// # Errors
/// There is no such package, or a patch does not apply.
pub fn download(apt: &PrivateApt, package: &str, dir: &Path) -> Result<PathBuf> {
    let source = download_upstream(apt, package, dir)?;
    let step = Step::begin(format!("Debian's patches for {package}"));
    output_of(tool("tar")?.args(["-x", "-f"]).arg(archive(dir, ".debian.tar.")?).arg("-C").arg(&source))?;
    let patches = source.join("debian/patches");
    for name in patch_names(&fs::read_to_string(patches.join("series")).unwrap_or_default()) {
        let patch = patches.join(name);
        output_of(tool("patch")?.args(["-p1", "--quiet", "--forward", "-i"]).arg(patch).current_dir(&source))?;
    }
    step.finish("applied");
    Ok(source)
}

/// Downloads a source package and unpacks what upstream released; returns the folder.
///
/// # Errors
/// There is no such package.
pub fn download_upstream(apt: &PrivateApt, package: &str, dir: &Path) -> Result<PathBuf> {
    let step = Step::begin(format!("source package {package}"));
    apt.download_source(package, dir)?;
    let source = dir.join(package);
    fs::create_dir_all(&source)?;
    let upstream = archive(dir, ".orig.tar.")?;
    output_of(tool("tar")?.args(["-x", "--strip-components=1", "-f"]).arg(upstream).arg("-C").arg(&source))?;
    step.finish("unpacked");
    Ok(source)
}

/// The downloaded archive whose name has `part`; detached signatures beside it do not count.
fn archive(dir: &Path, part: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(part) && !name.ends_with(".asc") {
            return Ok(dir.join(name));
        }
    }
    Err(anyhow::anyhow!("the source package has no `{part}*` archive")).context("unpacking the workload's source")
}

/// Names in a quilt series, comments and options left out.
fn patch_names(series: &str) -> impl Iterator<Item = &str> {
    series.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_may_have_comments_and_options() {
        let series = "10-first.patch\n# not this\n\n20-second.diff -p1 # why\n";
        assert_eq!(patch_names(series).collect::<Vec<_>>(), ["10-first.patch", "20-second.diff"]);
    }
}
