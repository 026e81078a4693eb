//! SHA-256 sums in texts.

use std::fmt;
use std::path::Path;

use crate::failure::Failure;

/// Hexadecimal digits of a sum.
const DIGITS: usize = 64;

/// A SHA-256 sum, as lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum(String);

impl Checksum {
    /// The sum that is given itself, or that a file holds.
    pub fn from_reference(text: &str) -> Result<Self, Failure> {
        if let Some(sum) = Self::last_in(text).filter(|_| text.len() == DIGITS) {
            return Ok(sum);
        }
        let content = std::fs::read_to_string(text)
            .map_err(|source| Failure::File { path: Path::new(text).to_owned(), source })?;
        Self::last_in(&content)
            .ok_or_else(|| Failure::Usage(format!("{text}: no SHA-256 sum (64 hexadecimal digits) is in it")))
    }

    /// The last sum in a text.
    pub fn last_in(text: &str) -> Option<Self> {
        let words = text.rsplit(|c: char| !c.is_ascii_alphanumeric());
        let is_sum = |word: &&str| word.len() == DIGITS && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        words.into_iter().find(is_sum).map(|word| Self(word.to_ascii_lowercase()))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sum_counts() {
        let (a, b) = ("a".repeat(64), "0B".repeat(32));
        let text = format!(
            "sha256={a} x\nmirrorball-build: ok sha256={b} seconds=1.00\n{} {}z",
            "c".repeat(65),
            "d".repeat(63)
        );
        assert_eq!(Checksum::last_in(&text), Some(Checksum(b.to_lowercase())));
        assert_eq!(Checksum::last_in("nothing"), None);
        assert_eq!(Checksum::from_reference(&a).ok(), Some(Checksum(a)));
        assert!(Checksum::from_reference("/no/such/file").is_err());
    }

    #[test]
    fn a_file_may_hold_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("sum");
        let text = path.to_str().expect("a plain path");
        std::fs::write(&path, "no sum\n").expect("it can be written");
        assert_eq!(Checksum::from_reference(text).map_err(|failure| failure.status()), Err(2));
        std::fs::write(&path, format!("{}  image\n", "e".repeat(64))).expect("it can be written");
        assert_eq!(Checksum::from_reference(text).ok(), Some(Checksum("e".repeat(64))));
    }
}
