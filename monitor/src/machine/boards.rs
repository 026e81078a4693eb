//! The boards on which the cells of this machine show words to each other, and how they are read: the crate `cell` on real memory.
//!
//! Boot gives each cell a board in its own memory and tells all cells where all boards are. A machine of one cell has none.

use super::{cell, direct, failures};
use ::cell::{
    CellId, CellSet, Port, Unreadable, View,
    board::{self, CELLS},
};
use addr::{BASE_PAGE, MachineAddr};
use core::sync::atomic::{self, AtomicBool, Ordering};
use spin::Once;

/// Bytes of a board.
pub const BYTES: u64 = (board::WORDS * size_of::<u64>()) as u64;
const _: () = assert!(BYTES.is_multiple_of(BASE_PAGE), "boards fill pages");
/// Bytes of the notice behind the first cell's board: what the other cells read when they begin.
pub const NOTICE_BYTES: u64 = 16 << 10;

/// Where each cell's board is; `None` for cells that there are not, or that could not be prepared.
pub type Places = [Option<MachineAddr>; CELLS];

static PLACES: Once<Places> = Once::new();
/// The first cell has begun to start the others: from here on they live without it.
static OTHERS_BEGIN: AtomicBool = AtomicBool::new(false);

/// Boot tells where the boards are.
pub fn install(places: Places) {
    PLACES.call_once(|| places);
}

/// The first cell starts the others.
pub fn note_others_begin() {
    OTHERS_BEGIN.store(true, Ordering::SeqCst);
}

/// This cell, and the view that all cells begin with; `None` where there is nobody to talk to.
#[must_use]
pub fn first_view() -> Option<(CellId, View)> {
    let me = own()?;
    let places = PLACES.get()?;
    let members = CellId::all().filter(|cell| places[cell.index()].is_some());
    let members = members.fold(CellSet::EMPTY, CellSet::with);
    (members.count() > 1 && members.contains(me)).then_some((me, View { epoch: 0, members }))
}

fn own() -> Option<CellId> {
    CellId::new(cell::index())
}

fn place(cell: CellId) -> Option<MachineAddr> {
    PLACES.get()?[cell.index()]
}

/// Where the first cell's notice is; `None` where there are no boards.
fn notice() -> Option<MachineAddr> {
    place(CellId::FIRST).map(|board| MachineAddr::new(board.raw() + BYTES))
}

/// The first cell leaves a notice for the others, before they begin. `false`: it is too long, or there is nowhere to put it.
pub fn leave_notice(bytes: &[u8]) -> bool {
    let Some(place) = notice().filter(|_| bytes.len() as u64 <= NOTICE_BYTES - 8) else { return false };
    direct::write_bytes(MachineAddr::new(place.raw() + 8), bytes);
    direct::write_u64(place, bytes.len() as u64);
    true
}

/// Reads the first cell's notice into `buf`; `None` if that cell is gone, or the notice is longer than the buffer.
pub fn read_notice(buf: &mut [u8]) -> Option<&[u8]> {
    let place = notice()?;
    let len = usize::try_from(direct::try_read_u64(place)?).ok()?;
    let bytes = buf.get_mut(..len)?;
    direct::try_read_bytes(MachineAddr::new(place.raw() + 8), bytes)?;
    Some(bytes)
}

/// The boards. Writes go to the own one, so only the control hart has a port, and whoever dies.
#[derive(Debug)]
pub struct Boards;

impl Boards {
    fn address(cell: CellId, word: usize) -> Option<MachineAddr> {
        place(cell).filter(|_| word < board::WORDS).map(|board| MachineAddr::new(board.raw() + 8 * word as u64))
    }
}

// The order that a port promises is kept by a full fence before each access: each pair of them has one in between.
impl Port for Boards {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        let address = Self::address(cell, word).ok_or(Unreadable::Dead)?;
        atomic::fence(Ordering::SeqCst);
        direct::try_read_u64(address).ok_or_else(|| {
            let is_cut = own().is_some_and(|own| failures::cut_from(own).contains(cell));
            if is_cut { Unreadable::Cut } else { Unreadable::Dead }
        })
    }

    fn cut_from(&mut self, cell: CellId) -> CellSet {
        failures::cut_from(cell)
    }

    fn write(&mut self, word: usize, value: u64) {
        if let Some(address) = own().and_then(|own| Self::address(own, word)) {
            atomic::fence(Ordering::SeqCst);
            direct::write_u64(address, value);
        }
    }

    fn ring(&mut self, cell: CellId) {
        if let Some(hart) = cell::facts(cell.index()).and_then(|facts| facts.harts.first()) {
            atomic::fence(Ordering::SeqCst);
            rv::sbi::send_ipi(hart.0);
        }
    }
}

/// Says on the own board that this cell stops, and rings the others. Whether nobody goes on after it: then the machine may end.
pub fn stop() -> bool {
    let Some((me, view)) = first_view() else { return cell::is_first() };
    ::cell::stop(&mut Boards);
    if cell::is_first() && !OTHERS_BEGIN.load(Ordering::SeqCst) {
        return true;
    }
    let others = || view.members.iter().filter(|cell| *cell != me);
    others().for_each(|cell| Boards.ring(cell));
    // Who is out of reach may go on. Of two cells that stop at the same time one sees that the other does.
    others().all(|cell| matches!(::cell::has_stopped(&mut Boards, cell), Ok(true) | Err(Unreadable::Dead)))
}
