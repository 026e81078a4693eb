//! The rules of the house that the compiler does not know, and those that it does: one command for all.

pub mod allocations;
mod doc_comments;
mod floors;
mod guest_loads;
mod rooms;
mod sizes;
mod unsafe_code;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use image::command::{output_of, run_shown};

use crate::tree::{BARE_TARGET, GUEST_TARGET, SPLASHOS, Tree, WORKLOADS};

/// Runs every check.
///
/// # Errors
/// The first tool that refuses the tree, or the list of all broken rules.
pub fn all(tree: &Tree) -> Result<()> {
    let files = rust_files(tree)?;
    let mut broken = floors::check(&tree.packages()?);
    broken.extend(rooms::check(tree.root(), &files)?);
    broken.extend(unsafe_code::check(tree.root(), &files)?);
    broken.extend(guest_loads::check(tree.root(), &files)?);
    broken.extend(allocations::check(tree.root(), &files)?);
    broken.extend(doc_comments::check(tree.root(), &files)?);
    broken.extend(claims::Claims::read(tree.root())?.differences()?);
    if !broken.is_empty() {
        bail!("the rules of the house are broken:\n  {}", broken.join("\n  "));
    }
    sizes::report(tree.root(), &files)?;
    run_shown(tree.cargo().args(["fmt", "--all", "--check"]))?;
    clippy(tree)
}

/// Host packages are checked with their tests; bare-metal ones for their own target.
fn clippy(tree: &Tree) -> Result<()> {
    let bare = tree.bare_packages()?;
    let mut host = tree.cargo();
    host.args(["clippy", "-q", "--workspace", "--all-targets"]);
    for package in &bare {
        host.args(["--exclude", package]);
    }
    run_shown(host.args(["--", "-D", "warnings"]))?;
    let bare = bare.iter().map(|package| (BARE_TARGET, package.as_str()));
    // A Linux program without a C library, and programs without Linux: their guests' halves are seen for that target only.
    for (target, package) in bare.chain([(GUEST_TARGET, WORKLOADS), (GUEST_TARGET, SPLASHOS)]) {
        let mut cargo = tree.cargo();
        run_shown(cargo.args(["clippy", "-q", "--target", target, "-p", package, "--", "-D", "warnings"]))?;
    }
    Ok(())
}

/// The Rust files that git knows or would add, relative to the root.
pub fn rust_files(tree: &Tree) -> Result<Vec<PathBuf>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(tree.root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.rs"]);
    let files = output_of(&mut git)?;
    // A file may be listed and already deleted in the work tree.
    Ok(files.lines().map(PathBuf::from).filter(|file| exists(tree.root(), file)).collect())
}

fn exists(root: &Path, file: &Path) -> bool {
    root.join(file).is_file()
}
