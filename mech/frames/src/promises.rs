//! Memory promised to VMs: who may begin, and who ends when there is too little.
//!
//! A VM is promised pages before it begins, and never more are promised than there are. What it has not taken of them others may use
//! for what they give back on demand: caches, copies. A VM that may take more than it is promised does so as long as nobody misses
//! it. So a VM within its promise finds pages, and whoever ends for want of memory has taken more than it was promised.
//!
//! This is arithmetic over what the caller counts: it takes no page and ends no VM.

/// What a VM is promised, and what it has, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What is kept for it.
    pub promised: u64,
    /// What it has for itself: memory, tables, modified blocks of its disks.
    pub own: u64,
    /// Guest pages that shared pages back. It needs a page of its own for each that it writes to.
    pub shared: u64,
}

impl Account {
    /// Pages that it has beyond its promise.
    #[must_use]
    pub const fn over(self) -> u64 {
        self.own.saturating_add(self.shared).saturating_sub(self.promised)
    }

    /// Pages that it may still claim.
    #[must_use]
    pub const fn outstanding(self) -> u64 {
        self.promised.saturating_sub(self.own)
    }

    /// Pages that nobody can claim while it lives: its own, and what it shares beyond its promise.
    const fn taken(self) -> u64 {
        let over = self.over();
        self.own.saturating_add(if self.shared < over { self.shared } else { over })
    }
}

/// What all VMs together are promised and have, of so many pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promises {
    /// Pages that VMs can have at all.
    capacity: u64,
    promised: u64,
    taken: u64,
    outstanding: u64,
}

impl Promises {
    /// Of `capacity` pages, to these.
    #[must_use]
    pub fn new(capacity: u64, accounts: impl IntoIterator<Item = Account>) -> Self {
        let none = Self { capacity, ..Self::default() };
        accounts.into_iter().fold(none, |sum, account| Self {
            promised: sum.promised.saturating_add(account.promised),
            taken: sum.taken.saturating_add(account.taken()),
            outstanding: sum.outstanding.saturating_add(account.outstanding()),
            ..sum
        })
    }

    /// Pages that are promised to nobody.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.capacity.saturating_sub(self.promised)
    }

    /// Whether somebody may come to claim what others have: less is left than is promised and not taken yet.
    #[must_use]
    pub const fn are_overdrawn(&self) -> bool {
        self.outstanding > self.capacity.saturating_sub(self.taken)
    }
}

/// Who has most beyond its promise; the first of several. `None` if all are within theirs.
pub fn most_over<T>(accounts: impl IntoIterator<Item = (T, Account)>) -> Option<T> {
    let over = accounts.into_iter().filter(|(_, account)| account.over() > 0);
    let most = over.reduce(|most, next| if next.1.over() > most.1.over() { next } else { most });
    most.map(|(who, _)| who)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const fn account(promised: u64, own: u64) -> Account {
        Account { promised, own, shared: 0 }
    }

    #[test]
    fn what_is_promised_is_not_promised_again() {
        let promises = Promises::new(100, [account(30, 90), account(50, 0)]);
        assert_eq!((promises.left(), promises.are_overdrawn()), (20, true));
        let promises = Promises::new(100, [account(30, 50), account(50, 0)]);
        assert_eq!((promises.left(), promises.are_overdrawn()), (20, false));
        let promises = Promises::new(100, [account(u64::MAX, 0), account(u64::MAX, 0)]);
        assert_eq!(promises.left(), 0);
        assert!(!Promises::new(10, [account(0, 500)]).are_overdrawn(), "nobody was promised anything");
    }

    #[test]
    fn who_is_most_over_ends() {
        let vms = [("a", account(10, 10)), ("b", account(0, 5)), ("c", account(50, 56)), ("d", account(0, 6))];
        assert_eq!(most_over(vms), Some("c"));
        assert_eq!(most_over(vms.into_iter().take(1)), None);
        let sharing = Account { promised: 10, own: 10, shared: 60 };
        assert_eq!(most_over([("a", account(0, 20)), ("sharing", sharing)]), Some("sharing"));
        assert!(!Promises::new(100, [sharing, account(30, 0)]).are_overdrawn());
        assert!(Promises::new(100, [sharing, account(31, 0)]).are_overdrawn());
    }

    /// A VM of the model: what it is promised, what it may take, what it has.
    #[derive(Clone, Copy, Debug)]
    struct Vm {
        promised: u64,
        most: u64,
        own: u64,
        /// Pages of a cache that everybody maps: one is needed for each that it writes to.
        shared: u64,
    }

    impl Vm {
        const fn account(self) -> Account {
            Account { promised: self.promised, own: self.own, shared: self.shared }
        }
    }

    /// A machine on which VMs begin, take and share pages, and end when [`most_over`] says so.
    struct Machine {
        pages: u64,
        /// Pages that several share, or that a cache has alone.
        cached: u64,
        vms: Vec<Vm>,
    }

    impl Machine {
        fn free(&self) -> u64 {
            self.pages - self.cached - self.vms.iter().map(|vm| vm.own).sum::<u64>()
        }

        /// The cache lets go of what nobody maps.
        fn shrink(&mut self) -> bool {
            let mapped = self.vms.iter().map(|vm| vm.shared).max().unwrap_or(0);
            let has_some = self.cached > mapped;
            self.cached = self.cached.min(mapped);
            has_some
        }

        /// A page for `at`; who else ends for it is gone then. `None` if `at` itself has ended.
        fn take(&mut self, mut at: usize) -> Option<usize> {
            while self.free() == 0 && !self.shrink() {
                let victim = most_over(self.vms.iter().map(|vm| vm.account()).enumerate());
                let victim = victim.expect("nobody has more than it was promised, and there is no page");
                assert!(self.vms[victim].account().over() > 0);
                self.vms.remove(victim);
                if victim == at {
                    return None;
                }
                at -= usize::from(victim < at);
            }
            Some(at)
        }
    }

    proptest! {
        /// Whatever others do, a VM within its promise gets the page that it needs.
        #[test]
        fn a_vm_within_its_promise_never_ends(steps in prop::collection::vec((0..8_u8, 0..40_u64, any::<usize>()), 1..400)) {
            let mut machine = Machine { pages: 100, cached: 0, vms: Vec::new() };
            for (what, amount, who) in steps {
                let count = machine.vms.len();
                match what {
                    0 | 1 => {
                        // A shared page that is written to is copied before it is given up: that takes one more.
                        let capacity = machine.pages - 1;
                        let promises = Promises::new(capacity, machine.vms.iter().map(|vm| vm.account()));
                        if amount <= promises.left() {
                            let most = if what == 0 { amount } else { amount + 60 };
                            machine.vms.push(Vm { promised: amount, most, own: 0, shared: 0 });
                        }
                    }
                    2 if count > 0 => drop(machine.vms.remove(who % count)),
                    3 => machine.cached += machine.free().min(amount),
                    // A guest maps what is cached in place of pages that it has not touched.
                    4 if count > 0 => {
                        let cached = machine.cached;
                        let vm = &mut machine.vms[who % count];
                        vm.shared = vm.shared.max((vm.most - vm.own).min(cached).min(amount));
                    }
                    _ if count > 0 => {
                        let mut at = who % count;
                        for _ in 0..amount {
                            let vm = machine.vms[at];
                            if vm.own == vm.most {
                                break;
                            }
                            let was_within = vm.own + vm.shared < vm.promised;
                            match machine.take(at) {
                                Some(found) => at = found,
                                None => {
                                    prop_assert!(!was_within);
                                    break;
                                }
                            }
                            let vm = &mut machine.vms[at];
                            vm.own += 1;
                            vm.shared = vm.shared.min(vm.most - vm.own);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
