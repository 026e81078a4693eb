//! What a machine knows of a page that is, or was, shared.

use alloc::collections::BTreeMap;

use dsm_wire::{History, MachineId, Machines, Message, Mode, Page, Want};

use crate::pages::Rights;

/// A machine's part in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It has no copy.
    Outside,
    /// It has a copy.
    Copy,
    /// It has a copy and knows who else has one.
    Owner,
}

/// What an owner does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The requester gets a copy.
    Copy,
    /// The requester gets a copy and may write to it, as everybody may.
    Multi,
    /// The requester becomes the owner and only writer; everybody keeps the copy.
    Single,
    /// The requester becomes the owner and throws out all copies.
    Take,
}

/// What comes when a task has all that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The answer to a request.
    Answer(Plan, Want, MachineId),
    /// The only copy is this machine's.
    Sole {
        /// Somebody asked the home for it, which waits to hear the end.
        asked: bool,
    },
    /// This machine is the only writer.
    Single,
}

/// What an owner is about. There is one at a time for each page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Who has not yet stopped.
    pub waits: Machines,
    /// So many stores of this machine had been logged when it began; it waits until they have their places.
    pub drain: u64,
    pub then: Then,
}

/// A request of this machine that has not been answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fetch {
    pub want: Want,
    /// Stores that got their places since this machine had no copy: for each word, which bytes and what.
    pub since: BTreeMap<u16, (u8, u64)>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    pub role: Role,
    pub mode: Mode,
    /// Whoever else has a copy; the owner's.
    pub copyset: Machines,
    pub history: History,
    /// Stores of this machine since anybody else's.
    pub run: u8,
    pub fetch: Option<Fetch>,
    pub task: Option<Task>,
    /// The owner said stop, and this machine's stores until then have no places yet.
    pub stopping: Option<(MachineId, Mode, u64)>,
    /// A message that waits for a task or for harts.
    pub queued: Option<(MachineId, Message)>,
    /// Harts that must make progress before the page changes.
    pub held: u64,
    pub rights: Rights,
}

impl Local {
    /// A page that nobody else has ever had, or of which nothing is known.
    pub const fn new(is_ours: bool) -> Self {
        Self {
            role: if is_ours { Role::Owner } else { Role::Outside },
            mode: Mode::Invalidate,
            copyset: Machines::NONE,
            history: History { shared: 0, returns: 0, plain: 0 },
            run: 0,
            fetch: None,
            task: None,
            stopping: None,
            queued: None,
            held: 0,
            rights: if is_ours { Rights::ReadWrite } else { Rights::None },
        }
    }

    /// Whether harts may write without anybody seeing it.
    pub fn is_exclusive(&self) -> bool {
        self.rights == Rights::ReadWrite
    }

    /// Whether this machine may log stores.
    pub fn may_log(&self) -> bool {
        let is_writer = match self.mode {
            Mode::Invalidate => false,
            Mode::Single => self.role == Role::Owner,
            Mode::Multi => self.role != Role::Outside,
        };
        is_writer && self.task.is_none() && self.stopping.is_none()
    }

    /// Whether nothing is going on and the page may change at a message's wish.
    pub const fn is_free(&self) -> bool {
        self.task.is_none() && self.stopping.is_none() && self.held == 0
    }
}

/// Where somebody is in the queue of a page's home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    pub who: MachineId,
    pub want: Want,
    pub page: Page,
}
