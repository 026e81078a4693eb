//! This cell does not drive the machine's disks: what it wants to read of them, the leader reads into its pages.
//!
//! Whoever wants to read leaves it here and calls the control hart, which asks the leader (`services/cells`). When this cell becomes the
//! leader, it does itself what has not been done by then.

use super::{Unit, access::Driver, units};
use crate::machine::{agenda, devices};
use addr::Mfn;
use arrayvec::ArrayVec;
use cell::message::{DiskRead, READ_PAGES};
use core::sync::atomic::{AtomicUsize, Ordering};
use heapless::Deque;
use spin::Mutex;
use storage::{DiskIo, IoRefused, IoToken, Piece, SECTOR};

/// Reads of one disk that are under way at a time.
const MOST: usize = 16;

/// Reads of all disks that nobody has been asked for yet: a hint for who looks.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A read, and what the shared disk calls it.
#[derive(Clone, Debug)]
pub struct RemoteRead {
    pub request: DiskRead,
    pub token: IoToken,
}

/// Reads of one disk. The lock is held for moments, below the shared disk's.
#[derive(Debug, Default)]
pub(super) struct RemoteReads(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    waiting: Deque<RemoteRead, MOST>,
    ended: Deque<(IoToken, bool), MOST>,
    /// Those and the ones that the leader has been asked for. So there is always room where one goes next.
    under_way: usize,
}

/// Whether the leader is to be asked for something.
#[must_use]
pub fn is_waiting() -> bool {
    WAITING.load(Ordering::SeqCst) > 0
}

/// The next read that the leader is to be asked for, of any disk, with the disk's number.
pub fn next_remote() -> Option<(usize, RemoteRead)> {
    if !is_waiting() {
        return None;
    }
    units().iter().enumerate().find_map(|(index, unit)| Some((index, unit.remote.next()?)))
}

/// The leader has done a read of disk `index`, well or not.
pub fn end_remote(index: usize, token: IoToken, is_ok: bool) {
    if let Some(unit) = units().get(index) {
        unit.remote.end(token, is_ok);
    }
}

/// This cell leads: it does a read itself that no leader has done.
pub fn take_back(index: usize, read: RemoteRead) {
    if let Some(unit) = units().get(index) {
        unit.remote.put_back(read);
    }
}

/// Where this cell drives the disks: begins reads that were meant for a leader before it.
pub(super) fn begin_own(index: usize, unit: &Unit) {
    if devices::all().disks.get(index).is_none() {
        return;
    }
    // Ends: as many as wait, and no more come.
    while let Some(read) = unit.remote.next() {
        let piece = |(page, sectors): (u64, u32)| Piece { addr: Mfn::new(page).addr(), bytes: sectors * SECTOR as u32 };
        let pieces: ArrayVec<Piece, READ_PAGES> = read.request.pages().map(piece).collect();
        match (Driver { index }).submit_read(read.request.sector, &pieces, read.token) {
            Ok(()) => unit.remote.forget(),
            Err(IoRefused::Busy) => return unit.remote.put_back(read),
            Err(IoRefused::Failed) => unit.remote.end(read.token, false),
        }
    }
}

impl RemoteReads {
    /// Notes that the pieces are to be read from `sector` of disk `disk` on.
    pub(super) fn begin(&self, disk: usize, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        let sectors = pieces.iter().map(|piece| piece.bytes).sum::<u32>() / SECTOR as u32;
        let pages = pieces.iter().map(|piece| piece.addr.mfn().raw());
        let disk = u16::try_from(disk).map_err(|_| IoRefused::Failed)?;
        let request = DiskRead::new(disk, sector, sectors, pages).ok_or(IoRefused::Failed)?;
        {
            let mut queues = self.0.lock();
            if queues.under_way == MOST {
                return Err(IoRefused::Busy);
            }
            queues.under_way += 1;
            queues.put_back(RemoteRead { request, token });
        }
        agenda::wake_control();
        Ok(())
    }

    /// The next one to ask the leader for.
    fn next(&self) -> Option<RemoteRead> {
        let read = self.0.lock().waiting.pop_front()?;
        WAITING.fetch_sub(1, Ordering::SeqCst);
        Some(read)
    }

    /// Nobody has done it yet: it waits again.
    fn put_back(&self, read: RemoteRead) {
        self.0.lock().put_back(read);
    }

    /// One has ended.
    fn end(&self, token: IoToken, is_ok: bool) {
        // There is room: at most so many are under way.
        let _ = self.0.lock().ended.push_back((token, is_ok));
    }

    /// The next one that has ended, and whether it went well.
    pub(super) fn next_ended(&self) -> Option<(IoToken, bool)> {
        let mut queues = self.0.lock();
        let ended = queues.ended.pop_front()?;
        queues.under_way -= 1;
        Some(ended)
    }

    /// The leader, which this cell has become, has begun one itself: it ends as its own do.
    fn forget(&self) {
        self.0.lock().under_way -= 1;
    }
}

impl Queues {
    fn put_back(&mut self, read: RemoteRead) {
        // There is room: at most so many are under way.
        if self.waiting.push_back(read).is_ok() {
            WAITING.fetch_add(1, Ordering::SeqCst);
        }
    }
}
