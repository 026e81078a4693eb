//! A page's life.

use addr::{Mfn, NodeId};

/// What backs one guest page.
///
/// Nothing in the monitor makes pages [`Zero`](Self::Zero), [`PagedOut`](Self::PagedOut) or [`Remote`](Self::Remote) yet. Paging and one
/// machine out of many will; the model checker goes through them already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageState {
    /// Never touched, or given back: reads as zero once touched.
    Absent,
    /// Read so far, never written: a node's zero page, read-only, stands in for it.
    Zero,
    /// A machine page of its own.
    Private {
        /// The page.
        mfn: Mfn,
        /// Devices at work on it: it cannot be taken away or moved.
        pins: u8,
        /// The leaves are read-only until [`Event::Write`]: it is not written since [`Event::Watch`] (dirty tracking), or it
        /// has just taken the place of another page with the same contents, which some TLB may still know. Were it written
        /// before the shootdown of that one has ended, one vCPU would see the new contents and another the old ones.
        watched: bool,
    },
    /// A machine page that others have too: read-only for all (Disco, "Copy-on-Write Disks").
    Shared {
        /// The page.
        mfn: Mfn,
        /// Devices reading from it.
        pins: u8,
    },
    /// Read-only copies on several nodes (Disco, "NUMA memory management").
    Replicated {
        /// The copy that stays when the others go.
        master: Mfn,
        /// Bit `n`: node `n` has a copy besides the master (found through the master's memmap row).
        nodes: u8,
    },
    /// On disk.
    PagedOut {
        /// Where: below 2^52.
        slot: u64,
    },
    /// On another machine (vNUMA).
    Remote {
        /// Which machine has it.
        holder: u16,
    },
}

/// [`PageState`] without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "documented at PageState")]
pub enum StateKind {
    Absent = 0,
    Zero = 1,
    Private = 2,
    Shared = 3,
    Replicated = 4,
    PagedOut = 5,
    Remote = 6,
}

impl StateKind {
    /// How many kinds there are.
    pub const COUNT: usize = 7;
}

/// What a G-stage leaf may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rights {
    /// No leaf.
    None,
    /// Read and execute.
    Read,
    /// Read, execute and write.
    ReadWrite,
}

/// What happens to a page. Those that lead to the states which nothing makes yet come from tests only. Frames named here are brought by the caller, clean unless `contents` fills them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A zeroed page of its own.
    Populate {
        /// The page.
        mfn: Mfn,
    },
    /// Only read so far: the zero page.
    PopulateZero,
    /// Replace whatever there is by a page that others have (a disk read answered from the cache).
    MapShared {
        /// The page.
        mfn: Mfn,
    },
    /// Others map this page from now on.
    Share,
    /// A write to a shared page: a copy of its own, to be written after its shootdown ([`Event::Write`]).
    BreakSharing {
        /// The copy.
        copy: Mfn,
    },
    /// A write to a shared page that nobody else has any more.
    TakeSole,
    /// A copy for the readers on one more node. A private page has been watched before, as for [`Event::Migrate`].
    Replicate {
        /// The node.
        node: NodeId,
    },
    /// A write to a replicated page: only the master stays, to be written after its shootdown ([`Event::Write`]).
    Collapse,
    /// Its contents move to another machine page. Nobody writes it meanwhile: it has been watched ([`Event::Watch`]), and the
    /// shootdown of that has ended without a write.
    Migrate {
        /// The new page.
        to: Mfn,
    },
    /// A device starts using it.
    Pin,
    /// A device is done with it.
    Unpin,
    /// Tell whether it is written from now on.
    Watch,
    /// The guest wants to write it and is allowed to, but it is watched; all shootdowns of pages that it has replaced have
    /// ended.
    Write,
    /// Its contents go to disk.
    PageOut {
        /// Where: below 2^52.
        slot: u64,
    },
    /// Its contents come from disk.
    PageIn {
        /// The page that holds them.
        mfn: Mfn,
    },
    /// Another machine takes it.
    Depart {
        /// Which.
        holder: u16,
    },
    /// It comes from another machine.
    Arrive {
        /// The page that holds it.
        mfn: Mfn,
    },
    /// The guest gives it back, or ends.
    Release,
}

/// What has to happen to the leaves that map the page, in the tables of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LeafChange {
    /// Nothing.
    #[default]
    Keep,
    /// More is allowed than before: no shootdown, a stale leaf only faults once more.
    Strengthen,
    /// Take the write permission away, with a shootdown.
    Weaken,
    /// Remove them, with a shootdown.
    Remove,
}

/// What has to happen to contents, once the leaves have changed everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Contents {
    /// Nothing.
    #[default]
    Keep,
    /// Copy this page into the event's new one.
    CopyFrom(Mfn),
    /// Write this page to the event's slot or machine.
    Save(Mfn),
    /// The event's page is filled from this slot, which is free afterwards.
    LoadFrom(u64),
}

/// What makes a transition true, in this order: leaves (and their shootdown), contents, references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Actions {
    /// The leaves.
    pub leaves: LeafChange,
    /// The contents.
    pub contents: Contents,
    /// The page that the guest page refers to besides (memmap: one more back-map).
    pub attach: Option<Mfn>,
    /// The page that it no longer refers to (memmap: one back-map less; freed behind the shootdown if it was the last).
    pub detach: Option<Mfn>,
    /// All replicas but the master go.
    pub detach_replicas: bool,
    /// A paging slot that nobody needs any more.
    pub free_slot: Option<u64>,
}

/// Why a transition does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The event makes no sense in this state.
    Impossible {
        /// The state.
        state: StateKind,
    },
    /// A device is using the page.
    Pinned,
    /// More pins than can be counted, or an unpin without a pin.
    PinCount,
    /// Its contents are to be copied, and the guest may write to it.
    NotWatched,
    /// The page moves to where it is.
    SamePage,
    /// The node has a copy already, or cannot be named (nodes 0 to 7 can).
    BadNode,
    /// A paging slot number of more than 52 bits.
    BadSlot,
}

impl PageState {
    /// Its kind.
    #[must_use]
    pub const fn kind(self) -> StateKind {
        match self {
            Self::Absent => StateKind::Absent,
            Self::Zero => StateKind::Zero,
            Self::Private { .. } => StateKind::Private,
            Self::Shared { .. } => StateKind::Shared,
            Self::Replicated { .. } => StateKind::Replicated,
            Self::PagedOut { .. } => StateKind::PagedOut,
            Self::Remote { .. } => StateKind::Remote,
        }
    }

    /// A private page as it is when new.
    #[must_use]
    pub const fn private(mfn: Mfn) -> Self {
        Self::Private { mfn, pins: 0, watched: false }
    }

    /// The machine page that backs it (the master of a replicated one).
    #[must_use]
    pub const fn mfn(self) -> Option<Mfn> {
        match self {
            Self::Private { mfn, .. } | Self::Shared { mfn, .. } | Self::Replicated { master: mfn, .. } => Some(mfn),
            Self::Absent | Self::Zero | Self::PagedOut { .. } | Self::Remote { .. } => None,
        }
    }

    /// What a leaf may allow in this state.
    #[must_use]
    pub const fn rights(self) -> Rights {
        match self {
            Self::Private { watched: false, .. } => Rights::ReadWrite,
            Self::Private { watched: true, .. } | Self::Zero | Self::Shared { .. } | Self::Replicated { .. } => {
                Rights::Read
            }
            Self::Absent | Self::PagedOut { .. } | Self::Remote { .. } => Rights::None,
        }
    }
}

/// One step of a page's life: the next state, and what makes it true. Total and pure.
///
/// # Errors
/// [`Refused`] when there is no such transition; nothing happens then.
pub const fn step(state: PageState, event: Event) -> Result<(PageState, Actions), Refused> {
    use PageState::{Absent, PagedOut, Private, Remote, Replicated, Shared, Zero};
    let impossible = Err(Refused::Impossible { state: state.kind() });
    match event {
        Event::Populate { mfn } => match state {
            Absent => Ok((PageState::private(mfn), NOTHING)),
            Zero => Ok((PageState::private(mfn), REMOVE)),
            Private { .. } | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::PopulateZero => match state {
            Absent => Ok((Zero, NOTHING)),
            Zero | Private { .. } | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::MapShared { mfn } => map_shared(state, mfn),
        Event::Share => match state {
            Private { pins: 1.., .. } => Err(Refused::Pinned),
            Private { mfn, pins: 0, .. } => Ok((Shared { mfn, pins: 0 }, WEAKEN)),
            Absent | Zero | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::BreakSharing { copy } => match state {
            Shared { pins: 1.., .. } => Err(Refused::Pinned),
            Shared { mfn, pins: 0 } => moved(mfn, copy),
            Absent | Zero | Private { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::TakeSole => match state {
            Shared { mfn, pins } => Ok((Private { mfn, pins, watched: false }, STRENGTHEN)),
            Absent | Zero | Private { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::Replicate { node } => replicate(state, node),
        Event::Collapse => match state {
            Replicated { master, .. } => Ok((replacing(master), Actions { detach_replicas: true, ..REMOVE })),
            Absent | Zero | Private { .. } | Shared { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::Migrate { to } => match state {
            Private { pins: 1.., .. } => Err(Refused::Pinned),
            Private { watched: false, .. } => Err(Refused::NotWatched),
            Private { mfn, pins: 0, watched: true } => moved(mfn, to),
            Absent | Zero | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::Pin => change_pins(state, 1),
        Event::Unpin => change_pins(state, -1),
        Event::Watch => match state {
            Private { mfn, pins, .. } => Ok((Private { mfn, pins, watched: true }, WEAKEN)),
            Absent | Zero | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::Write => match state {
            Private { mfn, pins, watched: true } => Ok((Private { mfn, pins, watched: false }, STRENGTHEN)),
            Private { watched: false, .. } => impossible,
            Absent | Zero | Shared { .. } | Replicated { .. } | PagedOut { .. } | Remote { .. } => impossible,
        },
        Event::PageOut { slot } if slot >> 52 != 0 => Err(Refused::BadSlot),
        Event::PageOut { slot } => leave(state, PagedOut { slot }),
        Event::PageIn { mfn } => match state {
            PagedOut { slot } => {
                let actions = Actions { contents: Contents::LoadFrom(slot), free_slot: Some(slot), ..NOTHING };
                Ok((PageState::private(mfn), actions))
            }
            Absent | Zero | Private { .. } | Shared { .. } | Replicated { .. } | Remote { .. } => impossible,
        },
        Event::Depart { holder } => leave(state, Remote { holder }),
        Event::Arrive { mfn } => match state {
            Remote { .. } => Ok((PageState::private(mfn), NOTHING)),
            Absent | Zero | Private { .. } | Shared { .. } | Replicated { .. } | PagedOut { .. } => impossible,
        },
        Event::Release => release(state),
    }
}

const NOTHING: Actions = Actions {
    leaves: LeafChange::Keep,
    contents: Contents::Keep,
    attach: None,
    detach: None,
    detach_replicas: false,
    free_slot: None,
};
const REMOVE: Actions = Actions { leaves: LeafChange::Remove, ..NOTHING };
const WEAKEN: Actions = Actions { leaves: LeafChange::Weaken, ..NOTHING };
const STRENGTHEN: Actions = Actions { leaves: LeafChange::Strengthen, ..NOTHING };

/// A private page of its own elsewhere, with the same contents.
const fn moved(from: Mfn, to: Mfn) -> Result<(PageState, Actions), Refused> {
    if from.raw() == to.raw() {
        return Err(Refused::SamePage);
    }
    let actions = Actions { contents: Contents::CopyFrom(from), detach: Some(from), ..REMOVE };
    Ok((replacing(to), actions))
}

/// A page with the contents of another one that TLBs may still know: nobody may write it yet.
const fn replacing(mfn: Mfn) -> PageState {
    PageState::Private { mfn, pins: 0, watched: true }
}

const fn map_shared(state: PageState, mfn: Mfn) -> Result<(PageState, Actions), Refused> {
    if let Some(old) = state.mfn()
        && old.raw() == mfn.raw()
    {
        return Err(Refused::SamePage);
    }
    match release(state) {
        Ok((_, actions)) => Ok((PageState::Shared { mfn, pins: 0 }, Actions { attach: Some(mfn), ..actions })),
        Err(why) => Err(why),
    }
}

const fn replicate(state: PageState, node: NodeId) -> Result<(PageState, Actions), Refused> {
    if node.0 >= 8 {
        return Err(Refused::BadNode);
    }
    let bit = 1 << node.0;
    match state {
        PageState::Private { pins: 1.., .. } => Err(Refused::Pinned),
        PageState::Private { watched: false, .. } => Err(Refused::NotWatched),
        PageState::Private { mfn, pins: 0, watched: true } => {
            let actions = Actions { contents: Contents::CopyFrom(mfn), ..REMOVE };
            Ok((PageState::Replicated { master: mfn, nodes: bit }, actions))
        }
        PageState::Replicated { nodes, .. } if nodes & bit != 0 => Err(Refused::BadNode),
        PageState::Replicated { master, nodes } => {
            let actions = Actions { contents: Contents::CopyFrom(master), ..REMOVE };
            Ok((PageState::Replicated { master, nodes: nodes | bit }, actions))
        }
        PageState::Absent
        | PageState::Zero
        | PageState::Shared { .. }
        | PageState::PagedOut { .. }
        | PageState::Remote { .. } => Err(Refused::Impossible { state: state.kind() }),
    }
}

const fn change_pins(state: PageState, by: i8) -> Result<(PageState, Actions), Refused> {
    match state {
        PageState::Private { mfn, pins, watched } => match pins.checked_add_signed(by) {
            Some(pins) => Ok((PageState::Private { mfn, pins, watched }, NOTHING)),
            None => Err(Refused::PinCount),
        },
        PageState::Shared { mfn, pins } => match pins.checked_add_signed(by) {
            Some(pins) => Ok((PageState::Shared { mfn, pins }, NOTHING)),
            None => Err(Refused::PinCount),
        },
        PageState::Absent
        | PageState::Zero
        | PageState::Replicated { .. }
        | PageState::PagedOut { .. }
        | PageState::Remote { .. } => Err(Refused::Impossible { state: state.kind() }),
    }
}

/// A private page's contents go elsewhere.
const fn leave(state: PageState, to: PageState) -> Result<(PageState, Actions), Refused> {
    match state {
        PageState::Private { pins: 1.., .. } => Err(Refused::Pinned),
        PageState::Private { mfn, pins: 0, .. } => {
            Ok((to, Actions { contents: Contents::Save(mfn), detach: Some(mfn), ..REMOVE }))
        }
        PageState::Absent
        | PageState::Zero
        | PageState::Shared { .. }
        | PageState::Replicated { .. }
        | PageState::PagedOut { .. }
        | PageState::Remote { .. } => Err(Refused::Impossible { state: state.kind() }),
    }
}

const fn release(state: PageState) -> Result<(PageState, Actions), Refused> {
    let actions = match state {
        PageState::Absent | PageState::Remote { .. } => NOTHING,
        PageState::Zero => REMOVE,
        PageState::Private { pins: 1.., .. } | PageState::Shared { pins: 1.., .. } => return Err(Refused::Pinned),
        PageState::Private { mfn, pins: 0, .. } | PageState::Shared { mfn, pins: 0 } => {
            Actions { detach: Some(mfn), ..REMOVE }
        }
        PageState::Replicated { master, .. } => Actions { detach: Some(master), detach_replicas: true, ..REMOVE },
        PageState::PagedOut { slot } => Actions { free_slot: Some(slot), ..NOTHING },
    };
    Ok((PageState::Absent, actions))
}
