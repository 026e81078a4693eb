//! What is printed: standard output, colour, tables, numbers for people.

mod table;
pub mod units;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

pub use table::{Cell, Table};

use crate::failure::Failure;

/// When to use colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set or the terminal is dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a text means; its colour follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// A title.
    Strong,
    /// Of less weight.
    Dim,
    /// As it should be.
    Good,
    /// Worth a look.
    Notice,
    /// Wrong.
    Bad,
}

impl Tone {
    const fn sequence(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Notice => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }

    /// `text` in this tone.
    pub fn paint(self, text: &str, has_color: bool) -> String {
        if has_color && self != Self::Plain { format!("{}{text}\x1b[0m", self.sequence()) } else { text.to_owned() }
    }
}

impl ColorChoice {
    /// Whether to colour what goes to `stream`.
    pub fn applies_to(self, stream: &impl IsTerminal) -> bool {
        let is_set = |variable| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                stream.is_terminal()
                    && !is_set("NO_COLOR")
                    && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
            }
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub struct Output {
    has_color: bool,
}

impl Output {
    pub fn new(choice: ColorChoice) -> Self {
        Self { has_color: choice.applies_to(&io::stdout()) }
    }

    pub const fn has_color(&self) -> bool {
        self.has_color
    }

    /// Prints a line. Unlike `println!` it reports a closed pipe instead of panicking.
    pub fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{}", text.as_ref()).and_then(|()| stdout.flush()).map_err(Failure::Output)
    }

    /// Prints a title over what follows.
    pub fn title(&self, text: &str) -> Result<(), Failure> {
        self.line(Tone::Strong.paint(text, self.has_color))
    }

    /// Prints a table; nothing if it has no rows.
    pub fn table(&self, table: &Table) -> Result<(), Failure> {
        if table.is_empty() { Ok(()) } else { self.line(table.render(self.has_color).trim_end_matches('\n')) }
    }

    /// Prints bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)
    }

    /// Prints indented JSON.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?)
    }

    /// Prints JSON on one line.
    pub fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string(value).map_err(|error| Failure::Output(error.into()))?)
    }
}

/// Text from a guest or a file, safe to print on a terminal: control characters become `?`.
pub fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The last line in `bytes` that says something, without control sequences.
pub fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.split(['\n', '\r']).rev();
    lines.map(|line| strip_sequences(line).trim().to_owned()).find(|line| !line.is_empty())
}

/// Removes terminal control sequences and control characters.
pub fn strip_sequences(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\x1b' && rest.next_if_eq(&'[').is_some() {
            // ECMA-48 "CSI": parameters and intermediates, then one byte of 0x40..=0x7e.
            while rest.next_if(|c| !('\x40'..='\x7e').contains(c)).is_some() {}
            rest.next();
        } else if !c.is_control() {
            clean.push(c);
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_found_and_cleaned() {
        assert_eq!(last_line(b"one\r\n\x1b[32m[ OK ]\x1b[0m two\x07\r\n\r\n"), Some("[ OK ] two".to_owned()));
        assert_eq!(last_line(b"\x1b[2J \n"), None);
        assert_eq!(last_line(b"a\rb"), Some("b".to_owned()));
        assert_eq!(last_line(b"x\x1b["), Some("x".to_owned()));
    }

    #[test]
    fn guests_cannot_control_the_terminal() {
        assert_eq!(harmless("a\x1b[31mb\n"), "a?[31mb?");
    }

    #[test]
    fn tones_need_colour() {
        assert_eq!(Tone::Bad.paint("x", false), "x");
        assert_eq!(Tone::Bad.paint("x", true), "\x1b[31mx\x1b[0m");
        assert_eq!(Tone::Plain.paint("x", true), "x");
    }
}
