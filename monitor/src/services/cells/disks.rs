//! Reads of the machine's disks: what this cell asks the leader for, and what others ask of it while it leads.

use crate::{
    io::disks::{
        lending,
        remote::{self, RemoteRead},
    },
    machine::{boards::Boards, cell},
};
use ::cell::{
    Calls, CellId, Errands, Ticket, View,
    board::Payload,
    message::{DiskRead, READ_PAGES},
};
use addr::{BASE_PAGE, Mfn};
use machine_tree::AddressRange;

/// Reads that the leader is asked for at a time: the cell's other calls to it need slots, too.
const MOST: usize = 2;
const _: () = assert!(READ_PAGES >= storage::MAX_OP_BLOCKS, "a call asks for any operation of a disk");

/// Both ends.
#[derive(Debug)]
pub struct Disks {
    /// This cell's reads, each with the number of its disk.
    asked: Errands<(usize, RemoteRead), MOST>,
    /// Others' reads that are under way, by the number that the disks know them by.
    tickets: [Option<Ticket>; lending::MOST],
}

impl Disks {
    pub fn new() -> Self {
        Self { asked: Errands::new(), tickets: [const { None }; lending::MOST] }
    }

    /// Another cell asks for a read.
    pub fn begin(&mut self, ticket: Ticket) {
        // There is a place: a cell has no more calls open than there are for it.
        let Some((number, place)) = self.tickets.iter_mut().enumerate().find(|(_, place)| place.is_none()) else {
            return;
        };
        let request = DiskRead::from_payload(ticket.payload()).filter(|read| is_own(ticket.from(), read));
        *place = Some(ticket);
        lending::begin(number, request);
    }

    /// The next read of another cell that has ended, and what to answer.
    pub fn next_answer(&mut self) -> Option<(Ticket, Payload)> {
        let (number, is_ok) = lending::next_ended()?;
        let ticket = self.tickets.get_mut(number)?.take()?;
        Some((ticket, DiskRead::answer(is_ok)))
    }

    /// Asks the leader, another cell, for what this one wants to read. Whether any of it has come.
    pub fn ask(&mut self, calls: &mut Calls, view: View, leader: CellId) -> bool {
        let mut has_come = false;
        for _ in 0..2 * MOST {
            while self.asked.has_room() && remote::is_waiting() {
                let Some(next) = remote::next_remote() else { break };
                let _ = self.asked.push(next);
            }
            let payload = |(_, read): &(usize, RemoteRead)| read.request.payload();
            let Some(((disk, read), answer)) = self.asked.step(&mut Boards, calls, view, leader, payload) else {
                return has_come;
            };
            remote::end_remote(disk, read.token, DiskRead::was_ok(&answer));
            has_come = true;
        }
        has_come
    }

    /// Whether the leader has been asked for something.
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// This cell leads now, and no device does anything for a cell before it any more.
    pub fn take_over(&mut self) {
        self.asked.take_all().for_each(|(disk, read)| remote::take_back(disk, read));
    }
}

/// Whether the pages that are to be read into are those of the cell that asks.
fn is_own(from: CellId, read: &DiskRead) -> bool {
    let has = |(page, _): (u64, u32)| {
        let page = AddressRange::new(Mfn::new(page).addr(), BASE_PAGE);
        page.is_some_and(|page| cell::facts(from.index()).is_some_and(|facts| facts.has(page)))
    };
    read.pages().all(has)
}
