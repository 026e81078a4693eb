//! Unsafe code gives its reason: a file that uses `unsafe` opts in by itself, and a `// UNSAFETY:` comment says why this
//! file needs it at all. (That each block has its `// SAFETY:` is clippy's to check.)

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
    let opt_ins = ["#![expect(unsafe_code", "#![allow(unsafe_code"];
    let opts_in = text.lines().any(|line| opt_ins.iter().any(|opt_in| line.starts_with(opt_in)));
    if !uses_unsafe(text) && !opts_in {
        return None;
    }
    if !opts_in {
        return Some("uses `unsafe` without `#![expect(unsafe_code)]` at the top of the file");
    }
    let explained = text.lines().any(|line| line.trim_start().starts_with("// UNSAFETY:"));
    (!explained).then_some("opts in to unsafe code without a `// UNSAFETY:` comment that says why")
}

/// Whether the keyword stands in code; comments and text in quotes on one line do not count.
fn uses_unsafe(text: &str) -> bool {
    text.lines().any(|line| {
        let code = without_strings(line.split("//").next().unwrap_or_default());
        code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
    })
}

fn without_strings(line: &str) -> String {
    line.split('"').step_by(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_files_need_nothing() {
        assert_eq!(refuse("#![forbid(unsafe_code)]\nfn f() {} // unsafe is a word here\n"), None);
        assert_eq!(refuse("const S: &str = \"unsafe\";\n"), None);
    }

    #[test]
    fn unsafe_needs_both_the_opt_in_and_the_reason() {
        let code = "fn f() { unsafe { g() } }\n";
        assert!(refuse(code).is_some());
        assert!(refuse(&format!("#![expect(unsafe_code)]\n{code}")).is_some());
        assert_eq!(refuse(&format!("// UNSAFETY: registers\n#![expect(unsafe_code)]\n{code}")), None);
        assert_eq!(refuse(&format!("// UNSAFETY: registers\n#![allow(unsafe_code, reason = \"x\")]\n{code}")), None);
    }
}
