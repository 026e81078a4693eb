//! What two guests' kernels have at the same addresses: modules. Their own page tables tell where it is in their memory, which is
//! a hint like any other: it may be out of date, or a lie, and pages are compared all the same.

use super::{Candidate, alive};
use crate::{
    hart::PreemptionPoint,
    vm::{
        Vm,
        memory::Candidates,
        shared::{SharedVcpu, request},
    },
};
use addr::{Gfn, VmId};
use device::GuestMemory;
use rv_pte::{Level, PteFlags, Satp};

/// Where kernels lie: what a branch of 2 GiB reaches from code at the end of the address space, and as much before it.
const FIRST: u64 = 0xffff_ffff_0000_0000;
/// Addresses looked up in one step.
const LOOKS: usize = 32;
/// Steps that two guests have to tell their page tables.
const PATIENCE: u32 = 100;

/// A walk over the kernels of two guests.
#[derive(Debug)]
pub(super) struct Kernels {
    original: VmId,
    copy: VmId,
    /// The next address.
    at: u64,
    waited: u32,
}

impl Kernels {
    /// Asks both for their page tables.
    pub(super) fn new(original: VmId, copy: VmId) -> Option<Self> {
        for vm in [original, copy] {
            let life = alive(vm)?;
            let vcpu = first_vcpu(&life)?;
            vcpu.forget_root();
            vcpu.request(request::TELL_ROOT);
            crate::vm::shared::kick(vcpu);
        }
        Some(Self { original, copy, at: FIRST, waited: 0 })
    }

    /// Whether it needs this guest.
    pub(super) fn concerns(&self, vm: VmId) -> bool {
        [self.original, self.copy].contains(&vm)
    }

    /// A bounded piece of it: what may be merged; `None` when it has ended.
    pub(super) fn step(&mut self, point: &mut PreemptionPoint<'_>) -> Option<Option<Candidate>> {
        let (original, copy) = (alive(self.original)?, alive(self.copy)?);
        let Some((theirs, own)) = first_vcpu(&original)?.root().zip(first_vcpu(&copy)?.root()) else {
            self.waited += 1;
            return (self.waited < PATIENCE).then_some(None);
        };
        let mut candidates = Candidates::new();
        for _ in 0..LOOKS {
            if self.at < FIRST || candidates.is_full() {
                break;
            }
            let (level, page) = page_at(&copy, own, self.at);
            if let Some(page) = page
                && let (_, Some(like)) = page_at(&original, theirs, self.at)
            {
                candidates.push((like, page));
            }
            // The end of the address space is followed by its beginning.
            self.at = (self.at | (level.entry_bytes() - 1)).wrapping_add(1);
            if !point.may_go_on() {
                break;
            }
        }
        let is_at_end = self.at < FIRST;
        (!is_at_end || !candidates.is_empty()).then(|| Some((original, copy, candidates)))
    }
}

fn first_vcpu(vm: &Vm) -> Option<&SharedVcpu> {
    vm.vcpus().first()
}

/// The single page that a guest's kernel has at an address, and the level of the entry that says so.
#[inline(never)]
fn page_at(vm: &Vm, root: u64, address: u64) -> (Level, Option<Gfn>) {
    let Ok(Some(root)) = Satp::decode(root) else { return (Level::GIGA, None) };
    let read = |table: addr::Mfn, index: usize| {
        let entry = Gfn::new(table.raw()).addr().checked_add(8 * index as u64)?;
        vm.memory().read_u64(entry).ok()
    };
    let (level, leaf) = rv_pte::walk(root, address, read);
    let page = leaf.filter(|leaf| level == Level::BASE && !leaf.flags.contains(PteFlags::U));
    (level, page.map(|leaf| Gfn::new(leaf.frame.raw())))
}
