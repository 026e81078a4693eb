//! The tests, cheapest first.

use anyhow::{Result, ensure};
use image::command::run_shown;

use crate::tree::{FIRMWARE, SYSTEM_TESTS, Tree};
use crate::{build, build_images, build_small_loads, check, setup};

/// Runs the checks and host tests and, unless `fast`, everything that needs the emulated machine. What fails does not keep
/// the rest from running: one run shows all that is wrong.
///
/// # Errors
/// Everything that failed.
pub fn run(tree: &Tree, fast: bool) -> Result<()> {
    setup::rust_target()?;
    let mut failures = Vec::new();
    let mut stage = |name: &str, result: Result<()>| {
        if let Err(error) = result {
            eprintln!("x: {name} failed: {error:#}");
            failures.push(name.to_owned());
        }
    };
    stage("check", check::all(tree));
    stage("host tests", on_host(tree));
    if !fast {
        stage("tests on the emulated machine", setup::machine(tree).and_then(|()| on_emulated_machine(tree)));
    }
    ensure!(failures.is_empty(), "failed: {}", failures.join(", "));
    Ok(())
}

fn on_host(tree: &Tree) -> Result<()> {
    let mut cargo = tree.cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]);
    // The firmware's library is tested on the host, like everything that can be.
    let bare = tree.bare_packages()?.into_iter().filter(|package| package != FIRMWARE);
    for package in bare.collect::<Vec<_>>().iter().map(String::as_str).chain(has_system_tests(tree)?) {
        cargo.args(["--exclude", package]);
    }
    run_shown(&mut cargo)
}

/// The system tests find the monitor where `build` puts it and the guests in the cache.
fn on_emulated_machine(tree: &Tree) -> Result<()> {
    build::machine_programs(tree)?;
    build_small_loads(&build_images(tree)?.kernel)?;
    if let Some(package) = has_system_tests(tree)? {
        // One at a time: each starts an emulated machine that uses every core there is.
        run_shown(tree.cargo().args(["test", "-p", package, "--no-fail-fast", "--", "--test-threads=1"]))?;
    }
    Ok(())
}

fn has_system_tests(tree: &Tree) -> Result<Option<&'static str>> {
    let present = tree.packages()?.iter().any(|package| package.name == SYSTEM_TESTS);
    Ok(present.then_some(SYSTEM_TESTS))
}
