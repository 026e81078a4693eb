//! The key that leaves a console.

use std::fmt;
use std::str::FromStr;

/// The key that leaves a console: a control character, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapeKey(Option<u8>);

/// Looks for the escape key in what is typed.
#[derive(Debug)]
pub struct EscapeFilter {
    key: EscapeKey,
    is_detached: bool,
}

/// What to do with typed bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Typed<'a> {
    /// For the guest.
    pub forward: &'a [u8],
    /// Whether the user wants to leave then.
    pub detach: bool,
}

impl Default for EscapeKey {
    /// Ctrl-], as in telnet and virsh.
    fn default() -> Self {
        Self(Some(0x1d))
    }
}

impl FromStr for EscapeKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        match text.strip_prefix('^').map(str::as_bytes) {
            // The control character of `X` is `X` with bit 6 cleared; `^@` would be NUL, `^?` is DEL.
            Some([key]) if matches!(key.to_ascii_uppercase(), b'A'..=b'_') => {
                Ok(Self(Some(key.to_ascii_uppercase() & 0x1f)))
            }
            _ => Err("give a control key as ^], or `none`".to_owned()),
        }
    }
}

impl fmt::Display for EscapeKey {
    /// As people say it: `Ctrl-]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(key) => write!(f, "Ctrl-{}", char::from(key | 0x40)),
            None => f.write_str("none"),
        }
    }
}

impl EscapeKey {
    /// No key: all bytes are for the guest.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Whether there is such a key.
    pub const fn is_some(self) -> bool {
        self.0.is_some()
    }
}

impl EscapeFilter {
    pub const fn new(key: EscapeKey) -> Self {
        Self { key, is_detached: false }
    }

    /// Takes the next typed bytes. Those after the escape key are dropped, now and in later calls: they were meant
    /// for whatever comes after the console.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Typed<'a> {
        if self.is_detached {
            return Typed { forward: &[], detach: true };
        }
        let place = self.key.0.and_then(|key| bytes.iter().position(|byte| *byte == key));
        self.is_detached = place.is_some();
        let forward = bytes.get(..place.unwrap_or(bytes.len())).unwrap_or_default();
        Typed { forward, detach: self.is_detached }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_before_the_key_reach_the_guest() {
        let mut filter = EscapeFilter::new(EscapeKey::default());
        assert_eq!(filter.push(b"ls\r"), Typed { forward: b"ls\r", detach: false });
        assert_eq!(filter.push(b""), Typed { forward: b"", detach: false });
        assert_eq!(filter.push(b"ex\x1dit"), Typed { forward: b"ex", detach: true });
        assert_eq!(filter.push(b"more"), Typed { forward: b"", detach: true });
    }

    #[test]
    fn the_key_can_be_another_one_or_none() {
        let key: EscapeKey = "^a".parse().expect("a control key");
        assert_eq!(EscapeFilter::new(key).push(b"\x1d\x01"), Typed { forward: b"\x1d", detach: true });
        let none: EscapeKey = "none".parse().expect("no key");
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(EscapeFilter::new(none).push(&all), Typed { forward: &all, detach: false });
    }

    #[test]
    fn keys_read_and_print() {
        assert_eq!("^]".parse(), Ok(EscapeKey::default()));
        assert_eq!(EscapeKey::default().to_string(), "Ctrl-]");
        for bad in ["", "^", "a", "^ab", "^1", "^@", "^?", "]", "Ctrl-]"] {
            assert!(bad.parse::<EscapeKey>().is_err(), "{bad}");
        }
    }
}
