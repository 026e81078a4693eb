//! Guests that experiments make themselves.

mod compile;

use image::Archive;

use crate::plan::{Content, Size};
use crate::run::Scratch;
use crate::{LabError, artifacts};

/// The workload guest as `/init`, with a compiler where the cache has one: the first phases of `overhead`.
///
/// # Errors
/// [`LabError`] if the guest has not been built. Without a compiler the phase `compile` is missing.
pub fn operations(scratch: &Scratch) -> Result<Content, LabError> {
    let program = artifacts::built("MIRRORBALL_WORKLOAD", "workload")?;
    let content = std::fs::read(&program).map_err(LabError::io(program.display().to_string()))?;
    let mut archive = Archive::new();
    archive.directory("dev").character_device("dev/console", 5, 1).file("init", 0o755, &content);
    let no_compiler = compile::add_to(&mut archive, scratch.path(), scratch.size == Size::Quick).err();
    let without = no_compiler.map(|why| ("compile", why)).into_iter().collect();
    Ok(Content { bytes: archive.finish(), without })
}
