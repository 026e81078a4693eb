//! Why an image cannot be used.

use std::io;
use std::path::PathBuf;

use efi_disk::Unbootable;
use thiserror::Error;

/// Why an image cannot be used.
#[derive(Debug, Error)]
pub enum ImageError {
    /// It is not what it should be.
    #[error("{path}: {fault}")]
    Unusable {
        /// The image.
        path: PathBuf,
        /// What is wrong.
        fault: ImageFault,
    },
    /// The host's disk is full.
    #[error(
        "{path}: no room on the host's disk for the image ({need_mib} MiB); `mirrorball image rm` and `./x clean-cache` make some"
    )]
    NoRoom {
        /// Where it should go.
        path: PathBuf,
        /// What is needed at least.
        need_mib: u64,
    },
    /// A file of the store cannot be used.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such image.
    #[error(
        "there is no image {0:?}; `mirrorball image ls` shows those that exist, `mirrorball image add FILE` adds one"
    )]
    Unknown(String),
    /// There is another one.
    #[error(
        "there is an image {0:?} already, of another file; choose another name with --name, or `mirrorball image rm {0}` first"
    )]
    Exists(String),
    /// A file's name makes no name for an image.
    #[error("{0:?} is no name for an image: letters, digits, `.`, `-` and `_`, 48 at most; choose one with --name")]
    BadName(String),
}

/// What is wrong with an image.
#[derive(Debug, Error)]
pub enum ImageFault {
    /// It cannot be read.
    #[error("{0}")]
    Io(io::Error),
    /// A kind of file that is no disk image.
    #[error("this is {0}, and no raw or qcow2 image")]
    Format(&'static str),
    /// A header that should not be believed.
    #[error("{0}")]
    Header(&'static str),
    /// It needs a key.
    #[error("this qcow2 image is encrypted, and nobody would be there to type its key")]
    Encrypted,
    /// It shows a disk of an absurd size.
    #[error("it shows a disk of {0} GiB, and at most {1} GiB are possible")]
    TooLarge(u64, u64),
    /// Data that should be in it is not.
    #[error("it is cut off or damaged: {0}")]
    Damaged(io::Error),
    /// Its disk does not boot.
    #[error(transparent)]
    Unbootable(Unbootable),
}

impl ImageFault {
    /// Whether something of it is missing.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Header(_) => true,
            Self::Unbootable(why) => {
                matches!(why, Unbootable::Truncated { .. } | Unbootable::BadSystemPartition(_) | Unbootable::BadLoader)
            }
            _ => false,
        }
    }

    /// Whether it is for another architecture.
    #[must_use]
    pub const fn is_other_architecture(&self) -> bool {
        matches!(self, Self::Unbootable(Unbootable::OtherArchitecture(_)))
    }

    /// Whether a key is needed.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted | Self::Unbootable(Unbootable::Encrypted(_)))
    }
}
