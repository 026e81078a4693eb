//! How large files have grown. Only a report: a long file is a question to its author, not an error.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Lines, tests not counted, from which a file should be split.
const LONG: usize = 500;

/// Prints the files that are longer than they should be.
///
/// # Errors
/// A file cannot be read.
pub fn report(root: &Path, files: &[PathBuf]) -> Result<()> {
    let mut lengths = Vec::new();
    for file in files {
        lengths.push((code_lines(&fs::read_to_string(root.join(file))?), file));
    }
    lengths.sort();
    let median = lengths.get(lengths.len() / 2).map_or(0, |(lines, _)| *lines);
    println!("{} Rust files, median {median} lines without tests", lengths.len());
    for (lines, file) in lengths.iter().rev().take_while(|(lines, _)| *lines > LONG) {
        println!("  long: {} has {lines} lines (aim under 300, split at {LONG})", file.display());
    }
    Ok(())
}

/// Lines before the unit tests at the end of a file.
fn code_lines(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_count() {
        assert_eq!(code_lines("fn f() {}\n\n#[cfg(test)]\nmod tests {}\n"), 2);
    }
}
