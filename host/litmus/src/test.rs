//! A test.

use dsm::Operation;

/// Registers of a thread.
pub const REGISTERS: usize = 32;

/// What an arithmetic instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Adds.
    Add,
    /// Bits that differ.
    Xor,
    /// Bits of either.
    Or,
    /// Bits of both.
    And,
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The registers are equal.
    Equal,
    /// They are not.
    NotEqual,
}

/// A fence: which accesses before it come before which behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Reads before it count.
    pub before_reads: bool,
    /// Writes before it count.
    pub before_writes: bool,
    /// Reads behind it count.
    pub after_reads: bool,
    /// Writes behind it count.
    pub after_writes: bool,
    /// `fence.tso`: all but writes before reads.
    pub is_tso: bool,
}

/// The annotations `.aq` and `.rl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// `.aq`.
    pub acquire: bool,
    /// `.rl`.
    pub release: bool,
}

/// An instruction. Registers are numbers; accesses have 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the operands of the instruction's assembly")]
pub enum Instruction {
    /// An operation of two registers.
    Register { what: Arithmetic, to: usize, left: usize, right: usize },
    /// An operation of a register and a number.
    Immediate { what: Arithmetic, to: usize, left: usize, value: u64 },
    /// A load.
    Load { to: usize, base: usize, offset: u64, bytes: u8 },
    /// A store.
    Store { from: usize, base: usize, offset: u64, bytes: u8 },
    /// An AMO.
    Atomic { what: Operation, to: usize, from: usize, base: usize, bytes: u8, order: Order },
    /// LR.
    Reserved { to: usize, base: usize, bytes: u8, order: Order },
    /// SC.
    Conditional { to: usize, from: usize, base: usize, bytes: u8, order: Order },
    /// A fence.
    Fence(Fence),
    /// Goes to the instruction with this number, which comes later.
    Branch { when: Compare, left: usize, right: usize, target: usize },
}

/// Something that the condition names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observable {
    /// A thread's register.
    Register(usize, usize),
    /// A location's last value.
    Location(usize),
}

/// A test.
#[derive(Clone, Debug)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Names of the locations.
    pub locations: Vec<String>,
    /// What each has at first.
    pub values: Vec<u64>,
    /// What registers have at first; a location's name stands for [`address`].
    pub registers: Vec<[u64; REGISTERS]>,
    /// The code of each thread.
    pub threads: Vec<Vec<Instruction>>,
    /// Equal to these values, all at once: what the test asks about.
    pub condition: Vec<(Observable, u64)>,
}

/// The address of a location. Each is in a page of its own.
#[must_use]
pub const fn address(location: usize) -> u64 {
    (location as u64 + 1) << 12
}

/// The location at an address; nothing if there is none.
#[must_use]
pub const fn location(address: u64) -> Option<usize> {
    if address.trailing_zeros() < 12 || address == 0 { None } else { Some((address >> 12) as usize - 1) }
}

impl Test {
    /// What the condition names, in its order. An end is the list of their values.
    #[must_use]
    pub fn observables(&self) -> Vec<Observable> {
        self.condition.iter().map(|(observable, _)| *observable).collect()
    }

    /// The end that the condition asks about.
    #[must_use]
    pub fn asked(&self) -> Vec<u64> {
        self.condition.iter().map(|(_, value)| *value).collect()
    }
}

/// The lowest `bytes` bytes of `value`, as a register has them after a load: the sign goes on.
#[must_use]
pub const fn extend(value: u64, bytes: u8) -> u64 {
    if bytes == 4 { value as u32 as i32 as i64 as u64 } else { value }
}

impl Arithmetic {
    /// The result.
    #[must_use]
    pub const fn apply(self, left: u64, right: u64) -> u64 {
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Xor => left ^ right,
            Self::Or => left | right,
            Self::And => left & right,
        }
    }
}

impl Compare {
    /// Whether the branch is taken.
    #[must_use]
    pub const fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}
