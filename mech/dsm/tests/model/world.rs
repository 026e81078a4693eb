//! A cluster with programs on its harts.

use dsm::testing::Cluster;
use dsm::{Atomic, Config, Fence, MachineId, Operation, Outcome, Page, Pages, Protocol, Rights, Store, Visibility};

pub const PAGES: u64 = 2;

/// An instruction. Pages have one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Load(u64),
    Store(u64, u64),
    /// To the low or high half of the word.
    Half(u64, bool, u64),
    Add(u64, u64),
    /// LR, and an SC of one more; again until it succeeds.
    Count(u64),
    /// A store to the second word of the first operand and then a load: both pages in one instruction.
    Copy(u64, u64),
    Fence,
}

/// Who does what next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Deliver(usize, usize),
    Hart(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    cluster: Cluster,
    programs: Vec<Vec<Op>>,
    at: Vec<usize>,
    waits: Vec<bool>,
    /// The value that LR gave, until SC.
    reserved: Vec<Option<u64>>,
    registers: Vec<Vec<u64>>,
}

pub fn config(protocol: Protocol, visibility: Visibility) -> Config {
    let new = Config::new(MachineId(0), 3, 1);
    Config { block_pages: 1, protocol, visibility, to_update: 1, to_invalidate: 2, ..new }
}

impl World {
    /// `before` runs alone, then all `programs` at once, one on each machine.
    pub fn new(config: Config, before: &[(usize, Op)], programs: &[&[Op]]) -> Self {
        let mut world = Self {
            cluster: Cluster::new(config, PAGES as usize, 1),
            programs: vec![Vec::new(); 3],
            at: vec![0; 3],
            waits: vec![false; 3],
            reserved: vec![None; 3],
            registers: vec![Vec::new(); 3],
        };
        for (machine, op) in before {
            world.programs[*machine] = vec![*op];
            while world.at[*machine] == 0 {
                if !world.waits[*machine] {
                    world.make(Step::Hart(*machine));
                }
                world.cluster.calm();
                (0..3).for_each(|machine| world.wake(machine));
            }
            world.at[*machine] = 0;
            world.registers[*machine].clear();
        }
        let own = |machine: usize| programs.get(machine).map_or_else(Vec::new, |program| program.to_vec());
        world.programs = (0..3).map(own).collect();
        world
    }

    pub fn steps(&self) -> Vec<Step> {
        let deliveries = self.cluster.ready().into_iter().map(|(from, to)| Step::Deliver(from, to));
        let may = |machine: &usize| self.at[*machine] < self.programs[*machine].len() && !self.waits[*machine];
        deliveries.chain((0..3).filter(may).map(Step::Hart)).collect()
    }

    pub fn make(&mut self, step: Step) {
        match step {
            Step::Deliver(from, to) => {
                self.cluster.deliver(from, to);
                self.wake(to);
            }
            Step::Hart(machine) => self.step(machine),
        }
    }

    fn wake(&mut self, machine: usize) {
        if self.cluster.machines[machine].take_wakes() != 0 {
            self.waits[machine] = false;
        }
    }

    fn step(&mut self, machine: usize) {
        let op = self.programs[machine][self.at[machine]];
        match self.execute(machine, op) {
            Outcome::Done(value) => {
                self.registers[machine].extend(value);
                self.at[machine] += 1;
                let (dsm, memory) = self.cluster.at(machine);
                dsm.retired(0, 1, memory).expect("nothing is refused");
            }
            Outcome::Wait => self.waits[machine] = true,
        }
        self.cluster.collect(machine);
        self.wake(machine);
    }

    fn execute(&mut self, machine: usize, op: Op) -> Outcome<Option<u64>> {
        let (dsm, memory) = self.cluster.at(machine);
        let whole = |page, value| Store { page: Page(page), word: 0, mask: 255, value };
        let outcome = match op {
            Op::Load(page) => match dsm.load(0, Page(page), memory).expect("nothing is refused") {
                Outcome::Done(()) => return Outcome::Done(Some(memory.read(Page(page), 0))),
                Outcome::Wait => return Outcome::Wait,
            },
            Op::Store(page, value) => dsm.store(0, whole(page, value), memory),
            Op::Half(page, high, value) => {
                let (mask, shift) = if high { (0xf0, 32) } else { (0x0f, 0) };
                dsm.store(0, Store { page: Page(page), word: 0, mask, value: value << shift }, memory)
            }
            Op::Add(page, value) => {
                let atomic = Atomic { operation: Operation::Add, to: whole(page, value), acquire: false };
                return match dsm.atomic(0, atomic, memory).expect("nothing is refused") {
                    Outcome::Done(old) => Outcome::Done(Some(old)),
                    Outcome::Wait => Outcome::Wait,
                };
            }
            Op::Count(page) => return self.count(machine, page),
            Op::Copy(from, to) => match dsm.load(0, Page(from), memory).expect("nothing is refused") {
                Outcome::Done(()) => {
                    let value = memory.read(Page(from), 0);
                    dsm.store(0, whole(to, value), memory)
                }
                Outcome::Wait => return Outcome::Wait,
            },
            Op::Fence => dsm.fence(0, Fence { after_stores: true, before_loads: true }, memory),
        };
        match outcome.expect("nothing is refused") {
            Outcome::Done(()) => Outcome::Done(None),
            Outcome::Wait => Outcome::Wait,
        }
    }

    fn count(&mut self, machine: usize, page: u64) -> Outcome<Option<u64>> {
        let (dsm, memory) = self.cluster.at(machine);
        let Some(old) = self.reserved[machine] else {
            if let Outcome::Done(value) =
                dsm.load_reserved(0, Page(page), 0, false, memory).expect("nothing is refused")
            {
                self.reserved[machine] = Some(value);
                return self.count(machine, page);
            }
            return Outcome::Wait;
        };
        let store = Store { page: Page(page), word: 0, mask: 255, value: old + 1 };
        match dsm.store_conditional(0, store, false, memory).expect("nothing is refused") {
            Outcome::Wait => Outcome::Wait,
            Outcome::Done(true) => {
                self.reserved[machine] = None;
                Outcome::Done(Some(old))
            }
            Outcome::Done(false) => {
                self.reserved[machine] = None;
                self.count(machine, page)
            }
        }
    }

    /// What holds in every state.
    pub fn check(&self) -> Result<(), String> {
        for page in (0..PAGES).map(Page) {
            let rights =
                |rights| self.cluster.memories.iter().filter(|memory| memory.rights_of(page) == rights).count();
            if rights(Rights::ReadWrite) > 1 || rights(Rights::ReadWrite) == 1 && rights(Rights::Read) > 0 {
                return Err(format!("{page:?} is written by one while others have copies"));
            }
        }
        Ok(())
    }

    /// What holds at the end. Returns all registers and the last values.
    pub fn end(&self) -> Result<Vec<u64>, String> {
        if (0..3).any(|machine| self.at[machine] < self.programs[machine].len()) {
            return Err(format!("programs stopped at {:?}", self.at));
        }
        if !self.cluster.machines.iter().all(dsm::Dsm::is_idle) {
            return Err("somebody waits for something".into());
        }
        let mut end: Vec<u64> = self.registers.iter().flatten().copied().collect();
        for page in (0..PAGES).map(Page) {
            let readers = self.cluster.memories.iter().filter(|memory| memory.rights_of(page) > Rights::None);
            let values: std::collections::BTreeSet<u64> = readers.map(|memory| memory.read(page, 0)).collect();
            if values.len() > 1 {
                return Err(format!("copies of {page:?} differ: {values:x?}"));
            }
            end.extend(values.first().or(Some(&0)));
        }
        Ok(end)
    }
}
