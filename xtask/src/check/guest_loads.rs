//! Loads through a guest's translations are made in one place, which is inside the VM while it loads (`docs/shootdowns.md`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The functions that load so.
const LOADS: [&str; 2] = ["fetch_guest_u16", "load_guest_u32"];
/// Where they are, and the only place that may name them.
const DEFINED: &str = "arch/rv/src/guarded.rs";
const USED: &str = "monitor/src/vcpu/guest_loads.rs";

/// Every use elsewhere, as a message.
///
/// # Errors
/// A file cannot be read, or the two places do not name the functions: then this check looks for the wrong ones.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut places = 0;
    for file in files.iter().filter(|file| !file.starts_with("xtask")) {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        if [DEFINED, USED].iter().any(|place| file == Path::new(place)) {
            ensure!(LOADS.iter().all(|name| names(&text, name)), "{} does not name {LOADS:?}", file.display());
            places += 1;
        } else {
            let used = LOADS.iter().filter(|name| names(&text, name));
            broken.extend(used.map(|name| format!("{}: only {USED} may use {name}", file.display())));
        }
    }
    ensure!(places == 2, "{DEFINED} or {USED} is missing");
    Ok(broken)
}

/// Whether `name` stands in the code; comments do not count.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut code = text.lines().filter_map(|line| line.split("//").next());
    code.any(|line| line.split(|c| !is_word(c)).any(|word| word == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_are_seen_and_comments_are_not() {
        assert!(names("let low = guarded::fetch_guest_u16(pc)?;", "fetch_guest_u16"));
        assert!(names("use rv::guarded::{self, load_guest_u32};", "load_guest_u32"));
        assert!(!names("// fetch_guest_u16 is for others\nfn prefetch_guest_u16() {}", "fetch_guest_u16"));
    }
}
