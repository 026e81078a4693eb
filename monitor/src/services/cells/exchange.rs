//! What cells ask each other for by calls: bytes, reads of the machine's disks, frames of subnets.

use super::{disks::Disks, frames, wires::Wires};
use crate::machine::boards::Boards;
use ::cell::{Calls, CellId, Service, Times, View, board::PAYLOAD_WORDS, message::Kind};
use frames::Trunks;

/// Calls that are answered in a step. Frames of another cell are copied, so a call that brings some is a step's last.
const CALLS: usize = 8;

/// This cell's calls and those of others, and what they are about.
#[derive(Debug)]
pub struct Exchange {
    me: CellId,
    calls: Calls,
    service: Service,
    pub wires: Wires,
    pub disks: Disks,
    trunks: Trunks,
}

/// What a step has come to.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// When to look again, if nobody rings before.
    pub next: u64,
    /// Something has come that other duties wait for.
    pub is_news: bool,
}

impl Exchange {
    /// Of `me` with all others among these cells.
    pub fn new(me: CellId, view: View) -> Self {
        Self {
            me,
            calls: Calls::new(me),
            service: Service::new(me),
            wires: Wires::new(me, view),
            disks: Disks::new(),
            trunks: Trunks::new(me),
        }
    }

    /// Takes what has come, sends what waits. A bounded step.
    pub fn step(&mut self, view: View, leader: CellId, now: u64, times: Times) -> Progress {
        let (mut is_news, mut has_copied) = (false, false);
        for _ in 0..CALLS {
            if has_copied {
                break;
            }
            let Some(ticket) = self.service.poll(&mut Boards, view) else { break };
            let answer = match Kind::of(ticket.payload()) {
                Some(Kind::Piece) => {
                    let (answer, has_come) = self.wires.take(&ticket);
                    is_news |= has_come;
                    answer
                }
                Some(Kind::DiskRead) => {
                    self.disks.begin(ticket);
                    continue;
                }
                Some(Kind::Frames) => {
                    is_news |= frames::arrive(&ticket);
                    has_copied = true;
                    [0; PAYLOAD_WORDS]
                }
                // The same image wrote it: this does not happen.
                None => [0; PAYLOAD_WORDS],
            };
            self.service.answer(&mut Boards, ticket, &answer);
        }
        // Bounded: as many as there are tickets.
        while let Some((ticket, answer)) = self.disks.next_answer() {
            self.service.answer(&mut Boards, ticket, &answer);
        }
        if leader != self.me {
            is_news |= self.disks.ask(&mut self.calls, view, leader);
        }
        self.trunks.step(&mut self.calls, view, leader);
        let next = self.wires.send(&mut self.calls, view, now, times);
        // There may be more calls.
        Progress { next: if has_copied { now } else { next }, is_news }
    }

    /// Whether an answer may come at any moment.
    pub fn is_waiting(&self) -> bool {
        self.disks.is_waiting() || self.trunks.is_waiting()
    }
}
