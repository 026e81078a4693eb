//! A test on machines with one memory.

use std::collections::BTreeMap;

use dsm::testing::Cluster;
use dsm::{Config, Fence, MachineId, Outcome, Page, Pages, Protocol, Store, Visibility};

use crate::test::{Instruction, Observable, REGISTERS, Test, extend, location};
use crate::trace::mask;

/// How a test is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lay {
    /// Machines, 1 to 8; threads go round them.
    pub machines: u8,
    /// Which modes pages may have.
    pub protocol: Protocol,
    /// When stores are seen. With several threads on a machine it must be [`Visibility::Ordered`].
    pub visibility: Visibility,
    /// As in [`Config`].
    pub to_update: u8,
}

/// Random numbers (xorshift64*).
#[derive(Clone, Debug)]
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Runs `test` as often as `rounds` says, each in another order, and counts its ends.
#[must_use]
pub fn run(test: &Test, lay: Lay, rounds: usize, seed: u64) -> BTreeMap<Vec<u64>, usize> {
    let mut ends = BTreeMap::new();
    let mut numbers = Numbers(seed | 1);
    for _ in 0..rounds {
        *ends.entry(Round::new(test, lay, &mut numbers).go(&mut numbers)).or_insert(0) += 1;
    }
    ends
}

struct Hart {
    machine: usize,
    number: u8,
    registers: [u64; REGISTERS],
    at: usize,
    waits: bool,
}

struct Round<'a> {
    test: &'a Test,
    cluster: Cluster,
    harts: Vec<Hart>,
}

impl<'a> Round<'a> {
    fn new(test: &'a Test, lay: Lay, numbers: &mut Numbers) -> Self {
        let machines = usize::from(lay.machines.max(1));
        let harts_each = test.threads.len().div_ceil(machines) as u8;
        let config = Config {
            orderer: MachineId(numbers.below(machines) as u8),
            block_pages: 1,
            protocol: lay.protocol,
            visibility: lay.visibility,
            to_update: lay.to_update,
            to_invalidate: 1 + numbers.below(4) as u8,
            ..Config::new(MachineId(0), machines as u8, harts_each)
        };
        let harts = (0..test.threads.len()).map(|thread| Hart {
            machine: thread % machines,
            number: (thread / machines) as u8,
            registers: test.registers[thread],
            at: 0,
            waits: false,
        });
        let cluster = Cluster::new(config, test.values.len(), 1);
        let mut round = Self { test, cluster, harts: harts.collect() };
        round.prepare(numbers);
        round
    }

    /// Writes the first values, and lets some machines have copies.
    fn prepare(&mut self, numbers: &mut Numbers) {
        let machines = self.cluster.machines.len();
        for (location, value) in self.test.values.iter().enumerate().filter(|(_, value)| **value != 0) {
            let store = Store { page: Page(location as u64), word: 0, mask: 255, value: *value };
            self.alone(numbers.below(machines), |dsm, memory| dsm.store(0, store, memory));
        }
        for page in (0..self.test.values.len() as u64).map(Page) {
            for machine in (0..machines).filter(|_| numbers.below(3) > 0).collect::<Vec<_>>() {
                self.alone(machine, |dsm, memory| dsm.load(0, page, memory));
            }
        }
    }

    fn alone(
        &mut self,
        machine: usize,
        mut access: impl FnMut(&mut dsm::Dsm, &mut dsm::testing::Memory) -> Result<Outcome<()>, dsm::Refused>,
    ) {
        loop {
            let (dsm, memory) = self.cluster.at(machine);
            let outcome = access(dsm, memory).expect("nothing is refused");
            if outcome == Outcome::Done(()) {
                dsm.retired(0, 1_000, memory).expect("nothing is refused");
            }
            self.cluster.collect(machine);
            self.cluster.calm();
            if outcome == Outcome::Done(()) {
                for dsm in &mut self.cluster.machines {
                    let _ = dsm.take_wakes();
                }
                return;
            }
        }
    }

    /// Until all is done: a random hart steps, or a random channel delivers.
    fn go(mut self, numbers: &mut Numbers) -> Vec<u64> {
        loop {
            let ready = self.cluster.ready();
            let may = |hart: &usize| !self.harts[*hart].waits && self.harts[*hart].at < self.test.threads[*hart].len();
            let steps: Vec<usize> = (0..self.harts.len()).filter(may).collect();
            if ready.is_empty() && steps.is_empty() {
                return self.end();
            }
            let pick = numbers.below(ready.len() + steps.len());
            if let Some((from, to)) = ready.get(pick).copied() {
                self.cluster.deliver(from, to);
                self.wake(to);
            } else {
                self.step(steps[pick - ready.len()]);
            }
        }
    }

    fn wake(&mut self, machine: usize) {
        let wakes = self.cluster.machines[machine].take_wakes();
        let own = self.harts.iter_mut().filter(|hart| hart.machine == machine);
        own.filter(|hart| wakes >> hart.number & 1 == 1).for_each(|hart| hart.waits = false);
    }

    fn step(&mut self, thread: usize) {
        let hart = &mut self.harts[thread];
        let (machine, number) = (hart.machine, hart.number);
        let instruction = self.test.threads[thread][hart.at];
        let (dsm, memory) = self.cluster.at(machine);
        let next = execute(instruction, hart, dsm, memory).expect("nothing is refused");
        match next {
            Outcome::Done(next) => {
                hart.at = next;
                dsm.retired(number, 1, memory).expect("nothing is refused");
                if hart.at >= self.test.threads[thread].len() {
                    dsm.leave(number, memory).expect("nothing is refused");
                }
            }
            Outcome::Wait => hart.waits = true,
        }
        self.cluster.collect(machine);
        self.wake(machine);
    }

    fn end(mut self) -> Vec<u64> {
        let is_done = |(hart, code): (&Hart, &Vec<Instruction>)| hart.at >= code.len();
        assert!(self.harts.iter().zip(&self.test.threads).all(is_done), "{} hangs", self.test.name);
        let test = self.test;
        let mut of = |observable: Observable| match observable {
            Observable::Register(thread, register) => self.harts[thread].registers[register],
            Observable::Location(location) => {
                let page = Page(location as u64);
                self.alone(0, |dsm, memory| dsm.load(0, page, memory));
                extend(self.cluster.memories[0].read(page, 0), 4)
            }
        };
        test.observables().into_iter().map(&mut of).collect()
    }
}

/// Executes an instruction. Returns where the hart goes on.
fn execute(
    instruction: Instruction,
    hart: &mut Hart,
    dsm: &mut dsm::Dsm,
    memory: &mut dsm::testing::Memory,
) -> Result<Outcome<usize>, dsm::Refused> {
    let number = hart.number;
    let get = |register: usize| hart.registers[register];
    let page = |base: usize, offset: u64| {
        Page(location(get(base).wrapping_add(offset)).expect("the test has such a location") as u64)
    };
    let store = |from: usize, page: Page, bytes: u8| Store { page, word: 0, mask: mask(bytes), value: get(from) };
    let result = match instruction {
        Instruction::Register { what, to, left, right } => Some((to, what.apply(get(left), get(right)))),
        Instruction::Immediate { what, to, left, value } => Some((to, what.apply(get(left), value))),
        Instruction::Branch { when, left, right, target } => {
            return Ok(Outcome::Done(if when.holds(get(left), get(right)) { target } else { hart.at + 1 }));
        }
        Instruction::Fence(fence) => {
            let after_stores = fence.before_writes && !fence.is_tso;
            let fence = Fence { after_stores, before_loads: fence.after_reads };
            match dsm.fence(number, fence, memory)? {
                Outcome::Done(()) => None,
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
        Instruction::Load { to, base, offset, bytes } => {
            let page = page(base, offset);
            match dsm.load(number, page, memory)? {
                Outcome::Done(()) => Some((to, extend(memory.read(page, 0), bytes))),
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
        Instruction::Store { from, base, offset, bytes } => {
            match dsm.store(number, store(from, page(base, offset), bytes), memory)? {
                Outcome::Done(()) => None,
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
        Instruction::Atomic { what, to, from, base, bytes, order } => {
            let to_store = store(from, page(base, 0), bytes);
            let atomic = dsm::Atomic { operation: what, to: to_store, acquire: order.acquire };
            match dsm.atomic(number, atomic, memory)? {
                Outcome::Done(old) => Some((to, extend(old, bytes))),
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
        Instruction::Reserved { to, base, bytes, order } => {
            match dsm.load_reserved(number, page(base, 0), 0, order.acquire, memory)? {
                Outcome::Done(value) => Some((to, extend(value, bytes))),
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
        Instruction::Conditional { to, from, base, bytes, order } => {
            match dsm.store_conditional(number, store(from, page(base, 0), bytes), order.acquire, memory)? {
                Outcome::Done(stored) => Some((to, u64::from(!stored))),
                Outcome::Wait => return Ok(Outcome::Wait),
            }
        }
    };
    if let Some((to, value)) = result.filter(|(to, _)| *to != 0) {
        hart.registers[to] = value;
    }
    Ok(Outcome::Done(hart.at + 1))
}
