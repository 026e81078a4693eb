//! What can be wrong with records and pages.

use std::path::PathBuf;

use thiserror::Error;

/// Why claims cannot be read or written.
#[derive(Debug, Error)]
pub enum ClaimsError {
    /// A file or folder cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no file of records.
    #[error("{}: {source}", path.display())]
    Json {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A page has a block that cannot be filled.
    #[error("{}: {why}", path.display())]
    Block {
        /// Which page.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Two records have one name.
    #[error("two records are named {id}")]
    Twice {
        /// The name.
        id: String,
    },
    /// No folder above has records.
    #[error("{} lies in no tree with docs/results", start.display())]
    NoTree {
        /// Where the search began.
        start: PathBuf,
    },
}
