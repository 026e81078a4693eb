//! `./x refusals`: every place that asks for memory and may be refused, is refused in some test.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use image::command::output_of;

use crate::check::{self, allocations};
use crate::tree::Tree;

/// How memory is asked for: see `support/scarce`.
const ASKED: [&str; 7] =
    [".grow(", ".grow_exact(", ".reach(", "scarce::room(", "scarce::room::<", "scarce::boxed(", "segments.to_list("];
/// Packages whose tests refuse.
const PACKAGES: [&str; 2] = ["fuzz", "storage"];
/// What `scarce::testing` prints of each.
const MARK: &str = "refused: ";
/// Places in it are refused on the emulated machine, by the system test `refusals`, as far as that reaches them.
const MONITOR: &str = "monitor/";

/// A file, and a line of it.
type Site = (String, usize);

/// Runs the tests, and compares.
///
/// # Errors
/// A test fails, or nobody refuses some place.
pub fn run(tree: &Tree) -> Result<()> {
    let (of_monitor, asked): (BTreeSet<Site>, BTreeSet<Site>) =
        sites(tree)?.into_iter().partition(|(file, _)| file.starts_with(MONITOR));
    let mut cargo = tree.cargo();
    cargo.args(["test", "-q"]);
    PACKAGES.iter().for_each(|package| _ = cargo.args(["-p", package]));
    cargo.args(["refused", "--", "--nocapture"]);
    let refused: BTreeSet<Site> = output_of(&mut cargo)?.lines().filter_map(refused_site).collect();
    let missed: Vec<_> = asked.difference(&refused).map(|(file, line)| format!("{file}:{line}")).collect();
    ensure!(missed.is_empty(), "nobody refuses memory in\n  {}", missed.join("\n  "));
    println!(
        "{} places ask for memory; {} were refused it here, one by one; {} are in the monitor, where the system test `refusals` refuses whoever asks",
        asked.len() + of_monitor.len(),
        asked.len(),
        of_monitor.len()
    );
    Ok(())
}

fn refused_site(line: &str) -> Option<Site> {
    let mut parts = line.split_once(MARK)?.1.split(':');
    Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?))
}

/// Every line that asks.
fn sites(tree: &Tree) -> Result<BTreeSet<Site>> {
    let mut found = BTreeSet::new();
    let files = check::rust_files(tree)?;
    for file in files.iter().filter(|file| allocations::is_concerned(file) && !file.starts_with("support/scarce")) {
        let text =
            fs::read_to_string(tree.root().join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.to_string_lossy().into_owned();
        found.extend(asking_lines(&text).map(|line| (name.clone(), line)));
    }
    Ok(found)
}

fn asking_lines(text: &str) -> impl Iterator<Item = usize> {
    /// Lines from a function's first to the one that asks for its callers.
    const SHORT: usize = 6;
    let lines: Vec<&str> = text.lines().take_while(|line| *line != "mod tests {").collect();
    let asks = |line: &str| ASKED.iter().any(|name| line.split("//").next().is_some_and(|code| code.contains(name)));
    let is_callers =
        |at: usize| lines[at.saturating_sub(SHORT)..at].iter().any(|line| line.contains("#[track_caller]"));
    let found: Vec<_> = (0..lines.len()).filter(|at| asks(lines[*at]) && !is_callers(*at)).map(|at| at + 1).collect();
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_ask_are_found_and_lines_that_were_refused() {
        let text = "list.grow(1)?;\n// list.grow(1)\nlist.push(1);\nlet a = scarce::room::<u8>(n)?;\nmod tests {\nlist.grow(1)";
        assert_eq!(asking_lines(text).collect::<Vec<_>>(), [1, 4]);
        assert_eq!(refused_site("...refused: mech/a/src/b.rs:12:40"), Some(("mech/a/src/b.rs".to_owned(), 12)));
        assert_eq!(refused_site("test result: ok"), None);
    }
}
