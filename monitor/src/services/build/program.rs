//! Programs that say themselves where they go: pieces of one module, each to its place in RAM.
//!
//! The pieces lie in the guest's memory, below its device tree, and none on another: [`VmSpec::validate`] was asked before. Only
//! here it shows whether the module has all the bytes. RAM is fresh, so what the file does not fill is zero.

use super::{loading::Plan, place_initrd, too_small};
use crate::services::modules::{self, Content};
use addr::{BASE_PAGE, GuestPhysAddr};
use control::{Boot, ControlError, Label, Segment, VmSpec};
use merging::Image;

/// Refuses pieces that take bytes that the module does not have.
///
/// # Errors
/// There is no such module, or it is too short.
pub fn check(program: &Label, segments: &[Segment]) -> Result<(), ControlError> {
    let len = modules::find(program)?.len();
    let is_there = |segment: &Segment| segment.offset.checked_add(segment.file_bytes).is_some_and(|end| end <= len);
    if segments.iter().all(is_there) {
        return Ok(());
    }
    Err(too_small(alloc::format!("module {program} has {len} bytes, and a piece of the program lies behind them")))
}

/// What others may start from, too: the beginning of the file, where it lies in memory page by page.
pub fn image(content: &Content, segments: &[Segment]) -> Option<Image> {
    let first = segments.iter().find(|segment| segment.offset == 0 && segment.address.is_multiple_of(BASE_PAGE))?;
    Some(Image {
        origin: content.origin(),
        first: GuestPhysAddr::new(first.address).gfn(),
        pages: first.file_bytes / BASE_PAGE,
    })
}

/// Adds a program's pieces and its initrd to what is loaded; where the initrd lies.
///
/// # Errors
/// A module is missing or too short, or there is no room.
pub fn plan(
    plan: &mut Plan,
    (program, segments): (&Label, &[Segment]),
    initrd: Option<&Label>,
) -> Result<Option<(u64, u64)>, ControlError> {
    check(program, segments)?;
    let content = modules::find(program)?;
    for segment in segments {
        plan.add(&content, segment.offset, segment.address, segment.file_bytes)?;
    }
    let end = segments.iter().filter_map(Segment::end).max().unwrap_or(control::RAM_START);
    let initrd = initrd.map(modules::find).transpose()?;
    initrd.map(|initrd| place_initrd(plan, &initrd, end)).transpose()
}

/// The modules that a VM boots from: the first is the program.
pub fn modules_of(spec: &VmSpec) -> (&Label, Option<&Label>) {
    match &spec.boot {
        Boot::Kernel { kernel, initrd, .. } => (kernel, initrd.as_ref()),
        Boot::Firmware { module } => (module, None),
        Boot::Program { program, initrd, .. } => (program, initrd.as_ref()),
    }
}
