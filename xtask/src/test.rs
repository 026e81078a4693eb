//! The tests, cheapest first.

use anyhow::Result;
use image::command::run_shown;

use crate::tree::{SYSTEM_TESTS, Tree};
use crate::{build, build_images, check, setup};

/// Runs the checks and host tests and, unless `fast`, everything that needs the emulated machine.
///
/// # Errors
/// The first check or test run that fails.
pub fn run(tree: &Tree, fast: bool) -> Result<()> {
    setup::rust_target()?;
    check::all(tree)?;
    on_host(tree)?;
    if fast {
        return Ok(());
    }
    setup::machine(tree)?;
    on_emulated_machine(tree)
}

fn on_host(tree: &Tree) -> Result<()> {
    let mut cargo = tree.cargo();
    cargo.args(["test", "--workspace"]);
    for package in tree.bare_packages()?.iter().map(String::as_str).chain(has_system_tests(tree)?) {
        cargo.args(["--exclude", package]);
    }
    run_shown(&mut cargo)
}

/// The system tests find the monitor where `build` puts it and the guests in the cache.
fn on_emulated_machine(tree: &Tree) -> Result<()> {
    build::bare_metal(tree)?;
    build_images(tree)?;
    if let Some(package) = has_system_tests(tree)? {
        // One at a time: each starts an emulated machine that uses every core there is.
        run_shown(tree.cargo().args(["test", "-p", package, "--", "--test-threads=1"]))?;
    }
    Ok(())
}

fn has_system_tests(tree: &Tree) -> Result<Option<&'static str>> {
    let present = tree.packages()?.iter().any(|package| package.name == SYSTEM_TESTS);
    Ok(present.then_some(SYSTEM_TESTS))
}
