//! What a thread may do by itself, whatever its loads return.

use crate::test::{Fence, Instruction, Order, REGISTERS, extend, location};

/// What an access belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Plain,
    Amo,
    Reserved,
    Conditional,
}

/// An access. Sets of accesses of the thread are bits.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub location: usize,
    pub read: Option<u64>,
    pub write: Option<u64>,
    pub order: Order,
    pub sort: Sort,
    /// Accesses whose results the address, the data, and the branches before it come from.
    pub address: u32,
    pub data: u32,
    pub control: u32,
    /// For an SC, its LR.
    pub pair: Option<usize>,
}

/// Accesses of a thread, and its fences: each with the number of accesses before it.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub accesses: Vec<Access>,
    pub fences: Vec<(usize, Fence)>,
    pub registers: [u64; REGISTERS],
}

#[derive(Clone)]
struct State {
    trace: Trace,
    /// The accesses that each register comes from.
    from: [u32; REGISTERS],
    control: u32,
    reserved: Option<usize>,
    at: usize,
}

/// Every trace of `code`, if loads may return any of `values`. Nothing if an address is none.
pub fn all(code: &[Instruction], registers: &[u64; REGISTERS], values: &[u64]) -> Option<Vec<Trace>> {
    let trace = Trace { registers: *registers, ..Trace::default() };
    let mut open = vec![State { trace, from: [0; REGISTERS], control: 0, reserved: None, at: 0 }];
    let mut ends = Vec::new();
    while let Some(mut state) = open.pop() {
        match code.get(state.at).copied() {
            None => ends.push(state.trace),
            Some(instruction) => {
                state.at += 1;
                state.step(instruction, values, &mut open)?;
            }
        }
    }
    Some(ends)
}

impl State {
    fn set(&mut self, to: usize, value: u64, from: u32) {
        if to != 0 {
            self.trace.registers[to] = value;
            self.from[to] = from;
        }
    }

    fn get(&self, register: usize) -> u64 {
        self.trace.registers[register]
    }

    fn access(&self, base: usize, offset: u64, sort: Sort, order: Order) -> Option<Access> {
        let location = location(self.get(base).wrapping_add(offset))?;
        let (address, control) = (self.from[base], self.control);
        Some(Access { location, read: None, write: None, order, sort, address, data: 0, control, pair: None })
    }

    fn step(mut self, instruction: Instruction, values: &[u64], open: &mut Vec<Self>) -> Option<()> {
        let number = self.trace.accesses.len();
        match instruction {
            Instruction::Register { what, to, left, right } => {
                let from = self.from[left] | self.from[right];
                self.set(to, what.apply(self.get(left), self.get(right)), from);
            }
            Instruction::Immediate { what, to, left, value } => {
                self.set(to, what.apply(self.get(left), value), self.from[left]);
            }
            Instruction::Branch { when, left, right, target } => {
                self.control |= self.from[left] | self.from[right];
                if when.holds(self.get(left), self.get(right)) {
                    self.at = target;
                }
            }
            Instruction::Fence(fence) => self.trace.fences.push((number, fence)),
            Instruction::Load { to, base, offset, bytes } => {
                let access = self.access(base, offset, Sort::Plain, Order::default())?;
                self.read(access, to, bytes, values, open);
                return Some(());
            }
            Instruction::Reserved { to, base, bytes, order } => {
                let access = self.access(base, 0, Sort::Reserved, order)?;
                self.reserved = Some(number);
                self.read(access, to, bytes, values, open);
                return Some(());
            }
            Instruction::Store { from, base, offset, bytes } => {
                let access = self.access(base, offset, Sort::Plain, Order::default())?;
                self.write(access, from, bytes);
            }
            Instruction::Conditional { to, from, base, bytes, order } => {
                let pair = self.reserved.take();
                let mut fails = self.clone();
                fails.set(to, 1, 0);
                open.push(fails);
                let access = Access { pair, ..self.access(base, 0, Sort::Conditional, order)? };
                let is_same = pair.is_some_and(|lr| self.trace.accesses[lr].location == access.location);
                if !is_same {
                    return Some(());
                }
                self.write(access, from, bytes);
                self.set(to, 0, 0);
            }
            Instruction::Atomic { what, to, from, base, bytes, order } => {
                for value in values {
                    let mut next = self.clone();
                    let mut access = next.access(base, 0, Sort::Amo, order)?;
                    let atomic =
                        |operand| dsm::Store { page: dsm::Page(0), word: 0, mask: mask(bytes), value: operand };
                    let amo = dsm::Atomic { operation: what, to: atomic(next.get(from)), acquire: false };
                    access.read = Some(*value);
                    access.write = Some(extend(amo.perform(*value).0.value, bytes));
                    access.data = next.from[from];
                    next.trace.accesses.push(access);
                    next.set(to, extend(*value, bytes), 1 << number);
                    open.push(next);
                }
                return Some(());
            }
        }
        open.push(self);
        Some(())
    }

    fn read(self, access: Access, to: usize, bytes: u8, values: &[u64], open: &mut Vec<Self>) {
        let number = self.trace.accesses.len();
        for value in values {
            let mut next = self.clone();
            next.trace.accesses.push(Access { read: Some(*value), ..access });
            next.set(to, extend(*value, bytes), 1 << number);
            open.push(next);
        }
    }

    fn write(&mut self, access: Access, from: usize, bytes: u8) {
        let write = Some(extend(self.get(from), bytes));
        self.trace.accesses.push(Access { write, data: self.from[from], ..access });
    }
}

/// The bytes of an access to the first of a word.
pub const fn mask(bytes: u8) -> u8 {
    if bytes == 4 { 0x0f } else { 0xff }
}
