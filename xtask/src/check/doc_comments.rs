//! A doc comment says what the name does not. A question is no description, so none ends a sentence of one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Every doc comment that asks, as a message that names file and line.
///
/// # Errors
/// A file cannot be read.
pub fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        broken.extend(questions(&text).into_iter().map(|line| {
            let place = file.display();
            format!(
                "{place}:{line}: a doc comment asks a question; state it instead: `Whether ...`, `The number of ...`"
            )
        }));
    }
    Ok(broken)
}

/// The numbers, from 1, of the lines of doc comments on which a question ends.
fn questions(text: &str) -> Vec<usize> {
    let mut reader = Reader::default();
    text.lines().zip(1..).filter(|(line, _)| reader.asks(line)).map(|(_, number)| number).collect()
}

/// What the lines before have left open.
#[derive(Default)]
struct Reader {
    is_example: bool,
    /// The backtick or quotation mark that ends what does not count.
    closing: Option<char>,
}

impl Reader {
    /// Whether a question ends on this line. Examples, code and quotations may have some.
    fn asks(&mut self, line: &str) -> bool {
        let Some(words) = doc_of(line) else {
            *self = Self::default();
            return false;
        };
        if words.is_empty() || words.starts_with("```") {
            self.is_example ^= !words.is_empty();
            self.closing = None;
            return false;
        }
        !self.is_example && self.has_question(words)
    }

    fn has_question(&mut self, words: &str) -> bool {
        let mut has_question = false;
        for (at, c) in words.char_indices() {
            match self.closing {
                Some(closing) if c == closing => self.closing = None,
                None if matches!(c, '`' | '"') => self.closing = Some(c),
                None if c == '?' => has_question |= is_end(&words[at + 1..]),
                _ => {}
            }
        }
        has_question
    }
}

/// Whether a sentence ends before these words, be it in brackets or emphasis.
fn is_end(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['?', '!', ')', ']', '*', '_']);
    rest.is_empty() || rest.starts_with(char::is_whitespace)
}

/// What a line of a doc comment says; `None` for any other line.
fn doc_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let outer = line.strip_prefix("///").filter(|words| !words.starts_with('/'));
    outer.or_else(|| line.strip_prefix("//!")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    #[test]
    fn doc_comments_do_not_ask() {
        assert_eq!(questions("//! What is this?\n\n    /// Is it\n    /// idle? Then it sleeps.\n"), [1, 4]);
        assert_eq!(questions("/// Has `flag`?\n/// Is it (still)? Why (really?)\n"), [1, 2]);
        assert_eq!(questions("/// What is **this?**\n/// Really?!\n"), [1, 2]);
    }

    #[test]
    fn statements_and_plain_comments_are_fine() {
        assert_eq!(questions("/// Whether it is idle.\nfn f() {} // is it?\n// Is it?\n//// Is it?\n"), NONE);
    }

    #[test]
    fn code_and_quotations_may_ask() {
        assert_eq!(questions("/// Controls become `?`.\n/// \"Who are you?\", or \"who\n/// is it?\"\n"), NONE);
        assert_eq!(questions("//! ```\n//! f()?\n//! ```\n//! Was it?\n"), [4]);
        assert_eq!(questions("/// Such as /path?query and f()?;\n"), NONE);
    }

    #[test]
    fn what_is_left_open_ends_with_its_paragraph() {
        assert_eq!(questions("/// A 5\" disk.\n///\n/// Is it?\n"), [3]);
        assert_eq!(questions("/// A 5\" disk.\nfn f() {}\n/// Is it?\n"), [3]);
    }
}
