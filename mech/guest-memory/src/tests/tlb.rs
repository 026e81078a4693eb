//! A hart's TLB as the specification allows it: translations of each stage, and of both together, each until a fence that has to take it.

use addr::Gfn;
use alloc::collections::BTreeMap;
use gstage::LeafFound;
use tlb::Fence;

/// What a hart remembers, and forgets only when it must.
#[derive(Default)]
pub struct Tlb {
    /// Of the VS-stage: by VMID and page of the guest's addresses, the guest page.
    pub vs_stage: BTreeMap<(u16, u64), Gfn>,
    /// Of the G-stage: by VMID and first guest page.
    pub g_stage: BTreeMap<(u16, Gfn, bool), LeafFound>,
    /// Of both: by VMID and page of the guest's addresses.
    pub both: BTreeMap<(u16, u64), LeafFound>,
}

impl Tlb {
    /// A fence, with this VMID in `hgatp`.
    pub fn fence(&mut self, fence: Fence, current: u16) {
        match fence {
            Fence::None => {}
            Fence::Vmid(vmid) => {
                self.g_stage.retain(|(tag, ..), _| *tag != vmid.0);
                self.both.retain(|(tag, _), _| *tag != vmid.0);
            }
            Fence::Reused(vmid) => {
                assert_eq!(vmid.0, current, "the fence is of what hgatp holds");
                self.vvma(current);
            }
            Fence::All => {
                self.g_stage.clear();
                self.both.clear();
                self.vvma(current);
            }
        }
    }

    fn vvma(&mut self, current: u16) {
        self.vs_stage.retain(|(tag, _), _| *tag != current);
        self.both.retain(|(tag, _), _| *tag != current);
    }

    /// The leaf of a guest page.
    pub fn leaf(&self, tag: u16, gfn: Gfn) -> Option<LeafFound> {
        let found = self.g_stage.get(&(tag, gfn, false)).or_else(|| self.g_stage.get(&(tag, gfn.large_base(), true)));
        found.copied()
    }
}
