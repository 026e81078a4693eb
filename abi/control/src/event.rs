//! The trace of what the monitor did and why.

use addr::{CpuIndex, NodeId, VcpuIndex, VmId};
use serde::{Deserialize, Serialize};

use crate::Text;
use crate::name::{Label, Name};
use crate::setting::Setting;
use crate::vm::StopReason;

/// One thing that the monitor did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, rising by one over all that a monitor tells. A gap means that events were overwritten unread. Events of other
    /// cells get theirs where they arrive.
    pub sequence: u64,
    /// When, in ticks of the machine's clock.
    pub ticks: u64,
    /// On which hart, as its cell numbers them.
    pub hart: CpuIndex,
    /// In which cell of the machine.
    pub cell: u8,
    /// For which VM.
    pub vm: Option<VmLabel>,
    /// What.
    pub kind: EventKind,
}

impl Event {
    /// It as bytes, in `room`; `None` if that is too small. Takes no memory.
    #[must_use]
    pub fn to_bytes<'a>(&self, room: &'a mut [u8]) -> Option<&'a [u8]> {
        postcard::to_slice(self, room).ok().map(|bytes| &*bytes)
    }

    /// The event of such bytes; `None` if they are damaged or of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(event, _)| event)
    }
}

/// A VM in an event. It may be gone when the event is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmLabel {
    /// Its identity.
    pub id: VmId,
    /// Its name, while the monitor still knows it.
    pub name: Option<Name>,
}

/// What the monitor did. Those marked *frequent* are traced only with [`crate::MonitorOptions::trace`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// The monitor took the machine over.
    MachineBooted {
        /// Harts online.
        harts: u16,
        /// Nodes.
        nodes: u8,
        /// Memory free for VMs, in bytes.
        free_bytes: u64,
    },
    /// A hart came online.
    HartOnline,
    /// A VM was made.
    VmCreated {
        /// Its vCPUs.
        vcpus: u16,
        /// Its memory in MiB.
        memory_mib: u32,
    },
    /// A VM began to run.
    VmStarted,
    /// A VM was paused.
    VmPaused,
    /// A VM was resumed.
    VmResumed,
    /// A VM was reset, by its guest or by command.
    VmReset,
    /// A VM stopped.
    VmStopped {
        /// Why.
        reason: StopReason,
    },
    /// A VM was destroyed.
    VmDestroyed,
    /// A guest did what no guest may do. [`EventKind::VmStopped`] or [`EventKind::VmReset`] follows.
    GuestFault {
        /// The device or facility concerned.
        device: Text,
        /// What was wrong.
        reason: Text,
        /// The offending value.
        value: u64,
    },
    /// A vCPU moved to another hart. *Frequent.*
    VcpuMigrated {
        /// Which.
        vcpu: VcpuIndex,
        /// The hart before.
        from: CpuIndex,
        /// The hart now.
        to: CpuIndex,
        /// Why.
        reason: MigrationReason,
    },
    /// Pages came back from a VM: its end, or its balloon.
    PagesReturned {
        /// How many (4 KiB).
        pages: u64,
    },
    /// A check after a VM's end found pages that did not come back: a fault of the monitor.
    PagesLost {
        /// How many (4 KiB).
        pages: u64,
    },
    /// A disk of the machine failed.
    DiskError {
        /// The disk.
        disk: Name,
        /// The first sector concerned.
        sector: u64,
        /// Whether it was a write.
        write: bool,
    },
    /// The disk cache gave memory back under pressure.
    DiskCacheShrunk {
        /// Pages (4 KiB).
        pages: u64,
    },
    /// A module was uploaded.
    ModuleStored {
        /// Its name.
        name: Label,
        /// Its size in bytes.
        bytes: u64,
    },
    /// The control port carried bytes that are no frames.
    ControlGarbage {
        /// How many.
        bytes: u64,
    },
    /// A block of the disk cache was copied to a guest that could have had the page itself. Each reason is told once in a
    /// VM's life.
    SharingRefused {
        /// Why.
        reason: SharingRefusal,
    },
    /// A pass over a VM's memory has found what others have too, or nobody needs.
    PagesMerged {
        /// Pages (4 KiB) that one machine page backs now, together with another VM's.
        merged: u64,
        /// Pages that were nothing but zeroes, in whole 2 MiB blocks, and came back.
        zeroes: u64,
    },
    /// A VM's disk has no room for a modified block: its guest sees I/O errors. Told once in a
    /// life of the VM.
    DiskFull {
        /// The disk's name in the VM.
        disk: Name,
        /// The store that is full; the machine's memory if `None`.
        store: Option<Text>,
        /// The disk's limit in MiB, if it has reached that; `None`: there is no room although the disk may have it.
        limit_mib: Option<u32>,
    },
    /// The log of a store of modified blocks could not be written: it takes no more writes until the machine starts again.
    StoreFailed {
        /// The store.
        store: Text,
    },
    /// A snapshot is durable, or a volume or snapshot has been removed.
    VolumeChanged {
        /// The store.
        store: Text,
        /// Its name.
        name: Text,
        /// Whether it was removed.
        removed: bool,
    },
    /// Pages of a VM found a better place.
    PagesPlaced {
        /// What happened to them.
        action: PlacementAction,
        /// How many (4 KiB).
        pages: u64,
        /// The node that they went to, or that the one copy is on.
        node: NodeId,
        /// Why.
        reason: PlacementReason,
    },
    /// A hot page of a VM stays where it is. Each reason is told once in a VM's life.
    PlacementRefused {
        /// Why.
        reason: PlacementReason,
    },
    /// Finding a store's blocks takes as much memory as it may: writes to places far from all that was written before fail,
    /// though the store has free blocks. Told once.
    StoreIndexFull {
        /// The store.
        store: Text,
        /// How much it may take.
        bytes: u64,
    },
    /// Memory was short, so copies of pages on other nodes went.
    CopiesGivenUp {
        /// Pages (4 KiB).
        pages: u64,
    },
    /// The cells that go on have agreed that a cell is lost. Its VMs have ended with it. Each cell that goes on tells it for itself.
    CellLost {
        /// Which.
        cell: Name,
        /// The number of the set of cells that goes on without it.
        epoch: u16,
        /// How it was lost.
        cause: CellLoss,
        /// When the cell that tells it began to miss some cell, in ticks.
        noticed_ticks: u64,
    },
    /// The cell that tells it drives the machine's devices and answers clients from now on: the one that did is lost.
    TookOver {
        /// How long it took to take the devices over, in ticks.
        took_ticks: u64,
    },
    /// A setting of a VM was changed by command.
    VmSet {
        /// The setting and its new value.
        setting: Setting,
    },
    /// The vCPUs of a VM run together from now on: there are signs that they wait for each other. Told again only after the signs
    /// had faded.
    VmGathers {
        /// The sign that was the last one needed.
        sign: WaitSign,
    },
}

/// How a cell was lost, as another one sees it when they have agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CellLoss {
    /// The hardware says that its memory is gone.
    MemoryGone,
    /// A link is cut, and it is on the other side.
    OutOfReach,
    /// It said so itself: its monitor failed, or it lost a part of itself.
    Stopped,
    /// It is there and does nothing.
    Silent,
}

impl EventKind {
    /// Whether it begins, ends or holds up VMs' lives.
    #[must_use]
    pub const fn is_of_life(&self) -> bool {
        matches!(
            self,
            Self::VmCreated { .. }
                | Self::VmStarted
                | Self::VmPaused
                | Self::VmResumed
                | Self::VmReset
                | Self::VmStopped { .. }
                | Self::VmDestroyed
                | Self::CellLost { .. }
                | Self::TookOver { .. }
        )
    }
}

/// Which events a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Followed {
    /// All of them.
    All,
    /// Those of VMs' lives ([`EventKind::is_of_life`]): whoever waits for a VM costs the machine nothing meanwhile.
    Lives,
}

/// What placement does to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlacementAction {
    /// They moved.
    Migrated,
    /// A whole 2 MiB block moved.
    MigratedBlock,
    /// They have a copy on one more node.
    Replicated,
    /// They have one copy only again.
    Collapsed,
    /// Their 2 MiB block was split, so that they can go different ways.
    Split,
}

/// Why a page moves, is replicated, or stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PlacementReason {
    /// One node uses it.
    OneUser,
    /// Several nodes read it.
    Readers,
    /// The pages of a block have different users.
    SeveralUsers,
    /// Its users are on several nodes, and some write it.
    WriteShared,
    /// It was written.
    Written,
    /// It is in a 2 MiB block that other VMs have, too, and that is mapped as one.
    Shared,
    /// A device uses it.
    Pinned,
    /// It was tried too often.
    Tried,
    /// A vCPU has just changed nodes.
    Unsettled,
    /// The node has no memory for it.
    NoMemory,
    /// It was written, or changed in another way, while it was about to move.
    Raced,
    /// The VM is not to have it.
    SwitchedOff,
}

/// Why a page was not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SharingRefusal {
    /// No page was left for tables.
    NoMemory,
    /// The page's holders cannot be counted any more.
    TooManyReferences,
    /// The guest's buffer is not in its memory.
    NotRam,
    /// A device uses the guest's page.
    InUse,
}

/// Why a vCPU moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MigrationReason {
    /// Its hart was busy and another was idle.
    IdleElsewhere,
    /// The queues were uneven.
    Balance,
    /// The queues cannot be even, so vCPUs take turns on the better place.
    Turns,
    /// A hart is idle on the node that has its memory.
    Home,
    /// It kept its VM from running together, and a hart was idle.
    Together,
}

/// What shows that vCPUs of a VM wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitSign {
    /// One waited for a store (`wrs.nto`) while another one waited for its hart.
    Store,
    /// One used its slice up in a loop with `pause` while another one waited for its hart.
    Spin,
    /// One sent an interrupt or a fence to another one that waited for its hart.
    Call,
}
