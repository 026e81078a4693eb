//! The messages of the coherence protocol.

use alloc::vec::Vec;

/// A machine of the cluster: its number, below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u8);

/// A page of the VM's physical memory: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// A set of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machines(pub u64);

impl Machines {
    /// Nobody.
    pub const NONE: Self = Self(0);

    /// Whether `machine` is one of them.
    #[must_use]
    pub const fn has(self, machine: MachineId) -> bool {
        machine.0 < 64 && self.0 >> machine.0 & 1 == 1
    }

    /// These and `machine`.
    #[must_use]
    pub const fn with(self, machine: MachineId) -> Self {
        Self(self.0 | 1 << (machine.0 & 63))
    }

    /// These without `machine`.
    #[must_use]
    pub const fn without(self, machine: MachineId) -> Self {
        Self(self.0 & !(1 << (machine.0 & 63)))
    }

    /// Whether nobody is among them.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many they are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Each of them, the lowest number first.
    pub fn iter(self) -> impl Iterator<Item = MachineId> {
        (0..64).map(MachineId).filter(move |machine| self.has(*machine))
    }
}

/// How a page is kept the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Who writes has the only copy.
    Invalidate,
    /// Only the owner writes; its stores and atomics go to all copies.
    Single,
    /// Everybody who has a copy writes; stores go to all copies. No atomics.
    Multi,
}

/// What a hart needs a page for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Want {
    /// To load from it.
    Read,
    /// To store to it.
    Write,
    /// For an AMO or a pair of LR and SC.
    Atomic,
    /// To have the only copy.
    Sole,
}

/// What has been seen of a page, for the choice of its [`Mode`]. It travels with the ownership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// Times that somebody needed what somebody else had, since the page last had one user for long.
    pub shared: u8,
    /// Times that the page went from updates back to invalidation; each makes the next one later.
    pub returns: u8,
    /// Stores by others since the last atomic.
    pub plain: u8,
}

/// A store to at most eight bytes of one aligned word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The page.
    pub page: Page,
    /// Which eight bytes of it.
    pub word: u16,
    /// Which bytes of those: bit 0 is the lowest address.
    pub mask: u8,
    /// Their values, each at its place.
    pub value: u64,
}

/// What a page contains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Nobody has written to its whole block, which is the receiver's from here on.
    Block,
    /// Nobody has written to it.
    Zero,
    /// All its bytes.
    Bytes(Vec<u8>),
}

/// A step of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the page's home: the sender needs it.
    Request {
        /// The page.
        page: Page,
        /// What for.
        want: Want,
    },
    /// From the home to the owner: `requester` needs the page.
    Forward {
        /// The page.
        page: Page,
        /// What for.
        want: Want,
        /// Who.
        requester: MachineId,
    },
    /// From the owner to the requester: have a copy, or learn the mode of the one that you have.
    Copy {
        /// The page.
        page: Page,
        /// Its mode.
        mode: Mode,
        /// What it contains, if the requester has no copy.
        content: Option<Content>,
    },
    /// From the owner, or from the home if there was none, to the requester: you own the page.
    Grant {
        /// The page.
        page: Page,
        /// Its mode.
        mode: Mode,
        /// Who else has a copy.
        copyset: Machines,
        /// What has been seen of it.
        history: History,
        /// What it contains, if the requester has no copy.
        content: Option<Content>,
    },
    /// From the owner to who has a copy: write no more, or, with [`Mode::Invalidate`], have no copy any more.
    Stop {
        /// The page.
        page: Page,
        /// Its mode from here on.
        mode: Mode,
    },
    /// The answer: so it is, and all stores of the sender to this page are in the order.
    Stopped {
        /// The page.
        page: Page,
    },
    /// To the home: the request has been answered; this is the owner.
    Settled {
        /// The page.
        page: Page,
        /// Its owner.
        owner: MachineId,
    },
    /// To the machine that orders: stores, in the sender's order.
    Log {
        /// The stores; at most [`crate::MAX_STORES`].
        stores: Vec<Store>,
    },
    /// From the machine that orders to all: these stores are next.
    Update {
        /// Their place in the order: 1 for the first.
        place: u64,
        /// Whose they are.
        writer: MachineId,
        /// The stores.
        stores: Vec<Store>,
    },
}

impl Message {
    /// The pages that it is about, some perhaps twice.
    pub fn pages(&self) -> impl Iterator<Item = Page> + '_ {
        let (page, stores) = match self {
            Self::Request { page, .. }
            | Self::Forward { page, .. }
            | Self::Copy { page, .. }
            | Self::Grant { page, .. }
            | Self::Stop { page, .. }
            | Self::Stopped { page }
            | Self::Settled { page, .. } => (Some(*page), &[][..]),
            Self::Log { stores } | Self::Update { stores, .. } => (None, stores.as_slice()),
        };
        page.into_iter().chain(stores.iter().map(|store| store.page))
    }
}

/// A message as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The last place in the order that its sender had applied. Who has not come that far lets the message wait.
    pub stamp: u64,
    /// The message.
    pub message: Message,
}
