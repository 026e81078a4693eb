//! Unsafe code gives its reason. A file that is about unsafe things opts in as a whole, and a `// UNSAFETY:` comment says why
//! it needs to; elsewhere a single item opts in, and its `// SAFETY:` (which clippy asks for) is the reason.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Every file that breaks the rule, as a message.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        broken.extend(refuse(&text).map(|reason| format!("{}: {reason}", file.display())));
    }
    Ok(broken)
}

fn refuse(text: &str) -> Option<&'static str> {
    let has = |starts: [&str; 2]| {
        text.lines().map(str::trim_start).any(|line| starts.iter().any(|start| line.starts_with(start)))
    };
    let whole_file = has(["#![expect(unsafe_code", "#![allow(unsafe_code"]);
    let one_item = has(["#[expect(unsafe_code", "#[allow(unsafe_code"]);
    if whole_file && !text.lines().any(|line| line.trim_start().starts_with("// UNSAFETY:")) {
        return Some("opts in to unsafe code as a whole without a `// UNSAFETY:` comment that says why");
    }
    let is_silent = !whole_file && !one_item && uses_unsafe(text);
    is_silent.then_some("uses `unsafe` without opting in by `#[expect(unsafe_code)]`")
}

/// Whether the keyword stands in code; comments and text in quotes do not count.
fn uses_unsafe(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().any(|line| code_of(line).split(|c| !is_word(c)).any(|word| word == "unsafe"))
}

/// A line without its strings and comment. Strings of several lines are not followed: house style has none with code in
/// them.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => skip_string(&mut chars),
            '/' if chars.peek() == Some(&'/') => break,
            _ => code.push(c),
        }
    }
    code
}

fn skip_string(chars: &mut impl Iterator<Item = char>) {
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '"' => break,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_files_need_nothing() {
        assert_eq!(refuse("#![forbid(unsafe_code)]\nfn f() {} // unsafe is a word here\n"), None);
        assert_eq!(refuse("const S: &str = \"unsafe \\\" unsafe\"; // \"\n"), None);
    }

    #[test]
    fn unsafe_needs_an_opt_in() {
        let code = "fn f() { unsafe { g() } }\n";
        assert!(refuse(code).is_some());
        assert_eq!(refuse(&format!("#[expect(unsafe_code)]\n{code}")), None);
        assert!(refuse("const S: &str = \"x\"; unsafe fn g() {}\n").is_some());
    }

    #[test]
    fn a_whole_file_needs_the_reason_too() {
        let code = "fn f() { unsafe { g() } }\n";
        assert!(refuse(&format!("#![expect(unsafe_code)]\n{code}")).is_some());
        assert_eq!(refuse(&format!("// UNSAFETY: registers\n#![expect(unsafe_code)]\n{code}")), None);
        assert_eq!(refuse(&format!("// UNSAFETY: registers\n#![allow(unsafe_code, reason = \"x\")]\n{code}")), None);
    }
}
