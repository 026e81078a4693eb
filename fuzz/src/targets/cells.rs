//! Two cells that send each other bytes, while memory cannot be read for a time, time passes, or one of them writes nonsense.

use cell::board::{self, WORDS};
use cell::{Calls, CellId, CellSet, PIECE_BYTES, Pipe, Port, Service, Times, Unreadable, View};

use crate::Input;

const TIMES: Times = Times { patience: 20, pause: 3 };
/// Bytes that each has to send.
const BYTES: usize = 1024;

/// The boards as one cell sees them.
struct Sight<'a> {
    boards: &'a mut [Vec<u64>; 2],
    me: usize,
    /// Why the other's cannot be read, if it cannot.
    trouble: Option<Unreadable>,
}

impl Port for Sight<'_> {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        let board = self.boards.get(cell.index()).ok_or(Unreadable::Dead)?;
        self.trouble.filter(|_| cell.index() != self.me).map_or(Ok(board[word]), Err)
    }

    fn write(&mut self, word: usize, value: u64) {
        self.boards[self.me][word] = value;
    }

    fn ring(&mut self, _: CellId) {}
}

struct Cell {
    calls: Calls,
    service: Service,
    pipe: Pipe,
    view: View,
    /// What of its bytes the pipe has taken, and what has arrived.
    taken: usize,
    arrived: Vec<u8>,
    trouble: Option<Unreadable>,
}

fn id(number: usize) -> CellId {
    CellId::new(number).expect("there are more cells")
}

/// Byte `at` of what cell `from` sends.
const fn byte(from: usize, at: usize) -> u8 {
    (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ from as u8
}

impl Cell {
    fn new(me: usize, boards: &mut [Vec<u64>; 2]) -> Self {
        let view = View { epoch: 0, members: CellSet::from_bits(0b11) };
        board::begin(&mut Sight { boards, me, trouble: None }, view);
        let (calls, service, pipe) = (Calls::new(id(me)), Service::new(id(me)), Pipe::new(id(1 - me)));
        Self { calls, service, pipe, view, taken: 0, arrived: Vec::new(), trouble: None }
    }

    fn send(&mut self, me: usize, boards: &mut [Vec<u64>; 2], now: u64, most: usize) {
        let taken = &mut self.taken;
        let mut sight = Sight { boards, me, trouble: self.trouble };
        let _ = self.pipe.send(&mut sight, &mut self.calls, self.view, now, TIMES, |room| {
            let len = most.min(PIECE_BYTES).min(BYTES - *taken);
            room.iter_mut().zip(*taken..).take(len).for_each(|(place, at)| *place = byte(me, at));
            *taken += len;
            len
        });
    }

    fn serve(&mut self, me: usize, boards: &mut [Vec<u64>; 2], has_room: bool) {
        let mut sight = Sight { boards, me, trouble: self.trouble };
        if let Some(ticket) = self.service.poll(&mut sight, self.view) {
            let arrived = &mut self.arrived;
            let answer = self.pipe.receive(ticket.payload(), |bytes| {
                if has_room {
                    arrived.extend(bytes);
                }
                has_room
            });
            self.service.answer(&mut sight, ticket, &answer);
        }
    }
}

/// Steps of either cell, of time and of what fails.
pub fn cells(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut boards = [vec![0; WORDS], vec![0; WORDS]];
    let mut cells = [0, 1].map(|me| Cell::new(me, &mut boards));
    let (mut now, mut is_sane) = (0_u64, true);
    while !input.is_empty() {
        let me = usize::from(input.below(2));
        let cell = &mut cells[me];
        match input.below(8) {
            0..=2 => cell.send(me, &mut boards, now, usize::from(input.byte())),
            3 | 4 => cell.serve(me, &mut boards, input.byte() > 32),
            5 => now += u64::from(input.byte()),
            6 => cell.trouble = input.pick(&[None, None, Some(Unreadable::Cut), Some(Unreadable::Dead)]),
            _ => match input.byte() {
                // A cell's own code is not hostile, but what is left of its memory may say anything.
                0..=7 => {
                    boards[1 - me][usize::from(input.u16()) % WORDS] = input.register();
                    is_sane = false;
                }
                _ => {
                    cell.view.epoch = cell.view.epoch.saturating_add(1);
                    board::publish_view(&mut Sight { boards: &mut boards, me, trouble: None }, cell.view);
                }
            },
        }
    }
    if is_sane {
        cells.iter().enumerate().for_each(|(me, cell)| check(me, cell, cells[1 - me].taken));
        assert_all_arrives(&mut cells, &mut boards, now);
    }
}

/// What has arrived was sent, each byte once and in order.
fn check(me: usize, cell: &Cell, taken: usize) {
    assert!(cell.arrived.len() <= taken, "more than was sent");
    let is_so = cell.arrived.iter().zip(0..).all(|(found, at)| *found == byte(1 - me, at));
    assert!(is_so, "not what was sent");
}

/// Nothing fails any more: the rest comes through.
fn assert_all_arrives(cells: &mut [Cell; 2], boards: &mut [Vec<u64>; 2], mut now: u64) {
    let epoch = cells[0].view.epoch.max(cells[1].view.epoch);
    for (me, cell) in cells.iter_mut().enumerate() {
        (cell.trouble, cell.view.epoch) = (None, epoch);
        board::publish_view(&mut Sight { boards, me, trouble: None }, cell.view);
    }
    for _ in 0..2_000 {
        now += TIMES.pause;
        for me in [0, 1] {
            cells[me].send(me, boards, now, PIECE_BYTES);
            cells[1 - me].serve(1 - me, boards, true);
        }
        if cells.iter().all(|cell| cell.arrived.len() == BYTES) {
            cells.iter().enumerate().for_each(|(me, cell)| check(me, cell, BYTES));
            return;
        }
    }
    panic!("{} and {} of {BYTES} bytes arrive", cells[0].arrived.len(), cells[1].arrived.len());
}
