//! What the firmware adds to the device tree before it hands it on: its own memory is reserved, the status page described,
//! and controllers of M-mode are not offered.

use dtoolkit::fdt::Fdt;
use dtoolkit::fdt_mut::FdtMut;
use faults::{COMPATIBLE, FIRMWARE_AT, FIRMWARE_BYTES, PAGE_BYTES, STATUS_AT};

use crate::hardware::{is_compatible, is_machine_level, live_part, property};

/// Fields of the header, which is big-endian.
const TOTAL_SIZE: usize = 4;
const STRUCT_OFFSET: usize = 8;
const STRINGS_OFFSET: usize = 12;
const STRUCT_SIZE: usize = 36;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const END: u32 = 9;

/// Device nodes that one pass disables.
const MAX_DISABLED: usize = 32;

/// Why a tree cannot be fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixupError {
    /// It is no device tree, or one that is laid out as nobody does.
    NotATree,
    /// There is not enough room behind it.
    NoRoom,
    /// Something has reserved memory already: the firmware is meant to be the first.
    ReservedAlready,
}

/// Changes the tree at the beginning of `room`, which may grow to all of it.
///
/// # Errors
/// The tree is not one of QEMU's, or does not fit.
pub fn fix_up(room: &mut [u8]) -> Result<(), FixupError> {
    let tree = Fdt::new(live_part(room).ok_or(FixupError::NotATree)?).map_err(|_| FixupError::NotATree)?;
    if tree.find_node("/reserved-memory").is_some() {
        return Err(FixupError::ReservedAlready);
    }
    let names = [["reserved-memory", "firmware@80000000"], ["fault-node@801fe000", ""]];
    names.iter().try_for_each(|names| insert_nodes(room, names))?;
    let mut tree = FdtMut::from_slice(room).map_err(|_| FixupError::NotATree)?;
    let pairs = |a: u64, b: u64| -> [u8; 16] {
        let mut cells = [0; 16];
        cells[..8].copy_from_slice(&a.to_be_bytes());
        cells[8..].copy_from_slice(&b.to_be_bytes());
        cells
    };
    let two = 2_u32.to_be_bytes();
    add(&mut tree, "/reserved-memory", "#address-cells", &two)?;
    add(&mut tree, "/reserved-memory", "#size-cells", &two)?;
    add(&mut tree, "/reserved-memory", "ranges", &[])?;
    let own = "/reserved-memory/firmware@80000000";
    add(&mut tree, own, "reg", &pairs(FIRMWARE_AT, FIRMWARE_BYTES))?;
    add(&mut tree, own, "no-map", &[])?;
    let status = "/fault-node@801fe000";
    add(&mut tree, status, "reg", &pairs(STATUS_AT, PAGE_BYTES))?;
    let mut compatible = [0; COMPATIBLE.len() + 1];
    compatible[..COMPATIBLE.len()].copy_from_slice(COMPATIBLE.as_bytes());
    add(&mut tree, status, "compatible", &compatible)?;
    disable_machine_level(&mut tree)
}

type Tree<'a> = FdtMut<dtoolkit::fdt_mut::SliceBuffer<'a>>;

fn add(tree: &mut Tree<'_>, path: &str, name: &str, value: &[u8]) -> Result<(), FixupError> {
    let mut node = tree.find_node_mut(path).ok_or(FixupError::NotATree)?;
    node.add_property(name, value).map(drop).map_err(|_| FixupError::NoRoom)
}

/// An operating system must not drive the APLIC domains and interrupt files of M-mode, and a PLIC's contexts of M-mode are
/// nobody's.
fn disable_machine_level(tree: &mut Tree<'_>) -> Result<(), FixupError> {
    for index in 0..MAX_DISABLED {
        let Some(mut soc) = tree.find_node_mut("/soc") else { return Ok(()) };
        let mut devices = soc.children_mut();
        let mut position = 0;
        while let Some(mut device) = devices.next() {
            if position == index {
                let view = device.as_read_only();
                let is_file = is_compatible(&view, "riscv,imsics") && is_machine_level(&view);
                let is_domain = is_compatible(&view, "riscv,aplic") && property(&view, "riscv,children").is_some();
                let is_plic = is_compatible(&view, "riscv,plic0");
                if (is_file || is_domain) && property(&view, "status").is_none() {
                    device.add_property("status", *b"disabled\0").map_err(|_| FixupError::NoRoom)?;
                } else if is_plic && let Some(mut list) = device.property_mut("interrupts-extended") {
                    let old = list.as_read_only();
                    let mut cells = arrayvec::ArrayVec::<u8, { 64 * 16 }>::new();
                    cells.try_extend_from_slice(dtoolkit::Property::value(&old)).map_err(|_| FixupError::NoRoom)?;
                    for pair in cells.chunks_exact_mut(8).filter(|pair| pair[4..] == 11_u32.to_be_bytes()) {
                        pair[4..].copy_from_slice(&u32::MAX.to_be_bytes());
                    }
                    list.set_value(&cells[..]).map_err(|_| FixupError::NoRoom)?;
                }
                break;
            }
            position += 1;
        }
        if position < index {
            return Ok(());
        }
    }
    Ok(())
}

/// Puts empty nodes, each within the one before it, behind all children of the root; an empty name ends the list.
fn insert_nodes(room: &mut [u8], names: &[&str]) -> Result<(), FixupError> {
    let read = |at| field(room, at).ok_or(FixupError::NotATree);
    let (total, begin, size, strings) =
        (read(TOTAL_SIZE)?, read(STRUCT_OFFSET)?, read(STRUCT_SIZE)?, read(STRINGS_OFFSET)?);
    let end = begin.checked_add(size).filter(|end| *end <= total && size >= 16).ok_or(FixupError::NotATree)?;
    // The tree ends with the root's end and its own.
    let at = end - 8;
    let is_end = field(room, at) == Some(END_NODE as usize) && field(room, at + 4) == Some(END as usize);
    if !is_end || strings < end {
        return Err(FixupError::NotATree);
    }
    let names = || names.iter().take_while(|name| !name.is_empty());
    let padded = |name: &str| (name.len() + 1).next_multiple_of(4);
    let grow: usize = names().map(|name| 8 + padded(name)).sum();
    if total + grow > room.len() {
        return Err(FixupError::NoRoom);
    }
    room.copy_within(at..total, at + grow);
    let mut next = at;
    for name in names() {
        put(room, next, BEGIN_NODE);
        room[next + 4..next + 4 + padded(name)].fill(0);
        room[next + 4..next + 4 + name.len()].copy_from_slice(name.as_bytes());
        next += 4 + padded(name);
    }
    for _ in names() {
        put(room, next, END_NODE);
        next += 4;
    }
    for (header, value) in [(TOTAL_SIZE, total), (STRUCT_SIZE, size), (STRINGS_OFFSET, strings)] {
        let value = u32::try_from(value + grow).map_err(|_| FixupError::NoRoom)?;
        put(room, header, value);
    }
    Ok(())
}

fn field(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.get(..4)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(word)).ok()
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
