//! The Debian parts of the workload guests and of the KVM host: initial file systems made of a few programs of Debian
//! packages, the libraries that they need, and one script for each.
//!
//! A guest's initial file system is a [`base`](LoadParts::base) that every workload has, followed by a part that only some
//! have: Linux takes several archives in a row as one. Everything lies in memory, because a disk of the host would not
//! be in the machine's time.
//!
//! Results are not taken on trust: a part whose result no arithmetic gives (programs that a compiler made, a database's
//! answers) is run once on a plain emulated machine when it is built, in both sizes, and what it gave is what every
//! later run must give.

mod base;
mod compile;
mod database;
mod files;
mod kvm_host;
mod nfs;
mod reference;
mod web;

pub use kvm_host::KvmHost;
pub use nfs::NfsDisk;

use std::path::PathBuf;

use anyhow::Result;

use crate::cache::Cache;
use crate::kernel::Kernel;
use crate::recipe::RecipeKey;

/// The parts of the workload guests, built.
#[derive(Clone, Debug)]
pub struct LoadParts {
    base: PathBuf,
    parts: Vec<(&'static str, PathBuf)>,
}

impl LoadParts {
    /// Finds the parts in the cache, or downloads and builds them: minutes.
    ///
    /// # Errors
    /// A download or a tool failed, or a workload did not run on the plain emulated machine.
    pub fn get_or_build(cache: &Cache, kernel: &Kernel) -> Result<Self> {
        let base = base::get_or_build(cache, kernel)?;
        let parts = vec![
            ("compile", compile::get_or_build(cache, kernel, &base)?),
            ("web", web::get_or_build(cache)?),
            ("database", database::get_or_build(cache, kernel, &base)?),
        ];
        Ok(Self { base, parts })
    }

    /// Builds only what every workload needs, if it is not in the cache: a moment, from the kernel's own packages.
    ///
    /// # Errors
    /// The disk is full.
    pub fn build_base(cache: &Cache, kernel: &Kernel) -> Result<()> {
        base::get_or_build(cache, kernel).map(drop)
    }

    /// The recipes of all archives.
    pub fn recipes() -> [RecipeKey; 4] {
        [base::recipe(), compile::recipe(), database::recipe(), web::recipe()]
    }

    /// Every archive with its name: first that which all workloads have, then those of single workloads.
    pub fn places(&self) -> Vec<(&'static str, PathBuf)> {
        [("base", self.base.clone())].into_iter().chain(self.parts.iter().cloned()).collect()
    }
}
