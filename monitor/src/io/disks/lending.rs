//! Reads of the machine's disks for other cells. Their pages are read into by the device; this cell stores nothing there.
//!
//! What another cell reads, VMs of this one may not write for good: the first read of a disk or partition takes a read-only view of it
//! for the other cells, which lasts as long as this cell leads.

use super::{Driver, units};
use crate::machine::{agenda, devices};
use addr::Mfn;
use arrayvec::ArrayVec;
use cell::{board, message::DiskRead};
use core::sync::atomic::{AtomicUsize, Ordering};
use spin::Mutex;
use storage::{DiskIo, IoRefused, IoToken, Piece, SECTOR};

/// Most reads at a time: as many as cells can ask for.
pub const MOST: usize = board::CELLS * board::SLOTS;

/// Who has a view of what other cells read, for VMs that are refused because of it.
const HOLDER: &str = "another-cell";

#[derive(Debug)]
enum Read {
    /// The driver has no room, or this cell does not drive the disks yet.
    Waiting(DiskRead),
    Started,
    Ended(bool),
}

/// By the number that who asks has given it. Of the control hart.
static READS: Mutex<[Option<Read>; MOST]> = Mutex::new([const { None }; MOST]);

/// Reads that have ended and have not been answered: a hint for who looks.
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// Whether another cell is to be answered.
#[must_use]
pub fn has_ended() -> bool {
    ENDED.load(Ordering::SeqCst) > 0
}

/// Begins a read, which [`next_ended`] will name `number`; `None` is one that cannot go well. Its pages must be the asking cell's.
pub fn begin(number: usize, read: Option<DiskRead>) {
    if let Some(place) = READS.lock().get_mut(number) {
        match read {
            Some(read) => *place = Some(Read::Waiting(read)),
            None => end(place, false),
        }
    }
    step();
}

/// Starts what waits.
pub(super) fn step() {
    if devices::all().disks.is_empty() {
        return;
    }
    for (number, place) in READS.lock().iter_mut().enumerate() {
        let Some(Read::Waiting(read)) = place else { continue };
        match start(number, read) {
            Ok(()) => *place = Some(Read::Started),
            Err(IoRefused::Busy) => {}
            Err(IoRefused::Failed) => end(place, false),
        }
    }
}

/// One that has ended, and whether it went well.
pub fn next_ended() -> Option<(usize, bool)> {
    READS.lock().iter_mut().enumerate().find_map(|(number, place)| match *place {
        Some(Read::Ended(is_ok)) => {
            *place = None;
            ENDED.fetch_sub(1, Ordering::SeqCst);
            Some((number, is_ok))
        }
        _ => None,
    })
}

/// Whether an operation of a driver is one of these; then it has ended, `is_ok` or not.
pub(super) fn on_complete(token: IoToken, is_ok: bool) -> bool {
    let Some(number) = number_of(token) else { return false };
    if let Some(place) = READS.lock().get_mut(number).filter(|place| matches!(place, Some(Read::Started))) {
        end(place, is_ok);
    }
    true
}

fn end(place: &mut Option<Read>, is_ok: bool) {
    *place = Some(Read::Ended(is_ok));
    ENDED.fetch_add(1, Ordering::SeqCst);
    // Whoever answers looks before disks do.
    agenda::call_again();
}

/// The shared disks' tokens are keys of a slot map: their upper halves are odd. These are small numbers.
const FIRST_TOKEN: u64 = 1;

fn number_of(token: IoToken) -> Option<usize> {
    let number = usize::try_from(token.0.checked_sub(FIRST_TOKEN)?).ok()?;
    (number < MOST).then_some(number)
}

fn start(number: usize, read: &DiskRead) -> Result<(), IoRefused> {
    let index = usize::from(read.disk);
    let unit = units().get(index).ok_or(IoRefused::Failed)?;
    unit.shared.lock().claim(HOLDER, read.sector, read.sectors.into()).map_err(|_| IoRefused::Failed)?;
    let piece = |(page, sectors): (u64, u32)| Piece { addr: Mfn::new(page).addr(), bytes: sectors * SECTOR as u32 };
    let pieces: ArrayVec<Piece, { cell::message::READ_PAGES }> = read.pages().map(piece).collect();
    Driver { index }.submit_read(read.sector, &pieces, IoToken(FIRST_TOKEN + number as u64))
}
