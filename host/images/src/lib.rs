//! Cloud images as users have them: taken into a store once, then the base of any number of VMs.
//!
//! - [`Store`]: images by name, in the cache. What comes in is looked at (format, size, partition table, boot loader) and written out as a
//!   raw disk, so that the emulator never parses a stranger's qcow2 file.
//! - [`overlay`]: the disk of one VM, which keeps what differs from the image.
//! - [`Seed`]: the volume by which cloud-init learns who a VM is.
//!
//! # What it refuses
//! Files that are no images, that name other files, need keys, are cut off, are for another architecture, or do not fit on the host's disk:
//! each has its variant of [`ImageError`]. An image is hostile: no number in it sizes an allocation unchecked, no loop is longer than the
//! disk that it shows, and that has a limit.
//!
//! No `unsafe`, no locks: images appear in the store by one rename. Tested on images that the tests make, and damage.
#![forbid(unsafe_code)]

mod error;
mod import;
mod overlay;
mod seed;
mod store;

pub use error::{ImageError, ImageFault};
pub use overlay::overlay;
pub use seed::{HostKey, Seed};
pub use store::{Image, Store};
