//! What can go wrong.

use std::path::PathBuf;

use thiserror::Error;

/// Why a workload cannot be run, or did not run.
#[derive(Debug, Error)]
pub enum LoadError {
    /// There is no such workload.
    #[error("there is no workload `{name}`: {}", crate::LOADS.iter().map(|load| load.name).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A file has not been built.
    #[error("cannot read {}: {error}; `{maker}` makes it", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The command that makes it.
        maker: &'static str,
        /// What the system said.
        error: std::io::Error,
    },
    /// A value that would change the meaning of a command line.
    #[error("the guests' command line has a quotation mark: {line}")]
    Quoted {
        /// The command line.
        line: String,
    },
    /// The guest says that the workload failed.
    #[error("the workload failed: {reason}; its last lines:\n{tail}")]
    Failed {
        /// What the guest says.
        reason: String,
        /// The end of its console.
        tail: String,
    },
    /// The guest ended without a word about the workload.
    #[error("the guest says nothing of workload `{name}`; its last lines:\n{tail}")]
    Silent {
        /// The workload.
        name: &'static str,
        /// The end of its console.
        tail: String,
    },
}
