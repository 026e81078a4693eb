//! Byte streams between any two cells. Those between the leader, which has the control port, and each other cell carry the control
//! protocol; the others are for later leaders.

use crate::machine::boards::Boards;
use ::cell::{Calls, CellId, PIECE_BYTES, Pipe, Ticket, Times, View, board::Payload};
use alloc::{collections::VecDeque, vec::Vec};

/// Bytes that may wait at each end of a wire, in each direction.
const ROOM: usize = 8 << 10;

/// One end of the stream to one other cell.
#[derive(Debug)]
struct Wire {
    other: CellId,
    pipe: Pipe,
    incoming: VecDeque<u8>,
    outgoing: VecDeque<u8>,
}

/// This cell's wires.
#[derive(Debug)]
pub struct Wires(Vec<Wire>);

impl Wires {
    /// Wires of `me` to all others among these cells.
    pub fn new(me: CellId, view: View) -> Self {
        let new = |other| Wire { other, pipe: Pipe::new(other), incoming: VecDeque::new(), outgoing: VecDeque::new() };
        Self(view.members.iter().filter(|other| *other != me).map(new).collect())
    }

    /// Takes a piece of another cell: what to answer, and whether bytes have come.
    pub fn take(&mut self, ticket: &Ticket) -> (Payload, bool) {
        let Some(wire) = self.wire(ticket.from()) else { return (Default::default(), false) };
        let mut is_news = false;
        let answer = wire.pipe.receive(ticket.payload(), |bytes| {
            let has_room = wire.incoming.len() + bytes.len() <= ROOM;
            wire.incoming.extend(bytes.iter().filter(|_| has_room));
            is_news = has_room;
            has_room
        });
        (answer, is_news)
    }

    /// Sends what waits: when to look again.
    pub fn send(&mut self, calls: &mut Calls, view: View, now: u64, times: Times) -> u64 {
        let mut next = u64::MAX;
        for Wire { pipe, outgoing, other, .. } in &mut self.0 {
            if !view.members.contains(*other) {
                continue;
            }
            let fill = |room: &mut [u8; PIECE_BYTES]| {
                let len = outgoing.len().min(room.len());
                room.iter_mut().zip(outgoing.drain(..len)).for_each(|(to, byte)| *to = byte);
                len
            };
            next = next.min(pipe.send(&mut Boards, calls, view, now, times, fill).unwrap_or(u64::MAX));
        }
        next
    }

    /// Takes what `other` has sent, up to the buffer's size.
    pub fn read(&mut self, other: CellId, buf: &mut [u8]) -> usize {
        let Some(wire) = self.wire(other) else { return 0 };
        let len = wire.incoming.len().min(buf.len());
        buf.iter_mut().zip(wire.incoming.drain(..len)).for_each(|(to, byte)| *to = byte);
        len
    }

    /// Sends bytes to `other`; how many there was room for. A cell without a wire takes all, and they are gone.
    pub fn write(&mut self, other: CellId, bytes: &[u8]) -> usize {
        let Some(wire) = self.wire(other) else { return bytes.len() };
        let len = (ROOM - wire.outgoing.len()).min(bytes.len());
        wire.outgoing.extend(&bytes[..len]);
        len
    }

    fn wire(&mut self, other: CellId) -> Option<&mut Wire> {
        self.0.iter_mut().find(|wire| wire.other == other)
    }
}
