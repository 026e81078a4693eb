use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A TLB that never evicts, whose fences take no more than they must, and that is filled ahead whenever `hgatp` names a VM.
#[derive(Default)]
struct Tlb {
    /// What `hgatp` holds: the VMID, and whose it is.
    hgatp: Option<(u16, usize)>,
    /// Per VMID the (vCPU, generation) whose G-stage translations it still holds.
    g_stage: BTreeSet<(u16, usize, TlbGeneration)>,
    /// Per VMID the vCPU whose VS-stage translations it still holds, and how often that had asked for a fence when they were made.
    vs_stage: BTreeSet<(u16, usize, u64)>,
    /// Translations of both stages in one.
    both: BTreeSet<(u16, usize, TlbGeneration, u64)>,
}

impl Tlb {
    /// `hgatp` holds `current`.
    fn fence(&mut self, fence: Fence, current: Vmid) {
        match fence {
            Fence::None => {}
            Fence::Vmid(vmid) => {
                self.g_stage.retain(|entry| entry.0 != vmid.0);
                self.both.retain(|entry| entry.0 != vmid.0);
            }
            Fence::Reused(vmid) => {
                assert_eq!(vmid, current, "the fence would be of another VMID");
                self.vvma(current);
            }
            Fence::All => {
                self.g_stage.clear();
                self.both.clear();
                self.vvma(current);
            }
        }
    }

    fn vvma(&mut self, current: Vmid) {
        self.vs_stage.retain(|entry| entry.0 != current.0);
        self.both.retain(|entry| entry.0 != current.0);
    }

    /// The hart looks ahead, as it may at any time: each vCPU has asked for `fences` so often.
    fn fill_ahead(&mut self, now: TlbGeneration, fences: impl Fn(usize) -> u64) {
        if let Some((vmid, vcpu)) = self.hgatp {
            self.fill(vmid, vcpu, now, fences(vcpu));
        }
    }

    fn fill(&mut self, vmid: u16, vcpu: usize, now: TlbGeneration, fences: u64) {
        self.g_stage.insert((vmid, vcpu, now));
        self.vs_stage.insert((vmid, vcpu, fences));
        self.both.insert((vmid, vcpu, now, fences));
    }

    /// The guest runs: everything under its tag is usable by it.
    fn run(&mut self, vmid: Vmid, vcpu: usize, now: TlbGeneration, fences: u64) {
        for (_, who, generation) in self.g_stage.iter().filter(|entry| entry.0 == vmid.0) {
            assert_eq!(*who, vcpu, "a vCPU used another's G-stage translation");
            assert_eq!(*generation, now, "a stale G-stage translation was usable");
        }
        for (_, who, made_after) in self.vs_stage.iter().filter(|entry| entry.0 == vmid.0) {
            assert_eq!(*who, vcpu, "a vCPU used another's VS-stage translation");
            assert_eq!(*made_after, fences, "a VS-stage translation outlived the guest's fence");
        }
        for (_, who, generation, made_after) in self.both.iter().filter(|entry| entry.0 == vmid.0) {
            assert_eq!((*who, *generation, *made_after), (vcpu, now, fences), "a translation of both stages");
        }
        self.fill(vmid.0, vcpu, now, fences);
    }
}

/// A step of a schedule: a vCPU runs on a hart.
#[derive(Clone, Copy, Debug)]
struct Step {
    hart: usize,
    vcpu: usize,
    /// Leaves are removed while it runs.
    shoot: bool,
    /// Its guest has asked for a fence of its VS-stage before.
    forget: bool,
}

/// What the vCPUs were told to fence, in order.
fn fences(vmidlen: u8, steps: &[Step]) -> Vec<Fence> {
    let tracker = ShootdownTracker::new(2);
    let mut harts: Vec<_> = (0..2).map(|_| (HartVmids::new(vmidlen), Tlb::default())).collect();
    let mut vcpus: Vec<_> = (0..4).map(|_| (TlbContext::new(), 0)).collect();
    let mut told = Vec::new();
    for &Step { hart, vcpu, shoot, forget } in steps {
        let cpu = CpuIndex(hart as u16);
        let (vmids, tlb) = &mut harts[hart];
        let (context, asked) = &mut vcpus[vcpu];
        if forget {
            context.forget();
            *asked += 1;
        }
        let entry = context.enter(cpu, vmids, &tracker);
        tlb.hgatp = Some((entry.vmid.0, vcpu));
        tlb.fence(entry.fence, entry.vmid);
        told.push(entry.fence);
        context.fenced(cpu, &tracker, entry);
        assert!(u32::from(entry.vmid.0) < vmids.count());
        tlb.run(entry.vmid, vcpu, tracker.current(), *asked);
        if shoot {
            let token = tracker.retire();
            assert_eq!(tracker.targets(&token).bits(), 1 << hart);
            tracker.leave(cpu);
            assert!(tracker.is_complete(&token));
        } else {
            tracker.leave(cpu);
        }
        for (_, tlb) in &mut harts {
            tlb.fill_ahead(tracker.current(), |vcpu| vcpus[vcpu].1);
        }
    }
    let flushes: u64 = harts.iter().map(|(vmids, _)| vmids.flushes()).sum();
    assert_eq!(told.iter().filter(|fence| **fence == Fence::All).count() as u64, flushes);
    told
}

fn step() -> impl Strategy<Value = Step> {
    let flag = || prop::bool::weighted(0.2);
    (0usize..2, 0usize..4, flag(), flag()).prop_map(|(hart, vcpu, shoot, forget)| Step { hart, vcpu, shoot, forget })
}

proptest! {
    #[test]
    fn no_stale_or_foreign_translation_is_usable(vmidlen in 0u8..4, steps in prop::collection::vec(step(), 0..200)) {
        fences(vmidlen, &steps);
    }
}

/// Four vCPUs take turns on a hart.
fn turns(vmidlen: u8, forget: bool) -> Vec<Fence> {
    let steps: Vec<_> = (0..1000).map(|turn| Step { hart: 0, vcpu: turn % 4, shoot: false, forget }).collect();
    fences(vmidlen, &steps)
}

fn count(told: &[Fence], is_wanted: fn(&Fence) -> bool) -> usize {
    told.iter().filter(|fence| is_wanted(fence)).count()
}

#[test]
fn switching_costs_no_flush_while_numbers_last() {
    for vmidlen in [2, 14] {
        let told = turns(vmidlen, false);
        assert_eq!(told[0], Fence::All, "what the TLB holds at boot is not known");
        assert_eq!(count(&told, |fence| *fence != Fence::None), 1);
    }
    assert_eq!(count(&turns(0, false), |fence| *fence == Fence::All), 1000, "one VMID: every switch");
}

#[test]
fn numbers_that_are_used_again_lose_what_was_under_them() {
    // Four numbers, a new one at each turn: from the second era on each has been in use before.
    let told = turns(2, true);
    assert_eq!(told[..4], [Fence::All, Fence::None, Fence::None, Fence::None]);
    for era in told[4..].chunks(4) {
        assert_eq!(era, [Fence::All, Fence::Reused(Vmid(1)), Fence::Reused(Vmid(2)), Fence::Reused(Vmid(3))]);
    }
}

#[test]
fn a_vcpu_that_comes_back_gets_a_new_number() {
    let tracker = ShootdownTracker::new(2);
    let mut harts = [HartVmids::new(14), HartVmids::new(14)];
    let mut vcpu = TlbContext::new();
    let mut visit = |hart: u16| {
        let entry = vcpu.enter(CpuIndex(hart), &mut harts[usize::from(hart)], &tracker);
        vcpu.fenced(CpuIndex(hart), &tracker, entry);
        tracker.leave(CpuIndex(hart));
        entry.vmid
    };
    assert_eq!([visit(0), visit(0), visit(1), visit(0)], [Vmid(0), Vmid(0), Vmid(0), Vmid(1)]);
}

#[test]
fn only_harts_inside_and_behind_are_targets() {
    let tracker = ShootdownTracker::new(4);
    for cpu in [1, 3] {
        let generation = tracker.enter(CpuIndex(cpu));
        tracker.passed(CpuIndex(cpu), generation);
    }
    let token = tracker.retire();
    assert_eq!(tracker.targets(&token).bits(), 0b1010);
    tracker.leave(CpuIndex(1));
    let generation = tracker.enter(CpuIndex(0));
    assert_eq!(tracker.targets(&token).bits(), 0b1001, "not before it says that it has fenced");
    tracker.passed(CpuIndex(0), generation);
    assert_eq!(tracker.targets(&token).bits(), 0b1000);
    assert!(!tracker.is_complete(&token));
    tracker.leave(CpuIndex(3));
    assert!(tracker.is_complete(&token));
    assert_eq!(tracker.inside().bits(), 0b0001);
}
