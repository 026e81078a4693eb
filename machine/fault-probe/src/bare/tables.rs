//! Translation: everything at its own address, but the program itself at its linked address in each node's copy. Guests
//! translate by the same tables, behind a G-stage that changes nothing.
//
// UNSAFETY: page tables are written through their machine address before anybody translates by them.
#![expect(unsafe_code)]

use core::cell::UnsafeCell;

use super::machine::NodeMemory;

/// The program's large page.
pub const IMAGE: u64 = 0x8020_0000;
const LARGE: u64 = 2 << 20;
const GIGABYTE: u64 = 1 << 30;
const SV39: u64 = 8 << 60;

/// Valid, readable, writable, executable, accessed, dirty; the G-stage's leaves are also a user's.
const LEAF: u64 = 0xcf;
const USER: u64 = 1 << 4;

#[repr(C, align(16384))]
struct Tables {
    /// G-stage root: four pages.
    guest: [u64; 2048],
    root: [u64; 512],
    /// The gigabyte with the program in it.
    image: [u64; 512],
}

#[repr(transparent)]
struct Place(UnsafeCell<Tables>);

// SAFETY: only the first hart writes tables, before the other harts run.
unsafe impl Sync for Place {}

static TABLES: Place = Place(UnsafeCell::new(Tables { guest: [0; 2048], root: [0; 512], image: [0; 512] }));

/// The machine address of a thing of this program in a node's copy.
pub fn in_copy<T>(thing: *const T, memory: NodeMemory) -> u64 {
    thing as u64 - IMAGE + memory.copy()
}

/// Makes the tables of a node, in its copy, where translation is still off.
pub fn build(memory: NodeMemory) {
    let at = in_copy(TABLES.0.get(), memory);
    // SAFETY: (1) the copy is memory of the node that nobody else uses; (2) the first hart is alone.
    let tables = unsafe { &mut *(at as *mut Tables) };
    for (index, entry) in (0_u64..).zip(&mut tables.guest) {
        *entry = (index * GIGABYTE) >> 2 | LEAF | USER;
    }
    for (index, entry) in (0_u64..).zip(tables.root.iter_mut().take(256)) {
        *entry = (index * GIGABYTE) >> 2 | LEAF;
    }
    let image = IMAGE / GIGABYTE * GIGABYTE;
    for (index, entry) in (0_u64..).zip(&mut tables.image) {
        let target = image + index * LARGE;
        *entry = (if target == IMAGE { memory.copy() } else { target }) >> 2 | LEAF;
    }
    tables.root[(IMAGE / GIGABYTE) as usize] = (&raw const tables.image) as u64 >> 2 | 1;
}

/// `satp` (and `vsatp`) and `hgatp` of a node.
pub fn registers(memory: NodeMemory) -> (u64, u64) {
    let tables = in_copy(TABLES.0.get(), memory);
    let root = tables + core::mem::offset_of!(Tables, root) as u64;
    (SV39 | root >> 12, SV39 | tables >> 12)
}
