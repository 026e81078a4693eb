//! The idle balancer.

use core::cmp::Reverse;

use addr::{CpuIndex, VmId};
use arrayvec::ArrayVec;

use super::loads::{is_due, waited};
use super::stay::may_leave;
use super::{Activity, Caution, Move, Reason, Snapshot, VcpuFacts};

/// What the idle hart `idle` may take over, which has been idle for `idle_ticks`: the vCPU that has waited longest on the nearest
/// node where one has waited long enough, now or in sum, and may leave. Allocates nothing.
///
/// Of VMs that run together, one whose move lets its VM run goes before others: no other one of its vCPUs waits. Only after
/// [`Caution::patience_ticks`] does the hart take one whose move alone does not help, of the VM with fewest that wait.
#[must_use]
pub fn pull_for_idle(snapshot: &Snapshot<'_>, caution: &Caution, idle: CpuIndex, idle_ticks: u64) -> Option<Move> {
    let node = snapshot.harts.get(idle.index()).filter(|hart| hart.is_online)?.node;
    // Few VMs have a vCPU there, so few candidates make anybody look at all vCPUs for each of them.
    let owned = snapshot.vcpus.iter().filter(|vcpu| vcpu.hart == idle);
    let residents: ArrayVec<VmId, 16> = owned.map(|vcpu| vcpu.entity.vm).take(16).collect();
    let is_patient = idle_ticks < caution.patience_ticks;
    let cost = |vcpu: &VcpuFacts| {
        let from = snapshot.harts.get(vcpu.hart.index())?.node;
        let is_local = from == node;
        let is_due = match is_local {
            true => is_due(vcpu, caution.local_wait_ticks, caution.local_unfair_permille),
            false => is_due(vcpu, caution.remote_wait_ticks, caution.remote_unfair_permille),
        };
        // Coming home counts as near, wherever it comes from.
        let distance = if vcpu.home == Some(node) { 0 } else { (snapshot.distance)(from, node) };
        let may_leave = || may_leave(snapshot, caution, vcpu, idle, true, Reason::IdlePull);
        let has_sibling = |hart| snapshot.vcpus.iter().any(|other| other.hart == hart && other.is_sibling(vcpu));
        // Two of a VM on one hart cannot run together.
        let may_meet = vcpu.is_gang && (residents.is_full() || residents.contains(&vcpu.entity.vm));
        let stays_apart = || !may_meet || !has_sibling(idle) || has_sibling(vcpu.hart);
        if !is_due || vcpu.hart == idle || !may_leave() || !stays_apart() {
            return None;
        }
        let held = if vcpu.is_gang { others_that_wait(snapshot, vcpu) } else { 0 };
        (held == 0 || !is_patient).then_some((!is_local, distance, held))
    };
    let candidates = snapshot.vcpus.iter().filter_map(|vcpu| Some((vcpu, cost(vcpu)?)));
    let (vcpu, _) = candidates.min_by_key(|(vcpu, cost)| (*cost, Reverse(waited(vcpu))))?;
    let reason = if vcpu.is_gang { Reason::Together } else { Reason::IdlePull };
    Some(Move { entity: vcpu.entity, from: vcpu.hart, to: idle, reason })
}

/// vCPUs of its VM that wait besides, as far as the snapshot shows.
fn others_that_wait(snapshot: &Snapshot<'_>, vcpu: &VcpuFacts) -> usize {
    let waits = |other: &&VcpuFacts| matches!(other.activity, Activity::Waiting { .. }) && other.is_sibling(vcpu);
    snapshot.vcpus.iter().filter(waits).count()
}
