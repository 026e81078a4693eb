//! Who chose how much memory is taken: where the monitor allocates so many elements at once without a way to be refused, a comment says who
//! has bounded the number. A number that a guest, a client or a file chose goes through `scarce`, which may refuse it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folders of what runs in the monitor.
const FOLDERS: [&str; 6] = ["abi", "support", "mech", "dev", "policy", "monitor"];
/// What takes as much memory as it is told to, or panics.
const SIZED: [&str; 7] =
    ["with_capacity(", ".reserve(", ".reserve_exact(", ".resize(", ".resize_with(", ".to_vec()", ".repeat("];
/// How the reason begins, in a comment on the same line or right above the statement.
const REASON: &str = "Bounded: ";
/// What asks for memory so that nobody can refuse it in a test: `support/scarce` does it for all.
const UNSEEN: &str = ".try_reserve";
/// Where that is done.
const SCARCE: &str = "support/scarce";
/// Lines of a statement before the one that allocates, and of its comment.
const ABOVE: usize = 6;

/// Every allocation without a reason, as a message.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| is_concerned(file)) {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let at = |(line, what)| {
            format!("{}:{line}: {what} takes as much memory as it is told to; say `// {REASON}...`", file.display())
        };
        broken.extend(unjustified(&text).into_iter().map(at));
        let by_itself = |line| {
            format!(
                "{}:{line}: asks for memory by itself; `scarce` does it so that tests can refuse it",
                file.display()
            )
        };
        if !file.starts_with(SCARCE) {
            broken.extend(unseen(&text).into_iter().map(by_itself));
        }
    }
    Ok(broken)
}

/// Whether it runs in the monitor. Tests may take what they like.
#[must_use]
pub fn is_concerned(file: &Path) -> bool {
    let is_test = |part: &str| {
        let name = part.trim_end_matches(".rs");
        matches!(name, "tests" | "testing" | "build") || name.ends_with("_tests")
    };
    let mut parts = file.iter().filter_map(|part| part.to_str());
    parts.next().is_some_and(|first| FOLDERS.contains(&first)) && !parts.any(is_test)
}

/// Line and name of each allocation without a reason.
fn unjustified(text: &str) -> Vec<(usize, &'static str)> {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|line| *line == "mod tests {").unwrap_or(lines.len());
    let in_code = lines.iter().take(end).enumerate();
    let found = in_code.filter_map(|(at, line)| Some((at, sized(line.split("//").next()?)?)));
    found.filter(|(at, _)| !has_reason(&lines, *at)).map(|(at, what)| (at + 1, what)).collect()
}

/// Lines that ask without `scarce`.
fn unseen(text: &str) -> Vec<usize> {
    let in_code = text.lines().take_while(|line| *line != "mod tests {").zip(1..);
    let asks = |line: &str| line.split("//").next().is_some_and(|code| code.contains(UNSEEN));
    in_code.filter(|(line, _)| asks(line)).map(|(_, number)| number).collect()
}

/// The first thing on a line that takes so many elements, where the number is no constant.
fn sized(code: &str) -> Option<&'static str> {
    let is_variable =
        |name: &str| code.split(name).skip(1).any(|rest| !is_constant(rest.split(',').next().unwrap_or(rest)));
    let is_copy = |name: &str| name.ends_with("()") && code.contains(name);
    let named = SIZED.iter().find(|name| is_copy(name) || is_variable(name)).copied();
    let repeated = || code.split("vec![").skip(1).filter_map(|rest| rest.split_once("; "));
    let is_repeated = || repeated().any(|(of, count)| !of.contains(']') && !is_constant(count));
    named.or_else(|| is_repeated().then_some("vec![_; n]"))
}

/// Whether a number, up to the bracket behind it, is made of literals and constants alone.
fn is_constant(number: &str) -> bool {
    let mut depth = 0;
    let end = number.find(|c| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        depth < 0
    });
    let number = number.get(..end.unwrap_or(number.len())).unwrap_or(number);
    let mut words = number.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let is_type = |word: &str| matches!(word, "usize" | "u64" | "u32" | "u16" | "as" | "from" | "Self");
    let is_upper = |word: &str| !word.contains(|c: char| c.is_lowercase());
    !number.is_empty() && words.all(|word| is_type(word) || is_upper(word))
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    let first = at.saturating_sub(ABOVE);
    let Some(above) = lines.get(first..=at) else { return false };
    // Not that of the statement before.
    let is_end = |line: &&&str| line.is_empty() || line.trim_end().ends_with([';', '}']);
    let statement = above.iter().rev().skip(1).take_while(|line| !is_end(line));
    lines[at].contains(REASON)
        || statement.into_iter().any(|line| line.trim_start().starts_with("//") && line.contains(REASON))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_a_size_need_a_reason() {
        let found = |text: &str| unjustified(text);
        assert_eq!(found("let a = Vec::with_capacity(n);\n"), [(1, "with_capacity(")]);
        assert_eq!(found("f();\nlet a = alloc::vec![0; n];\n"), [(2, "vec![_; n]")]);
        assert_eq!(found("let a = vec![first, second]; a.try_reserve(n)?;\n"), []);
        assert_eq!(found("// Not with_capacity(n).\n"), []);
        assert_eq!(found("let a = Vec::with_capacity(usize::from(QUEUE_SIZE)); a.resize(2 * MOST as usize, 0);\n"), []);
        assert_eq!(found("let a = vec![0; BLOCK as usize]; a.resize(16, first);\n"), []);
        assert_eq!(found("let a = vec![None; MOST * nodes]; a.resize(16, first);\n"), [(1, "vec![_; n]")]);
        assert_eq!(found("a.resize(count(2), 0);\n"), [(1, ".resize(")]);
        assert_eq!(found("let a = vec![0; n]; // Bounded: n is one of ours.\n"), []);
        assert_eq!(found("// Bounded: one for each node.\nlet a =\n    nodes.to_vec();\n"), []);
        let second = "// Bounded: one for each node.\nlet a = nodes.to_vec();\nlet b = nodes.to_vec();\n";
        assert_eq!(found(second), [(3, ".to_vec()")]);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n    let a = nodes.to_vec();\n}\n"), []);
    }

    #[test]
    fn who_asks_by_itself_is_found() {
        assert_eq!(
            unseen("a.grow(1)?;\n// .try_reserve(1)\na.try_reserve_exact(n)?;\nmod tests {\na.try_reserve(1);\n"),
            [3]
        );
    }

    #[test]
    fn what_runs_in_the_monitor_is_looked_at() {
        let is = |file: &str| is_concerned(Path::new(file));
        assert!(is("monitor/src/boot/mod.rs") && is("mech/frames/src/plan.rs") && is("abi/control/src/frame.rs"));
        assert!(
            !is("mech/frames/src/tests.rs") && !is("mech/pmap/tests/model.rs") && !is("mech/frames/src/testing.rs")
        );
        assert!(!is("host/cli/src/main.rs") && !is("mech/tlb/src/context_tests.rs"));
    }
}
