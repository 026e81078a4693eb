use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A TLB that never evicts: per VMID the (vCPU, generation) whose translations it still holds.
#[derive(Default)]
struct Tlb(BTreeSet<(u16, usize, TlbGeneration)>);

impl Tlb {
    fn fence(&mut self, fence: Fence) {
        match fence {
            Fence::None => {}
            Fence::Vmid(vmid) => self.0.retain(|entry| entry.0 != vmid.0),
            Fence::All => self.0.clear(),
        }
    }

    /// The guest runs: everything under its tag is usable by it.
    fn run(&mut self, vmid: Vmid, vcpu: usize, now: TlbGeneration) {
        for (_, who, generation) in self.0.iter().filter(|entry| entry.0 == vmid.0) {
            assert_eq!(*who, vcpu, "a vCPU used another's translation");
            assert_eq!(*generation, now, "a stale translation was usable");
        }
        self.0.insert((vmid.0, vcpu, now));
    }
}

fn run_schedule(vmidlen: u8, steps: &[(usize, usize, bool)]) -> u64 {
    let tracker = ShootdownTracker::new(2);
    let mut harts: Vec<_> = (0..2).map(|_| (HartVmids::new(vmidlen), Tlb::default())).collect();
    let mut vcpus: Vec<_> = (0..4).map(|_| TlbContext::new()).collect();
    for &(hart, vcpu, shoot) in steps {
        let cpu = CpuIndex(hart as u16);
        let (vmids, tlb) = &mut harts[hart];
        let entry = vcpus[vcpu].enter(cpu, vmids, &tracker);
        tlb.fence(entry.fence);
        vcpus[vcpu].fenced(cpu, &tracker, entry);
        assert!(u32::from(entry.vmid.0) < vmids.count());
        tlb.run(entry.vmid, vcpu, tracker.current());
        if shoot {
            let token = tracker.retire();
            assert_eq!(tracker.targets(&token).bits(), 1 << hart);
            tracker.leave(cpu);
            assert!(tracker.is_complete(&token));
        } else {
            tracker.leave(cpu);
        }
    }
    harts.iter().map(|(vmids, _)| vmids.flushes()).sum()
}

proptest! {
    #[test]
    fn no_stale_or_foreign_translation_is_usable(
        vmidlen in 0u8..4,
        steps in prop::collection::vec((0usize..2, 0usize..4, prop::bool::weighted(0.2)), 0..200),
    ) {
        run_schedule(vmidlen, &steps);
    }
}

#[test]
fn switching_costs_no_flush_while_numbers_last() {
    let steps: Vec<_> = (0..1000).map(|i| (0, i % 4, false)).collect();
    assert_eq!(run_schedule(14, &steps), 1, "the one at boot");
    assert_eq!(run_schedule(2, &steps), 1);
    assert_eq!(run_schedule(0, &steps), 1000, "one VMID: every switch");
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
