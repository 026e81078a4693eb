//! Frames between cells: each cell has a part of each subnet, a switch of its own, and the leader's part joins them.
//!
//! A frame lies in its sender's memory until the other cell has copied it. One that is under way when a cell is lost is lost, as on a wire.

use crate::{
    io::network::{self, Departure},
    machine::{boards::Boards, cell},
};
use ::cell::{CallId, Calls, CellId, CellSet, Ticket, View, board::CELLS, message::Frames};

/// What this cell has sent to each other cell, and has not heard of.
#[derive(Debug)]
pub struct Trunks {
    me: CellId,
    leaving: [Option<(CallId, Departure)>; CELLS],
    /// With whose parts of the subnets this cell's are joined.
    joined: CellSet,
    /// Where the next look begins: subnets take turns.
    turn: usize,
}

impl Trunks {
    pub const fn new(me: CellId) -> Self {
        Self { me, leaving: [const { None }; CELLS], joined: CellSet::EMPTY, turn: 0 }
    }

    /// Sends frames that wait, a call to each cell at a time.
    pub fn step(&mut self, calls: &mut Calls, view: View, leader: CellId) {
        self.join(view, leader);
        network::begin_look();
        for to in self.joined.iter() {
            let place = &mut self.leaving[to.index()];
            if let Some((call, _)) = place {
                // However it ended: the other cell has the frames, or never will.
                if calls.poll(&mut Boards, view, 0, *call).is_none() {
                    continue;
                }
                *place = None;
            }
            self.turn = self.turn.wrapping_add(1);
            let Some(departure) = network::depart(to, self.turn) else { continue };
            // What the other cell reads must not move: the end of the call bounds it, and nothing else does.
            // There is a slot: a pipe and two reads of disks take the others. Frames that find none are lost.
            let call = calls.call(&mut Boards, view, to, &departure.request().payload(), u64::MAX);
            *place = call.ok().map(|call| (call, departure));
        }
    }

    /// Joins the subnets with those of whom they should be joined with.
    fn join(&mut self, view: View, leader: CellId) {
        let others = view.members.minus(CellSet::EMPTY.with(self.me));
        let joined = if leader == self.me { others } else { others.both(CellSet::EMPTY.with(leader)) };
        for cell in CellId::all().filter(|cell| joined.contains(*cell) != self.joined.contains(*cell)) {
            network::set_joined(cell, joined.contains(cell));
            // Frames for a cell that is lost: it reads them no more.
            if !joined.contains(cell) {
                self.leaving[cell.index()] = None;
            }
        }
        self.joined = joined;
    }

    /// Whether an answer may come at any moment.
    pub fn is_waiting(&self) -> bool {
        self.leaving.iter().any(Option::is_some)
    }
}

/// Frames of another cell have come; whether any has.
pub fn arrive(ticket: &Ticket) -> bool {
    let from = ticket.from();
    let Some(facts) = cell::facts(from.index()) else { return false };
    Frames::from_payload(ticket.payload()).is_some_and(|frames| network::arrive(from, facts, &frames))
}
