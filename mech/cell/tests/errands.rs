//! Leaders are lost at random moments while another cell has errands with them: each errand ends once, by an answer, and no device of
//! a leader writes to what it was about any more.

use cell::{Calls, CellId, CellSet, Errands, Port, Service, Ticket, Unreadable, View};
use std::cell::RefCell;
use std::rc::Rc;

const CELLS: usize = 3;
/// Who asks; the others lead, the one after the other.
const ASKER: usize = 2;
const ERRANDS: u64 = 40;
const STEPS: u64 = 6_000;

#[derive(Default)]
struct Machine {
    boards: [Vec<u64>; CELLS],
    is_lost: [bool; CELLS],
    /// What leaders' devices still write to: the leader, and the errand.
    writes: Vec<(usize, u64)>,
}

#[derive(Clone)]
struct Sight {
    machine: Rc<RefCell<Machine>>,
    me: usize,
}

impl Port for Sight {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        let machine = self.machine.borrow();
        if machine.is_lost[cell.index()] { Err(Unreadable::Dead) } else { Ok(machine.boards[cell.index()][word]) }
    }

    fn write(&mut self, word: usize, value: u64) {
        self.machine.borrow_mut().boards[self.me][word] = value;
    }

    fn ring(&mut self, _: CellId) {}
}

/// A cell that leads, or may come to.
struct Leader {
    sight: Sight,
    service: Service,
    view: View,
    tickets: Vec<Ticket>,
}

impl Leader {
    fn step(&mut self, state: &mut u64) {
        if let Some(ticket) = self.service.poll(&mut self.sight, self.view) {
            self.sight.machine.borrow_mut().writes.push((self.sight.me, ticket.payload()[0]));
            self.tickets.push(ticket);
        }
        if !self.tickets.is_empty() && draw(state).is_multiple_of(3) {
            let ticket = self.tickets.swap_remove(draw(state) as usize % self.tickets.len());
            let (me, what) = (self.sight.me, ticket.payload()[0]);
            let at = self.sight.machine.borrow().writes.iter().position(|write| *write == (me, what));
            self.sight.machine.borrow_mut().writes.swap_remove(at.expect("its device has been at it"));
            let answer = *ticket.payload();
            self.service.answer(&mut self.sight, ticket, &answer);
        }
    }
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

fn members(lost: [bool; CELLS]) -> CellSet {
    (0..CELLS).filter(|cell| !lost[*cell]).fold(CellSet::EMPTY, |set, cell| set.with(id(cell)))
}

/// A run in which the first leader is lost at a random step, and the asker at last leads itself, or not.
fn run(seed: u64) {
    let mut state = seed * 2 + 1;
    let machine = Rc::new(RefCell::new(Machine::default()));
    machine.borrow_mut().boards = std::array::from_fn(|_| vec![0; cell::board::WORDS]);
    let first = View { epoch: 0, members: members([false; CELLS]) };
    let sight = |me| Sight { machine: machine.clone(), me };
    let mut leaders: Vec<_> = (0..ASKER)
        .map(|me| Leader { sight: sight(me), service: Service::new(id(me)), view: first, tickets: Vec::new() })
        .collect();
    (0..CELLS).for_each(|me| cell::board::begin(&mut sight(me), first));
    let mut port = sight(ASKER);
    let (mut calls, mut errands, mut view) = (Calls::new(id(ASKER)), Errands::<u64, 3>::new(), first);
    let mut losses = [draw(&mut state) % 300, draw(&mut state) % 1200];
    losses.sort_unstable();
    let (mut next, mut done) = (0, Vec::new());
    for step in 0..STEPS {
        for (cell, at) in losses.into_iter().enumerate() {
            if step == at {
                machine.borrow_mut().is_lost[cell] = true;
            }
        }
        let lost = machine.borrow().is_lost;
        // Each learns of a loss when it comes to it.
        for (at, leader) in leaders.iter_mut().enumerate().filter(|(at, _)| !lost[*at]) {
            let now = View { epoch: lost.iter().filter(|lost| **lost).count() as u16, members: members(lost) };
            if now != leader.view && draw(&mut state).is_multiple_of(4) {
                leader.view = now;
                cell::board::publish_view(&mut leader.sight, now);
                if now.members.iter().next() == Some(id(at)) {
                    // It resets the devices before it serves anybody.
                    machine.borrow_mut().writes.retain(|(of, _)| *of == at);
                }
            }
            if draw(&mut state).is_multiple_of(2) {
                leader.step(&mut state);
            }
        }
        let now = View { epoch: lost.iter().filter(|lost| **lost).count() as u16, members: members(lost) };
        if now != view && draw(&mut state).is_multiple_of(8) {
            view = now;
            cell::board::publish_view(&mut port, now);
        }
        if next < ERRANDS && errands.push(next).is_ok() {
            next += 1;
        }
        let leader = view.members.iter().next().expect("the asker itself at least");
        let ended: Vec<_> = if leader == id(ASKER) {
            machine.borrow_mut().writes.clear();
            errands.take_all().collect()
        } else {
            let ended = errands.step(&mut port, &mut calls, view, leader, |what| {
                let mut payload = [0; cell::board::PAYLOAD_WORDS];
                payload[0] = *what;
                payload
            });
            ended.into_iter().inspect(|(what, answer)| assert_eq!(*what, answer[0])).map(|(what, _)| what).collect()
        };
        for what in ended {
            let is_written = machine.borrow().writes.iter().any(|(_, of)| *of == what);
            assert!(!is_written, "seed {seed}: errand {what} has ended, and a device still writes for it");
            done.push(what);
        }
    }
    done.sort_unstable();
    assert_eq!(done, (0..ERRANDS).collect::<Vec<_>>(), "seed {seed}: each ends once");
    assert!(errands.is_empty() && errands.has_room());
}

#[test]
fn errands_survive_the_loss_of_leaders() {
    (0..200).for_each(run);
}
