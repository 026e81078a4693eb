//! Memory kept back for the monitor's heap. Guests may use every page of the machine; what the monitor needs to tell them so,
//! to end one of them, or to finish what is under way must be there all the same: a heap that cannot grow ends the machine.
//!
//! While the reserve is [short](is_short), nothing begins that makes the heap grow for long: VMs are not built, guests' disks
//! find no room for blocks in new places. The control hart fills it again as soon as there is memory.
//!
//! # Locking
//! One lock, taken with the heap's held: nothing here allocates on the heap while it is.

use super::{
    HOME_NODE, agenda,
    memory::{frames, nearest},
    relief::{self, Locked, Relief},
};
use addr::{BASE_PAGE, Mfn, PAGES_PER_LARGE};
use core::sync::atomic::{AtomicBool, Ordering};
use frames::PageUse;
use rv::csr;
use spin::Mutex;

/// What is kept back.
const PAGES: u64 = 2 * PAGES_PER_LARGE;
/// Largest and smallest piece, as powers of two of pages: 2 MiB, and 128 KiB.
const MOST: u8 = 9;
const LEAST: u8 = 5;
/// Time between two attempts to fill it again.
const PAUSE_MS: u64 = 10;

/// Contiguous pages: the first, and how many as a power of two.
type Piece = (Mfn, u8);

static PIECES: Mutex<heapless::Vec<Piece, { (PAGES >> LEAST) as usize }>> = Mutex::new(heapless::Vec::new());
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Whether some of the reserve is in use. Then the machine has no memory left.
#[must_use]
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

/// Bytes kept back now.
#[must_use]
pub fn bytes() -> u64 {
    PIECES.lock().iter().map(|(_, order)| BASE_PAGE << order).sum()
}

/// Contiguous memory of at least `bytes` for the heap, and its bytes: 2 MiB where the machine has that, less where it has not,
/// and then from the reserve.
#[must_use]
pub fn take(bytes: usize) -> Option<(Mfn, usize)> {
    let least = (bytes as u64).div_ceil(BASE_PAGE).next_power_of_two().trailing_zeros() as u8;
    let (first, order) = (least..=MOST).rev().find_map(from_machine).or_else(|| from_reserve(least))?;
    Some((first, (BASE_PAGE as usize) << order))
}

fn from_machine(order: u8) -> Option<Piece> {
    let mut nodes = nearest(HOME_NODE).iter();
    let frame = nodes.find_map(|node| frames().alloc(*node, order, PageUse::Monitor { vm: None }))?;
    Some((frame.settle(), order))
}

/// The smallest piece that is large enough.
fn from_reserve(least: u8) -> Option<Piece> {
    let mut pieces = PIECES.lock();
    let fitting = pieces.iter().enumerate().filter(|(_, (_, order))| *order >= least);
    let (at, _) = fitting.min_by_key(|(_, (_, order))| *order)?;
    let piece = pieces.swap_remove(at);
    drop(pieces);
    IS_SHORT.store(true, Ordering::Relaxed);
    agenda::wake_control();
    Some(piece)
}

/// Fills it, as far as there is memory.
pub fn fill() {
    let mut pieces = PIECES.lock();
    let mut missing = PAGES.saturating_sub(pieces.iter().map(|(_, order)| 1 << order).sum());
    while missing >> LEAST > 0 {
        let most = MOST.min(missing.ilog2() as u8);
        let Some(piece) = (LEAST..=most).rev().find_map(from_machine) else { break };
        missing -= 1 << piece.1;
        // There is a place for each of the smallest.
        let _ = pieces.push(piece);
    }
    IS_SHORT.store(missing >> LEAST > 0, Ordering::Relaxed);
}

/// Fills it if it is short: what nobody needs goes first.
pub fn step() {
    if is_short() {
        fill();
        if is_short() && relief::ask(None, Locked::Nothing) == Relief::Freed {
            fill();
        }
    }
}

/// When it is to be looked at again.
#[must_use]
pub fn next_look() -> u64 {
    let pause = super::capabilities().timebase_hz * PAUSE_MS / 1_000;
    if is_short() { csr::time::read() + pause } else { u64::MAX }
}
