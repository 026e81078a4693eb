//! The choice of a vCPU where VMs may run theirs together: the facts that `sched::gang` asks for, and calls to other harts.

use super::local::HartLocal;
use crate::{
    hart::{self, Hart},
    machine::node_box::NodeBox,
    vcpu::Vcpu,
    vm::{Vm, together},
};
use addr::VcpuIndex;
use rv::csr;
use sched::{Entity, gang::Gangs};

/// What a hart sees when it picks.
struct View<'a> {
    vcpus: &'a [NodeBox<Vcpu>],
    turn_ticks: u64,
}

impl View<'_> {
    fn vm(&self, entity: Entity) -> Option<&Vm> {
        self.vcpus.iter().find(|vcpu| vcpu.entity() == entity).map(|vcpu| &*vcpu.vm)
    }
}

impl Gangs for View<'_> {
    fn are_there(&self) -> bool {
        together::are_there()
    }

    fn now(&self) -> u64 {
        csr::time::read()
    }

    fn called_at(&self, entity: Entity) -> Option<u64> {
        let vm = self.vm(entity).filter(|vm| vm.vcpus().len() > 1)?;
        vm.together().called_at()
    }

    fn can_gather(&self, entity: Entity) -> bool {
        let Some(vm) = self.vm(entity) else { return true };
        let now = self.now();
        let is_elsewhere = |hart: &&Hart| hart.gathering.is_elsewhere(entity.vm, now, self.turn_ticks);
        !waiting_harts(vm, entity.vcpu).any(|hart| is_elsewhere(&hart))
    }
}

/// The harts on which vCPUs of the VM wait, without `except`.
fn waiting_harts(vm: &Vm, except: VcpuIndex) -> impl Iterator<Item = &'static Hart> {
    let others = vm.vcpus().iter().filter(move |other| other.index != except && other.waits_for_hart());
    others.filter_map(|other| hart::all().get(other.cpu().index()).copied())
}

impl HartLocal {
    /// Who runs now, if anybody can. Where a VM's turn begins with it, other harts are called; where it follows one, they can see that.
    #[inline]
    pub(super) fn pick(&mut self, hart: &Hart) -> Option<Entity> {
        if self.follows.is_none() && !together::are_there() {
            return self.queue.pick_next();
        }
        self.pick_together(hart)
    }

    #[inline(never)]
    fn pick_together(&mut self, hart: &Hart) -> Option<Entity> {
        let view = View { vcpus: &self.vcpus, turn_ticks: self.turn_ticks };
        let pick = self.queue.pick_together(&view);
        let turn = pick.and_then(|pick| Some((pick.entity.vm, pick.turn_at?)));
        if turn != self.follows {
            self.follows = turn;
            hart.gathering.follow(turn);
        }
        let pick = pick?;
        if pick.calls {
            self.call(hart, pick.entity);
        }
        Some(pick.entity)
    }

    #[cold]
    fn call(&self, hart: &Hart, entity: Entity) {
        let Some((vm, (_, at))) = self.position(entity).map(|at| &self.vcpus[at].vm).zip(self.follows) else { return };
        vm.together().call(at);
        waiting_harts(vm, entity.vcpu).filter(|other| other.cpu != hart.cpu).for_each(Hart::call_to_turn);
    }
}
