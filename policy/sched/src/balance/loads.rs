//! What a snapshot says of each hart.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use addr::{CpuIndex, NodeId};

use super::{Activity, Snapshot, VcpuFacts};

/// What one hart has to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Sum of the weights of its runnable vCPUs.
    pub weight: u64,
    /// Its runnable vCPUs.
    pub runnable: u32,
    /// All its vCPUs.
    pub owned: u32,
    /// Sum of its runnable vCPUs' served thousandths.
    served_sum: u64,
}

impl Load {
    /// Average service of its runnable vCPUs in thousandths.
    pub fn served_permille(&self) -> u64 {
        self.served_sum.checked_div(u64::from(self.runnable)).unwrap_or(1_000)
    }

    fn add(&mut self, vcpu: &VcpuFacts) {
        self.owned += 1;
        if vcpu.activity.is_runnable() {
            self.runnable += 1;
            self.weight += u64::from(vcpu.weight);
            self.served_sum += u64::from(vcpu.served_permille);
        }
    }

    fn remove(&mut self, vcpu: &VcpuFacts) {
        self.owned = self.owned.saturating_sub(1);
        if vcpu.activity.is_runnable() {
            self.runnable = self.runnable.saturating_sub(1);
            self.weight = self.weight.saturating_sub(u64::from(vcpu.weight));
            self.served_sum = self.served_sum.saturating_sub(u64::from(vcpu.served_permille));
        }
    }
}

/// The loads of all harts.
pub struct Loads<'a> {
    snapshot: Snapshot<'a>,
    /// The harts that count.
    part: Range<usize>,
    by_hart: Vec<Load>,
    /// The last vCPU of each hart, and for each vCPU the one before it on its hart; one more than its position, 0 for none.
    last_of: Vec<usize>,
    before: Vec<usize>,
}

impl<'a> Loads<'a> {
    /// Of these harts, with the vCPUs that they own. Others count as if they had none.
    pub fn new(snapshot: Snapshot<'a>, part: Range<usize>) -> Self {
        let part = part.start..part.end.min(snapshot.harts.len());
        // Bounded: harts of the machine.
        let mut by_hart = vec![Load::default(); part.len()];
        // Bounded: the same.
        let mut last_of = vec![0; part.len()];
        // Bounded: MAX_VCPUS of MAX_VMS.
        let mut before = vec![0; snapshot.vcpus.len()];
        for (at, (vcpu, before)) in (1..).zip(snapshot.vcpus.iter().zip(&mut before)) {
            let Some(hart) = vcpu.hart.index().checked_sub(part.start) else { continue };
            if let (Some(load), Some(last)) = (by_hart.get_mut(hart), last_of.get_mut(hart)) {
                load.add(vcpu);
                *before = core::mem::replace(last, at);
            }
        }
        Self { snapshot, part, by_hart, last_of, before }
    }

    /// Where a hart is among those that count.
    fn at(&self, hart: CpuIndex) -> usize {
        hart.index().wrapping_sub(self.part.start)
    }

    /// The vCPUs that `hart` owns according to the snapshot.
    pub fn vcpus(&self, hart: CpuIndex) -> impl Iterator<Item = &'a VcpuFacts> {
        let mut next = self.last_of.get(self.at(hart)).copied().unwrap_or(0);
        core::iter::from_fn(move || {
            let at = next.checked_sub(1)?;
            next = self.before.get(at).copied().unwrap_or(0);
            self.snapshot.vcpus.get(at)
        })
    }

    /// The online harts, of one node or of all, with their loads.
    pub fn harts(&self, node: Option<NodeId>) -> impl Iterator<Item = (CpuIndex, &Load)> {
        self.harts_of(self.part.clone(), node)
    }

    /// The same of these.
    pub fn harts_of(&self, part: Range<usize>, node: Option<NodeId>) -> impl Iterator<Item = (CpuIndex, &Load)> {
        let loads = part.clone().map(|hart| self.by_hart.get(hart.wrapping_sub(self.part.start)));
        let harts = self.snapshot.harts.iter().zip(0_u16..).skip(part.start).zip(loads);
        harts
            .filter(move |((facts, _), _)| facts.is_online && node.is_none_or(|node| facts.node == node))
            .filter_map(|((_, cpu), load)| Some((CpuIndex(cpu), load?)))
    }

    pub fn of(&self, hart: CpuIndex) -> Load {
        self.by_hart.get(self.at(hart)).copied().unwrap_or_default()
    }

    /// Whether the hart does the machine's duties besides.
    pub fn has_duties(&self, hart: CpuIndex) -> bool {
        self.snapshot.harts.get(hart.index()).is_some_and(|facts| facts.has_duties)
    }

    /// Moves `vcpu` to hart `to` in these accounts.
    pub fn shift(&mut self, vcpu: &VcpuFacts, to: CpuIndex) {
        let (from, to) = (self.at(vcpu.hart), self.at(to));
        if let Some(load) = self.by_hart.get_mut(from) {
            load.remove(vcpu);
        }
        if let Some(load) = self.by_hart.get_mut(to) {
            load.add(vcpu);
        }
    }
}

/// Whether a vCPU waits, and has waited for so long, or got so much less than it wanted lately, that a move to a better
/// place is worth its caches. Many short waits beside a busy neighbour count as one long one.
pub const fn is_due(vcpu: &VcpuFacts, wait_ticks: u64, unfair_permille: u16) -> bool {
    match vcpu.activity {
        Activity::Waiting { ticks } => {
            ticks >= wait_ticks || vcpu.served_permille.saturating_add(unfair_permille) < 1_000
        }
        Activity::Running | Activity::Blocked => false,
    }
}

/// Ticks that a vCPU has waited: none if it does not wait.
pub const fn waited(vcpu: &VcpuFacts) -> u64 {
    match vcpu.activity {
        Activity::Waiting { ticks } => ticks,
        Activity::Running | Activity::Blocked => 0,
    }
}
