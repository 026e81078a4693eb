//! What vCPUs do, step by step, and how they wait for each other.

use super::machine::{Event, Play, TICKS_PER_US};
use super::scene::{Step, Wait};
use super::vm::{State, Work};

impl Play {
    pub(super) fn finish_step(&mut self, at: usize) {
        let vm = &mut self.vms[usize::from(self.vcpus[at].entity.vm.0)];
        let vcpu = &mut self.vcpus[at];
        if matches!(vcpu.present_step(), Step::LockUs(_)) {
            vm.lock = vm.lock_waiters.pop_front();
            if let (Some(next), Step::LockUs(us)) = (vm.lock, vcpu.present_step()) {
                let ticks = u64::from(us).max(1) * TICKS_PER_US;
                vcpu.next_step();
                self.vcpus[next].work = Work::Computes { left: ticks };
                self.look_again(next);
                return;
            }
        }
        vcpu.next_step();
    }

    /// It spins no longer; its hart looks if it runs.
    fn look_again(&mut self, at: usize) {
        if let State::Running { since } = self.vcpus[at].state {
            self.vcpus[at].spun_ticks += self.now - since;
            self.after(0, Event::Looks { hart: self.vcpus[at].hart.index(), is_called: false });
        }
    }

    /// Steps that begin, until one takes time.
    pub(super) fn go_on(&mut self, at: usize) {
        while self.vcpus[at].work == Work::Begins {
            let vm = self.vm_of(at);
            let vm = &mut self.vms[vm];
            let vcpu = &mut self.vcpus[at];
            if vcpu.step == 0 && vm.rounds.is_some_and(|rounds| vcpu.rounds >= rounds.into()) {
                vcpu.work = Work::Nothing;
                vm.left -= 1;
                vm.ended_at = (vm.left == 0).then_some(self.now);
                return;
            }
            let owed = std::mem::take(&mut vcpu.owed_ticks);
            match vcpu.present_step() {
                Step::ComputeUs(us) => {
                    vcpu.work = Work::Computes { left: (u64::from(us) * TICKS_PER_US + owed).max(1) };
                }
                Step::UpToUs(us) => {
                    let chance = vcpu.chance_up_to(u64::from(us) * TICKS_PER_US);
                    vcpu.work = Work::Computes { left: chance + owed };
                }
                Step::SleepUs(us) => {
                    vcpu.owed_ticks = owed;
                    vcpu.work = Work::Nothing;
                    self.after((u64::from(us) * TICKS_PER_US).max(1), Event::Wakes { vcpu: at });
                }
                Step::LockUs(us) => match vm.lock {
                    Some(_) => {
                        vm.lock_waiters.push_back(at);
                        vcpu.work = Work::Spins { tells: true };
                    }
                    None => {
                        vm.lock = Some(at);
                        vcpu.work = Work::Computes { left: (u64::from(us) * TICKS_PER_US + owed).max(1) };
                    }
                },
                Step::Barrier(wait) => {
                    vcpu.owed_ticks = owed;
                    self.arrive(at, wait);
                }
            }
        }
    }

    fn arrive(&mut self, at: usize, wait: Wait) {
        let number = self.vm_of(at);
        let vm = &mut self.vms[number];
        vm.arrived += 1;
        if vm.arrived < vm.vcpus.len() {
            self.vcpus[at].work = match wait {
                Wait::Spin => Work::Spins { tells: false },
                Wait::Wrs => Work::Spins { tells: true },
                Wait::Block => Work::Nothing,
            };
            return;
        }
        vm.arrived = 0;
        for other in vm.vcpus.clone() {
            self.vcpus[other].next_step();
            if other == at {
                continue;
            }
            // Who is on its way to sleep finds its work when it gets there.
            if self.vcpus[other].state == State::Asleep { self.wake(other) } else { self.look_again(other) }
        }
    }
}
