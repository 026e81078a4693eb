//! Names of the monitor's functions, from its program as the linker made it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use thiserror::Error;

/// The text's end is a multiple of this (the monitor's linker script).
const TEXT_ALIGN: usize = 4096;

/// The functions of a program.
#[derive(Debug)]
pub struct Symbols {
    /// By address.
    functions: Vec<Function>,
    fingerprint: u64,
}

#[derive(Debug)]
struct Function {
    address: u64,
    size: u64,
    name: String,
}

/// A place in a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// The function's name.
    pub name: &'a str,
    /// How far behind its beginning, in bytes.
    pub offset: u64,
}

/// Why a program has no names.
#[derive(Debug, Error)]
pub enum SymbolsError {
    /// It cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no program with a text.
    #[error("{path} is no program that a linker made: {why}")]
    NoProgram {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Symbols {
    /// Those of a program.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn of(path: &Path) -> Result<Self, SymbolsError> {
        let bytes = fs::read(path).map_err(|source| SymbolsError::Io { path: path.to_owned(), source })?;
        Self::parse(&bytes).map_err(|why| SymbolsError::NoProgram { path: path.to_owned(), why })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
        let text = file.section_by_name(".text").ok_or("it has no text")?;
        let mut text = text.data().map_err(|error| error.to_string())?.to_vec();
        text.resize(text.len().next_multiple_of(TEXT_ALIGN), 0);
        let words = text.chunks_exact(8).map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        let fingerprint = crash::fingerprint(words);
        // Functions written in assembly have labels of no kind, and no size.
        let is_function = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
        let named = file.symbols().filter(|symbol| is_function(symbol.kind()) && !symbol.is_undefined());
        let mut functions: Vec<Function> = named.filter_map(|symbol| Function::of(&symbol)).collect();
        functions.sort_by_key(|function| (function.address, function.size));
        Ok(Self { functions, fingerprint })
    }

    /// Which build it is: as [`crash::Begin::fingerprint`].
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The function at an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<Symbol<'_>> {
        let end = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(end.checked_sub(1)?)?;
        let offset = address - function.address;
        (offset < function.size || function.size == 0).then_some(Symbol { name: &function.name, offset })
    }

    /// The function that a call in front of this return address belongs to. The address itself may be the next one's: a call that never
    /// returns ends its function.
    #[must_use]
    pub fn of_call(&self, behind: u64) -> Option<Symbol<'_>> {
        let symbol = self.at(behind.checked_sub(1)?)?;
        Some(Symbol { offset: symbol.offset + 1, ..symbol })
    }
}

impl Function {
    fn of<'a>(symbol: &impl ObjectSymbol<'a>) -> Option<Self> {
        let name = symbol.name().ok().filter(|name| !name.is_empty() && !name.starts_with(['.', '$']))?;
        // Without the hash of the build.
        let name = format!("{:#}", rustc_demangle::demangle(name));
        Some(Self { address: symbol.address(), size: symbol.size(), name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(address: u64, size: u64, name: &str) -> Function {
        Function { address, size, name: name.to_owned() }
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let functions = vec![function(16, 8, "one"), function(24, 0, "assembly"), function(40, 8, "two")];
        let symbols = Symbols { functions, fingerprint: 0 };
        let name = |address| symbols.at(address).map(|symbol| (symbol.name.to_owned(), symbol.offset));
        assert_eq!(name(15), None);
        assert_eq!(name(16), Some(("one".into(), 0)));
        assert_eq!(name(39), Some(("assembly".into(), 15)));
        assert_eq!(name(48), None);
        assert_eq!(symbols.of_call(48).map(|symbol| (symbol.name, symbol.offset)), Some(("two", 8)));
        assert_eq!(symbols.of_call(0), None);
    }

    #[test]
    fn this_program_has_names_and_others_are_refused() {
        let own = std::env::current_exe().expect("it runs");
        let symbols = Symbols::of(&own).expect("a program");
        let is_named = |function: &Function| function.name.ends_with("this_program_has_names_and_others_are_refused");
        assert!(symbols.functions.iter().any(is_named));
        assert!(Symbols::parse(b"").is_err());
        assert!(Symbols::parse(b"\x7fELF and no more").is_err());
        let whole = std::fs::read(own).expect("it can be read");
        for end in [64, 4096, whole.len() / 2] {
            // Whatever it has: no panic.
            let _ = Symbols::parse(&whole[..end]);
        }
    }
}
