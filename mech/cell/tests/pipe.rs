//! Two cells send each other bytes through pipes, while either of them may not look for long, or has no room.

use cell::{Calls, CellId, CellSet, PIECE_BYTES, Pipe, Port, Service, Times, Unreadable, View};
use std::cell::RefCell;
use std::rc::Rc;

const TIMES: Times = Times { patience: 20, pause: 3 };
const BYTES: usize = 20_000;

type Boards = Rc<RefCell<[Vec<u64>; 2]>>;

/// The boards as one cell sees them.
struct Sight {
    boards: Boards,
    me: usize,
}

impl Port for Sight {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        Ok(self.boards.borrow()[cell.index()][word])
    }

    fn write(&mut self, word: usize, value: u64) {
        self.boards.borrow_mut()[self.me][word] = value;
    }

    fn ring(&mut self, _: CellId) {}
}

struct Cell {
    sight: Sight,
    calls: Calls,
    service: Service,
    pipe: Pipe,
    /// What it has to send, and what of that the pipe has taken.
    out: Vec<u8>,
    taken: usize,
    arrived: Vec<u8>,
    view: View,
}

fn id(cell: usize) -> CellId {
    CellId::new(cell).expect("a cell")
}

/// Numbers that look random.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Cell {
    fn new(boards: &Boards, me: usize) -> Self {
        let view = View { epoch: 0, members: CellSet::from_bits(0b11) };
        let mut seed = me as u64 + 1;
        let mut sight = Sight { boards: boards.clone(), me };
        cell::board::begin(&mut sight, view);
        Self {
            sight,
            calls: Calls::new(id(me)),
            service: Service::new(id(me)),
            pipe: Pipe::new(id(1 - me)),
            out: (0..BYTES).map(|_| draw(&mut seed) as u8).collect(),
            taken: 0,
            arrived: Vec::new(),
            view,
        }
    }

    fn send(&mut self, now: u64, most: usize) -> Option<u64> {
        let (out, taken) = (&self.out, &mut self.taken);
        self.pipe.send(&mut self.sight, &mut self.calls, self.view, now, TIMES, |room: &mut [u8; PIECE_BYTES]| {
            let len = most.min(PIECE_BYTES).min(out.len() - *taken);
            room[..len].copy_from_slice(&out[*taken..*taken + len]);
            *taken += len;
            len
        })
    }

    fn serve(&mut self, has_room: bool) {
        while let Some(ticket) = self.service.poll(&mut self.sight, self.view) {
            let arrived = &mut self.arrived;
            let answer = self.pipe.receive(ticket.payload(), |bytes| {
                arrived.extend(bytes.iter().filter(|_| has_room));
                has_room
            });
            self.service.answer(&mut self.sight, ticket, &answer);
        }
    }
}

/// Runs until both have all, or for `most` steps.
fn run(seed: u64, most: u64, mut change: impl FnMut(u64, &mut [Cell; 2])) -> [Cell; 2] {
    let boards: Boards = Rc::new(RefCell::new([vec![0; cell::board::WORDS], vec![0; cell::board::WORDS]]));
    let mut cells = [Cell::new(&boards, 0), Cell::new(&boards, 1)];
    let mut state = seed;
    let mut now = 0;
    for step in 0..most {
        if cells.iter().all(|cell| cell.arrived.len() == BYTES) {
            break;
        }
        change(step, &mut cells);
        let dice = draw(&mut state);
        let cell = &mut cells[(dice & 1) as usize];
        match dice >> 1 & 3 {
            0 => cell.serve(dice >> 8 & 3 != 0),
            // A long absence: calls to it run out of time.
            1 if dice >> 8 & 31 == 0 => now += 100,
            _ => drop(cell.send(now, (dice >> 16) as usize % (PIECE_BYTES + 2))),
        }
        now += dice >> 32 & 3;
    }
    cells
}

fn assert_whole(cells: &[Cell; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(cells[from].out == cells[to].arrived, "{} of {BYTES} bytes from {from}", cells[to].arrived.len());
    }
}

#[test]
fn all_bytes_arrive_once_and_in_order() {
    for seed in 1..200 {
        assert_whole(&run(seed, 1_000_000, |_, _| {}));
    }
}

/// Other cells are lost meanwhile, so calls end with their epoch.
#[test]
fn a_new_epoch_loses_nothing() {
    for seed in 1..200 {
        let mut epoch = 0;
        let cells = run(seed, 1_000_000, |step, cells| {
            if step % 1000 == 500 {
                epoch += 1;
            }
            // One enters it later than the other.
            let late = &mut cells[step as usize / 500 % 2];
            if late.view.epoch != epoch && step % 500 == 10 {
                late.view.epoch = epoch;
                cell::board::publish_view(&mut late.sight, late.view);
            }
        });
        assert_whole(&cells);
    }
}

/// What nobody takes is asked for at the pace of the pauses, and what there is not is not sent.
#[test]
fn who_has_no_room_is_asked_again_later() {
    let boards: Boards = Rc::new(RefCell::new([vec![0; cell::board::WORDS], vec![0; cell::board::WORDS]]));
    let [mut a, mut b] = [Cell::new(&boards, 0), Cell::new(&boards, 1)];
    assert_eq!(a.send(0, 0), None);
    assert_eq!(a.send(0, 5), Some(3));
    b.serve(false);
    assert_eq!(a.send(1, 5), Some(4), "it had no room");
    assert_eq!(a.send(4, 5), Some(7));
    b.serve(true);
    assert_eq!((b.arrived.len(), a.send(5, 0)), (5, None));
}

/// A piece that claims to be longer than a piece can be, or to come from elsewhere, brings nothing.
#[test]
fn wrong_pieces_bring_nothing() {
    let mut pipe = Pipe::new(id(1));
    for (offset, len) in [(0, PIECE_BYTES as u64 + 1), (0, u64::MAX), (1, 1), (u64::MAX, 1)] {
        let mut payload = [0; cell::board::PAYLOAD_WORDS];
        (payload[0], payload[1]) = (offset, len);
        assert_eq!(pipe.receive(&payload, |_| true)[0], 0, "{offset} {len}");
    }
}
