//! Builds what guests run, from Debian's own packages: kernel, initial file systems, root image, firmware.
//!
//! Everything is made once, kept in a cache folder outside the tree under the hash of its recipe ([`Recipe`]), and made
//! again only when the recipe changes; a build that finds all of it there uses no network. Packages come from the mirror
//! that this machine's apt is set up to use, are verified by apt, and never touch the machine's own apt state.
//!
//! Key types: [`Cache`] (the folder and its lock), [`Kernel`] (the artifacts), [`PrivateApt`] and [`Mirror`] (where
//! packages come from), [`Step`] (what the user sees meanwhile).
//!
//! It refuses to run without Debian's `apt-get` and `dpkg-deb`, to use a repository other than the Debian archive, and to
//! leave half an artifact behind.
//!
//! Locking: [`Cache::open`] holds a file lock, so two builders wait for each other.
//!
//! Tests: parsers, recipes, the archive writer and the cache on the host; the artifacts themselves are used by the tests
//! of the whole system.

#![forbid(unsafe_code)]

mod apt;
mod cache;
mod cloud;
pub mod command;
mod cpio;
mod debian;
mod emulator;
mod kernel;
mod loads;
mod modules;
mod progress;
mod recipe;
mod root;
mod sources;
mod uboot;

pub use apt::PrivateApt;
pub use cache::{Cache, Scratch};
pub use cloud::CloudImage;
pub use cpio::Archive;
pub use debian::{GUEST_ARCHITECTURE, GUEST_SUITE, codename_of_this_machine};
pub use kernel::Kernel;
pub use loads::{KvmHost, LoadParts, NfsDisk};
pub use progress::Step;
pub use recipe::{Recipe, RecipeKey};
pub use root::RootImage;
pub use sources::{Mirror, Source};
pub use uboot::UBoot;
