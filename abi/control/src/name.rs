//! Names on the wire. A value of these types is always well formed: decoding refuses the rest.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Longest [`Name`], in bytes.
pub const MAX_NAME: usize = 32;

/// Longest [`Label`], in bytes.
pub const MAX_LABEL: usize = 64;

/// The name of a machine, VM, disk or subnet: 1 to 32 of `a-z`, `0-9` and `-`, beginning and ending with a letter or
/// digit. It is safe in file names, host names and shell commands.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is not a [`Name`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// More than [`MAX_NAME`] bytes.
    #[error("a name has at most {MAX_NAME} characters, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside the alphabet.
    #[error("a name has only a-z, 0-9 and '-', not {found:?}")]
    BadCharacter {
        /// The first such character.
        found: char,
    },
    /// It begins or ends with `-`.
    #[error("a name must begin and end with a letter or digit")]
    EdgeHyphen,
}

impl Name {
    /// Checks `text` and takes it as a name.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn new(text: impl Into<String>) -> Result<Self, NameError> {
        let text = text.into();
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        let in_alphabet = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
        if let Some(found) = text.chars().find(|c| !in_alphabet(c)) {
            return Err(NameError::BadCharacter { found });
        }
        if text.len() > MAX_NAME {
            return Err(NameError::TooLong { len: text.len() });
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::EdgeHyphen);
        }
        Ok(Self(text))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a module or of a guest port: 1 to 64 of letters, digits, `.`, `_` and `-`, not beginning with `.`
/// or `-`. (`org.qemu.guest_agent.0` and `vmlinuz-6.12.48+deb13-riscv64` less its `+` are labels.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

/// Why a text is not a [`Label`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LabelError {
    /// The text is empty.
    #[error("a label must not be empty")]
    Empty,
    /// More than [`MAX_LABEL`] bytes.
    #[error("a label has at most {MAX_LABEL} characters, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside the alphabet.
    #[error("a label has only letters, digits, '.', '_' and '-', not {found:?}")]
    BadCharacter {
        /// The first such character.
        found: char,
    },
    /// It begins with `.` or `-`.
    #[error("a label must begin with a letter, a digit or '_'")]
    BadStart,
}

impl Label {
    /// Checks `text` and takes it as a label.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn new(text: impl Into<String>) -> Result<Self, LabelError> {
        let text = text.into();
        if text.is_empty() {
            return Err(LabelError::Empty);
        }
        let in_alphabet = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if let Some(found) = text.chars().find(|c| !in_alphabet(c)) {
            return Err(LabelError::BadCharacter { found });
        }
        if text.len() > MAX_LABEL {
            return Err(LabelError::TooLong { len: text.len() });
        }
        if text.starts_with(['.', '-']) {
            return Err(LabelError::BadStart);
        }
        Ok(Self(text))
    }

    /// The label as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_type {
    ($type:ty, $error:ty) => {
        impl TryFrom<String> for $type {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl core::str::FromStr for $type {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                Self::new(text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl PartialEq<str> for $type {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }
    };
}

text_type!(Name, NameError);
text_type!(Label, LabelError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_is_wrong_with_it() {
        assert_eq!(Name::new("build-1").map(String::from), Ok("build-1".into()));
        assert_eq!(Name::new(""), Err(NameError::Empty));
        assert_eq!(Name::new("Build"), Err(NameError::BadCharacter { found: 'B' }));
        assert_eq!(Name::new("a/b"), Err(NameError::BadCharacter { found: '/' }));
        assert_eq!(Name::new("-a"), Err(NameError::EdgeHyphen));
        assert_eq!(Name::new("a".repeat(33)), Err(NameError::TooLong { len: 33 }));
        assert!(Name::new("a".repeat(32)).is_ok());
    }

    #[test]
    fn a_label_cannot_climb_out_of_a_directory() {
        assert!(Label::new("org.qemu.guest_agent.0").is_ok());
        assert_eq!(Label::new(".."), Err(LabelError::BadStart));
        assert_eq!(Label::new("a/../b"), Err(LabelError::BadCharacter { found: '/' }));
    }
}
