//! VMs that start.

use addr::{CpuIndex, VcpuIndex, VmId};
use sched::Entity;
use sched::balance::place_vm;
use sched::gang::{GangMode, Synchrony};

use super::machine::{Event, Play};
use super::scene::{Step, VmScene};
use super::vm::{Vcpu, Vm};

/// A VM that is to start.
#[derive(Clone, Debug)]
pub struct NewVm {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Whether its vCPUs run together.
    pub mode: GangMode,
    /// How often its programs run; for ever if nothing is said.
    pub rounds: Option<u32>,
    /// The hart of each vCPU; where the policy wants them if nothing is said.
    pub places: Option<Vec<CpuIndex>>,
}

impl Play {
    pub(super) fn start(&mut self, scene: &VmScene, number: u16) {
        let name = if scene.count > 1 { format!("{}{number}", scene.name) } else { scene.name.clone() };
        let programs = vec![scene.program.clone(); scene.vcpus.into()];
        let places = scene.harts.as_ref().map(|harts| harts.iter().copied().map(CpuIndex).collect());
        let vm = NewVm { name, weight: scene.weight, mode: scene.gang.into(), rounds: scene.rounds, places };
        self.start_vm(vm, programs);
    }

    /// Starts a VM with a vCPU for each of these programs.
    pub fn start_vm(&mut self, new: NewVm, programs: Vec<Vec<Step>>) {
        let id = VmId(self.vms.len() as u16);
        let NewVm { name, weight, mode, rounds, places } = new;
        let places = places.unwrap_or_else(|| {
            let vcpus = self.vcpu_facts(0..self.harts.len());
            place_vm(&self.snapshot(&vcpus), programs.len())
        });
        let first = self.vcpus.len();
        for ((vcpu, program), hart) in (0..).zip(programs).zip(places) {
            let entity = Entity { vm: id, vcpu: VcpuIndex(vcpu) };
            self.owned[hart.index()].push(self.vcpus.len());
            self.vcpus.push(Vcpu::new(entity, weight, program, hart, self.now));
            self.waiting += 1;
            self.queues[hart.index()].enqueue(entity, weight, self.now);
            self.after(0, Event::Looks { hart: hart.index(), is_called: false });
        }
        self.vms.push(Vm {
            name,
            weight,
            mode,
            signs: Synchrony::default(),
            called_at: 0,
            rounds,
            vcpus: first..self.vcpus.len(),
            arrived: 0,
            lock: None,
            lock_waiters: Default::default(),
            left: self.vcpus.len() - first,
            ended_at: None,
            turns: 0,
        });
    }
}
