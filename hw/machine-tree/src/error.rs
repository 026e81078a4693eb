//! What can be wrong with a device tree, and where.

use alloc::string::String;
use core::fmt;

use dtoolkit::error::FdtParseError;

/// A device tree that cannot be believed: which node, which property, what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeError {
    /// Path of the node; empty when the blob itself is malformed.
    pub node: String,
    /// Name of the property; empty when the node as a whole is meant.
    pub property: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a property or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The blob is not a well-formed flattened device tree.
    Malformed(FdtParseError),
    /// Nodes are nested deeper than `limit`.
    TooDeep {
        /// The deepest nesting that is followed.
        limit: usize,
    },
    /// A node or property that must be there is not.
    Missing,
    /// The value's length is not a multiple of `unit` bytes, or not long enough for what it announces.
    WrongLength {
        /// Bytes found.
        got: usize,
        /// Bytes of one whole entry.
        unit: usize,
    },
    /// The value is not NUL-terminated UTF-8 text.
    NotText,
    /// An ISA string whose base is not `rv64`.
    UnsupportedBase,
    /// A number outside its legal range.
    OutOfRange {
        /// The number found.
        value: u64,
    },
    /// A number of address or size cells that no 64-bit machine needs.
    UnsupportedCells {
        /// The number of cells found.
        cells: u32,
    },
    /// No node has this phandle.
    UnknownPhandle {
        /// The dangling phandle.
        phandle: u32,
    },
    /// The phandle leads to a node of another kind than the property needs.
    WrongTarget {
        /// The phandle.
        phandle: u32,
    },
    /// The address lies on a bus that cannot be translated to the machine's address space.
    NotTranslatable {
        /// The bus address.
        address: u64,
    },
    /// A range that wraps around the end of the address space.
    Wraps {
        /// First address.
        start: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Two things that must be distinct are the same (hart ids, memory ranges).
    Duplicate {
        /// The number that appears twice; an address for memory ranges.
        value: u64,
    },
    /// More of something than this monitor is built for.
    TooMany {
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("device tree")?;
        if !self.node.is_empty() {
            write!(f, ": {}", self.node)?;
        }
        if !self.property.is_empty() {
            write!(f, ": property {}", self.property)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "malformed blob: {why}"),
            Self::TooDeep { limit } => write!(f, "nested deeper than {limit} nodes"),
            Self::Missing => f.write_str("missing"),
            Self::WrongLength { got, unit } => write!(f, "{got} bytes where entries of {unit} bytes are expected"),
            Self::NotText => f.write_str("not NUL-terminated text"),
            Self::UnsupportedBase => f.write_str("not an rv64 instruction set"),
            Self::OutOfRange { value } => write!(f, "{value} ({value:#x}) is out of range"),
            Self::UnsupportedCells { cells } => write!(f, "{cells} cells are not supported"),
            Self::UnknownPhandle { phandle } => write!(f, "no node has phandle {phandle:#x}"),
            Self::WrongTarget { phandle } => write!(f, "phandle {phandle:#x} leads to a node of the wrong kind"),
            Self::NotTranslatable { address } => write!(f, "no bus on the way maps address {address:#x}"),
            Self::Wraps { start, bytes } => write!(f, "{bytes:#x} bytes at {start:#x} wrap around"),
            Self::Duplicate { value } => write!(f, "{value} ({value:#x}) appears twice"),
            Self::TooMany { found, limit } => write!(f, "{found} found, at most {limit} supported"),
        }
    }
}

impl core::error::Error for TreeError {}
