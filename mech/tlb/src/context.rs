//! A vCPU's TLB tag and what it has seen.

use addr::{CpuIndex, Vmid};

use crate::vmid::{Era, Former};
use crate::{HartVmids, ShootdownTracker, TlbGeneration};

/// The fence to execute before the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// None: the TLB holds nothing stale under this VMID.
    None,
    /// `hfence.gvma` for the VMID.
    Vmid(Vmid),
    /// `hfence.vvma`, once `hgatp` holds this VMID: it was another vCPU's in an earlier era. (`hfence.gvma` leaves the VS-stage
    /// alone, and `hfence.vvma` acts on the VMID that `hgatp` holds.)
    Reused(Vmid),
    /// `hfence.gvma` for all VMIDs and addresses, and then `hfence.vvma` as for [`Fence::Reused`]. After `hgatp` holds the new value, so
    /// that nothing is fetched ahead under the old one in between.
    All,
}

/// What to do to enter a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the fence has to be executed, then `TlbContext::fenced` called"]
pub struct Entry {
    /// The tag for `hgatp`.
    pub vmid: Vmid,
    /// Execute this after `hgatp` is written and before the guest runs.
    pub fence: Fence,
    generation: TlbGeneration,
}

/// One vCPU's VMID and the newest shootdown generation that the TLB entries under it have passed. Owned by the hart
/// that runs the vCPU.
///
/// A VMID belongs to a *vCPU*, not to a VM: two vCPUs of a guest that take turns on one hart may use the same ASID for
/// different address spaces, so their VS-stage entries must not be mixed; and a vCPU that comes back to a hart gets a
/// new number there, because its guest may have fenced elsewhere in the meantime.
#[derive(Debug, Default)]
pub struct TlbContext {
    home: Option<(CpuIndex, Era, Vmid)>,
    seen: TlbGeneration,
}

impl TlbContext {
    /// A vCPU that has run nowhere.
    #[must_use]
    pub const fn new() -> Self {
        Self { home: None, seen: TlbGeneration::NONE }
    }

    /// The calling hart `cpu` is about to run this vCPU: marks it inside the VM and says what to do first. After the
    /// fence (even [`Fence::None`]) call [`TlbContext::fenced`]; after the guest's exit [`ShootdownTracker::leave`].
    #[inline]
    pub fn enter(&mut self, cpu: CpuIndex, vmids: &mut HartVmids, tracker: &ShootdownTracker) -> Entry {
        let generation = tracker.enter(cpu);
        match self.home {
            Some((home, era, vmid)) if home == cpu && era == vmids.era() => {
                let fence = if self.seen < generation { Fence::Vmid(vmid) } else { Fence::None };
                Entry { vmid, fence, generation }
            }
            Some(_) | None => self.settle(cpu, vmids, generation),
        }
    }

    /// The fence of `entry` has been executed.
    #[inline]
    pub fn fenced(&mut self, cpu: CpuIndex, tracker: &ShootdownTracker, entry: Entry) {
        self.seen = entry.generation;
        tracker.passed(cpu, entry.generation);
    }

    /// Forget the VMID: at the next entry a fresh one is used. For a change of the root table that no shootdown
    /// announces, or to have all VS-stage entries gone without a fence.
    pub fn forget(&mut self) {
        self.home = None;
    }

    #[cold]
    fn settle(&mut self, cpu: CpuIndex, vmids: &mut HartVmids, generation: TlbGeneration) -> Entry {
        let (vmid, former) = vmids.assign();
        self.home = Some((cpu, vmids.era(), vmid));
        let fence = match former {
            Former::Nothing => Fence::None,
            Former::VsStage => Fence::Reused(vmid),
            Former::Everything => Fence::All,
        };
        Entry { vmid, fence, generation }
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
