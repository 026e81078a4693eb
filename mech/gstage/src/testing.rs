//! Harts for host tests: each keeps every translation that it is allowed to keep, and all that happens is recorded.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use addr::{CpuIndex, Gfn, Mfn, Vmid};
use frames::{Frames, MachineMemory, PageState, PendingShootdown};
use tlb::{Fence, HartVmids, ShootdownTracker, TlbContext};

use crate::{LeafFound, NodeTable};

/// What happened, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A hart entered the VM, after this fence.
    Entered {
        /// The hart.
        cpu: CpuIndex,
        /// What it executed first.
        fence: Fence,
    },
    /// A hart left the VM.
    Left {
        /// The hart.
        cpu: CpuIndex,
    },
    /// A hart was interrupted for a shootdown.
    Kicked {
        /// The hart.
        cpu: CpuIndex,
    },
    /// So many pages went back to the allocator.
    Freed {
        /// Pages.
        pages: u64,
    },
}

struct Hart {
    vmids: HartVmids,
    vcpu: TlbContext,
    /// The VMID that it runs under.
    inside: Option<Vmid>,
    /// By VMID and first guest page. The worst that hardware may do: nothing is ever forgotten but by a fence.
    tlb: BTreeMap<(u16, Gfn), LeafFound>,
}

/// One VM's vCPUs, one on each hart.
pub struct FakeMachine<'a> {
    frames: &'a Frames,
    /// Who is inside.
    pub tracker: ShootdownTracker,
    harts: Vec<Hart>,
    events: Vec<Event>,
}

impl<'a> FakeMachine<'a> {
    /// `harts` harts with VMIDs of `vmid_bits` bits.
    #[must_use]
    pub fn new(frames: &'a Frames, harts: usize, vmid_bits: u8) -> Self {
        let hart =
            |_| Hart { vmids: HartVmids::new(vmid_bits), vcpu: TlbContext::new(), inside: None, tlb: BTreeMap::new() };
        Self {
            frames,
            tracker: ShootdownTracker::new(harts),
            harts: (0..harts).map(hart).collect(),
            events: Vec::new(),
        }
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        core::mem::take(&mut self.events)
    }

    /// `cpu` enters the guest with `table`, and its TLB fills with all that the table says.
    ///
    /// # Panics
    /// If it can now reach a page that is free.
    pub fn enter<M: MachineMemory>(&mut self, cpu: CpuIndex, table: &NodeTable, memory: &M) {
        let hart = &mut self.harts[cpu.index()];
        let entry = hart.vcpu.enter(cpu, &mut hart.vmids, &self.tracker);
        match entry.fence {
            // VS-stage translations are not modelled here.
            Fence::None | Fence::Reused(_) => {}
            Fence::Vmid(vmid) => hart.tlb.retain(|(tag, _), _| *tag != vmid.0),
            Fence::All => hart.tlb.clear(),
        }
        hart.vcpu.fenced(cpu, &self.tracker, entry);
        hart.inside = Some(entry.vmid);
        self.events.push(Event::Entered { cpu, fence: entry.fence });
        self.fill(cpu, table, memory);
        self.check(cpu);
    }

    /// The walker of `cpu`, which is inside, looks at all of `table`. What it knows already it believes.
    pub fn fill<M: MachineMemory>(&mut self, cpu: CpuIndex, table: &NodeTable, memory: &M) {
        let hart = &mut self.harts[cpu.index()];
        if let Some(vmid) = hart.inside {
            table.for_each_leaf(memory, |leaf| {
                hart.tlb.entry((vmid.0, leaf.gfn)).or_insert(leaf);
            });
        }
    }

    /// `cpu` leaves the guest; its TLB stays as it is.
    pub fn leave(&mut self, cpu: CpuIndex) {
        if self.harts[cpu.index()].inside.take().is_some() {
            self.tracker.leave(cpu);
            self.events.push(Event::Left { cpu });
        }
    }

    /// Interrupts the harts that `pending` needs, and frees its pages.
    ///
    /// # Panics
    /// If that does not complete it, or a hart that is still inside can reach a page that was freed.
    pub fn shoot_down<M: MachineMemory>(&mut self, memory: &M, pending: PendingShootdown) {
        for cpu in pending.targets(&self.tracker).iter() {
            self.events.push(Event::Kicked { cpu });
            self.leave(cpu);
        }
        let freeable = pending.redeem(&self.tracker).expect("all that were behind have left");
        let pages = freeable.free_all(self.frames, memory);
        self.events.push(Event::Freed { pages });
        (0..self.harts.len() as u16).for_each(|cpu| self.check(CpuIndex(cpu)));
    }

    /// Through what `cpu` can reach the machine page right now, if it can.
    #[must_use]
    pub fn reaches(&self, cpu: CpuIndex, mfn: Mfn) -> Option<LeafFound> {
        let hart = &self.harts[cpu.index()];
        let vmid = hart.inside?;
        let names = |leaf: &&LeafFound| mfn >= leaf.mfn && mfn.raw() - leaf.mfn.raw() < leaf.size.base_pages();
        hart.tlb.iter().filter(|((tag, _), _)| *tag == vmid.0).map(|(_, leaf)| leaf).find(names).copied()
    }

    /// No hart inside may know a page that is free.
    fn check(&self, cpu: CpuIndex) {
        let hart = &self.harts[cpu.index()];
        let Some(vmid) = hart.inside else { return };
        for ((_, gfn), leaf) in hart.tlb.iter().filter(|((tag, _), _)| *tag == vmid.0) {
            for page in 0..leaf.size.base_pages() {
                let mfn = Mfn::new(leaf.mfn.raw() + page);
                let state = self.frames.map().info(mfn).map(|info| info.state);
                assert_ne!(state, Some(PageState::Free), "{cpu:?} reaches {mfn:?} through {gfn:?}, and it is free");
            }
        }
    }
}
