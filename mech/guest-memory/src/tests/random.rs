//! Anything at any time: random steps of guests, devices and the monitor's duties, with others acting in between.

use super::{
    jobs::{Job, tried},
    world::{Did, World, at, gfn},
};
use crate::{Found, Machine as _, Replication};
use addr::{Gfn, NodeId, PAGES_PER_LARGE};
use alloc::{boxed::Box, collections::VecDeque, rc::Rc, vec, vec::Vec};
use core::cell::{Cell, RefCell};
use proptest::prelude::*;

const NODES: usize = 3;
const HARTS: usize = 4;
const VMS: usize = 2;
/// Pages that the steps are about: enough to differ, few enough to meet.
const PAGES: [u64; 6] = [0, 1, 2, 511, 512, 513];

/// A step. Numbers are taken modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Load {
        hart: usize,
        vm: usize,
        page: usize,
    },
    MonitorLoad {
        hart: usize,
        vm: usize,
        page: usize,
    },
    Store {
        hart: usize,
        vm: usize,
        page: usize,
        value: u64,
    },
    Interrupt {
        hart: usize,
    },
    /// The hart fills its TLB ahead.
    FillAhead {
        hart: usize,
        page: usize,
    },
    DeviceRead {
        hart: usize,
        vm: usize,
        page: usize,
    },
    DeviceWrite {
        hart: usize,
        vm: usize,
        page: usize,
        value: u64,
    },
    Disk {
        hart: usize,
        vm: usize,
        page: usize,
        word: u64,
    },
    Evict {
        number: usize,
    },
    GiveBack {
        hart: usize,
        vm: usize,
        page: usize,
        pages: u64,
    },
    Migrate {
        vm: usize,
        page: usize,
        pages: usize,
        node: u8,
    },
    Replicate {
        vm: usize,
        page: usize,
        pages: usize,
        node: u8,
    },
    MoveBlock {
        vm: usize,
        block: u64,
        node: u8,
    },
    CopyBlock {
        vm: usize,
        block: u64,
        nodes: u8,
    },
    CopyShared {
        vm: usize,
        block: u64,
        node: u8,
    },
    Spread {
        vm: usize,
        page: usize,
        node: u8,
    },
    Retire,
    Sweep,
    Split {
        vm: usize,
        block: u64,
    },
    Join {
        vm: usize,
    },
    JoinBlock {
        vm: usize,
        block: u64,
    },
    JoinLeaves {
        vm: usize,
        block: u64,
    },
    GiveUp {
        vm: usize,
    },
    Merge {
        original: usize,
        from: usize,
        to: usize,
    },
    MergeBlock {
        original: usize,
        block: u64,
        first: u64,
    },
    ZeroPages {
        vm: usize,
        page: usize,
    },
    ZeroBlock {
        vm: usize,
        block: u64,
    },
    Sample {
        vm: usize,
        page: usize,
    },
    /// Goes on with something that is under way.
    Go {
        hart: usize,
        number: usize,
    },
    Free {
        vm: usize,
    },
    /// So many pages are given, and then so many refused.
    Refuse {
        first: u64,
        count: u64,
    },
    /// This comes as soon as somebody copies without a lock.
    Meanwhile(Box<Step>),
}

struct Run {
    world: Rc<World>,
    jobs: RefCell<Vec<Job>>,
    meanwhile: RefCell<VecDeque<Step>>,
    /// Meanwhile, this hart does something in the monitor.
    busy: Cell<Option<usize>>,
    /// How often somebody did something meanwhile.
    met: Cell<u64>,
}

impl Run {
    fn new(large: &[bool; VMS]) -> Rc<Self> {
        let world = World::new(large, NODES, HARTS);
        let run = Rc::new(Self {
            world: world.clone(),
            jobs: RefCell::default(),
            meanwhile: RefCell::default(),
            busy: Cell::new(None),
            met: Cell::new(0),
        });
        let others = Rc::downgrade(&run);
        world.machine.set_others(Box::new(move || others.upgrade().into_iter().for_each(|run| run.others_act())));
        let waiting = Rc::downgrade(&world);
        world
            .machine
            .set_on_time(Box::new(move || waiting.upgrade().into_iter().for_each(|world| world.interrupt_all())));
        run
    }

    fn others_act(&self) {
        if self.world.is_unlocked()
            && let Some(step) = { self.meanwhile.borrow_mut().pop_front() }
        {
            self.met.set(self.met.get() + 1);
            self.perform(&step);
            self.world.check();
        }
    }

    /// A hart for a step: not the one that is in the middle of another.
    fn hart(&self, hart: usize) -> usize {
        let hart = hart % HARTS;
        if self.busy.get() == Some(hart) { (hart + 1) % HARTS } else { hart }
    }

    fn add(&self, job: Option<Job>) {
        self.jobs.borrow_mut().extend(job);
    }

    fn perform(&self, step: &Step) {
        let world = &*self.world;
        let ram = |vm: usize| world.ram(vm % VMS);
        let page = |page: usize| PAGES[page % PAGES.len()];
        let node = |node: u8| NodeId(node % NODES as u8);
        let block = |block: u64| gfn(block % 2 * PAGES_PER_LARGE);
        match *step {
            Step::Load { hart, vm, page: at } => _ = self.by(hart, |hart| world.load(hart, vm % VMS, page(at))),
            Step::MonitorLoad { hart, vm, page: from } => {
                self.by(hart, |hart| world.monitor_load(hart, vm % VMS, at(page(from), 0)));
            }
            Step::Store { hart, vm, page: at, value } => {
                self.by(hart, |hart| world.store(hart, vm % VMS, page(at), value));
            }
            Step::Interrupt { hart } => world.interrupt(self.hart(hart)),
            Step::FillAhead { hart, page: at } => world.fill_ahead(hart % HARTS, page(at)),
            Step::DeviceRead { hart, vm, page: from } => {
                self.by(hart, |hart| world.device_read(hart, vm % VMS, at(page(from), 0)));
            }
            Step::DeviceWrite { hart, vm, page: to, value } => {
                self.by(hart, |hart| world.device_write(hart, vm % VMS, at(page(to), 0), value));
            }
            Step::Disk { hart, vm, page: to, word } => {
                self.by(hart, |hart| world.map_from_disk(hart, vm % VMS, page(to), word));
            }
            Step::Evict { number } => world.evict(number % 4),
            Step::GiveBack { hart, vm, page: from, pages } => {
                let pages = pages.min(super::world::PAGES - page(from));
                self.by(hart, |hart| world.give_back(hart, vm % VMS, page(from), pages));
            }
            Step::Migrate { vm, page: first, pages, node: to } => {
                let pages = some_pages(first, pages);
                self.add(Some(Job::Migration(vm % VMS, ram(vm).begin_migration(&pages, node(to)))));
            }
            Step::Replicate { vm, page: first, pages, node: to } => {
                let mut pages = some_pages(first, pages);
                ram(vm).watch_pages(&mut pages, node(to));
                self.add(Some(Job::Replication(vm % VMS, Replication::new(pages, node(to)))));
            }
            Step::MoveBlock { vm, block: at, node: to } => {
                let begun = ram(vm).begin_block_move(block(at), node(to), tried);
                self.add(begun.is_ok().then(|| Job::BlockMove(vm % VMS, node(to))));
            }
            Step::CopyBlock { vm, block: at, nodes } => {
                let begun = ram(vm).begin_block_copies(block(at), nodes % (1 << NODES));
                let nodes = (0..NODES as u8).filter(|node| begun.is_ok() && nodes >> node & 1 != 0);
                nodes.for_each(|node| self.add(Some(Job::BlockCopy(vm % VMS, NodeId(node)))));
            }
            Step::CopyShared { vm, block: at, node: to } => {
                let begun = ram(vm).begin_shared_copy(block(at), node(to));
                self.add(begun.then(|| Job::BlockCopy(vm % VMS, node(to))));
            }
            Step::Spread { vm, page: first, node: to } => {
                _ = ram(vm).spread_pages(&some_pages(first, 2), node(to));
            }
            Step::Retire => self.add(Some(Job::retire(world))),
            Step::Sweep => _ = world.machine.frames().sweep_spread(8),
            Step::Split { vm, block: at } => _ = ram(vm).split_block(block(at)),
            Step::Join { vm } => {
                world.machine.pass(20 * super::machine::HZ);
                ram(vm).join_next(2, u64::MAX);
            }
            Step::JoinBlock { vm, block: at } => _ = ram(vm).join_block(block(at)),
            Step::JoinLeaves { vm, block: at } => ram(vm).join_leaves(block(at)),
            Step::GiveUp { vm } => _ = ram(vm).give_up_copies(64),
            Step::Merge { original, from, to } => {
                let (original, pages) = (original % VMS, [(page(from), page(to))]);
                self.add(Job::merge(world, original, 1 - original, &pages));
            }
            Step::MergeBlock { original, block: at, first } => {
                // What the monitor proposes: neighbours of one block with the same numbers in both.
                let first = at % 2 * PAGES_PER_LARGE + first % 32 * 16;
                let pages: Vec<_> = (first..first + 16).map(|page| (page, page)).collect();
                self.add(Job::merge(world, original % VMS, 1 - original % VMS, &pages));
            }
            Step::ZeroPages { vm, page: at } => {
                let pages = some_pages(at, 3).into_iter().collect();
                self.add(Some(Job::ZeroPages(vm % VMS, ram(vm).watch_zero_pages(&pages))));
            }
            Step::ZeroBlock { vm, block: at } => {
                let watched = ram(vm).watch_block(block(at));
                self.add(watched.map(|watched| Job::ZeroBlock(vm % VMS, block(at), watched, 0)));
            }
            Step::Sample { vm, page: at } => ram(vm).sample(|leaves| {
                if let Found::Page { gfn, size, .. } = leaves.find(gfn(page(at))) {
                    let _ = leaves.users(gfn);
                    leaves.take(gfn, size);
                }
            }),
            Step::Go { hart, number } => {
                let mut jobs = self.jobs.borrow_mut();
                if let Some(number) = number.checked_rem(jobs.len()) {
                    let job = jobs.swap_remove(number);
                    drop(jobs);
                    let left = self.by(hart, |hart| job.step(world, hart));
                    self.add(left);
                }
            }
            Step::Free { vm } => _ = ram(vm).free_deferred(),
            Step::Refuse { first, count } => world.refuse(first, count),
            Step::Meanwhile(ref step) => self.meanwhile.borrow_mut().push_back((**step).clone()),
        }
    }

    /// The hart does something, which is in the middle of nothing else.
    fn by<T>(&self, hart: usize, act: impl FnOnce(usize) -> T) -> T {
        let hart = self.hart(hart);
        let before = self.busy.get();
        self.busy.set(before.or(Some(hart)));
        let done = act(hart);
        self.busy.set(before);
        done
    }

    /// All that is under way comes to its end, and nobody waits any more.
    fn rest(&self) {
        self.world.refuse(0, 0);
        self.meanwhile.borrow_mut().clear();
        for round in 0.. {
            self.world.interrupt_all();
            let jobs = self.jobs.take();
            let is_idle = jobs.is_empty();
            let left = jobs.into_iter().filter_map(|job| job.step(&self.world, 0));
            self.jobs.borrow_mut().extend(left);
            let waits = self.world.guests.iter().filter(|guest| guest.ram.free_deferred()).count();
            if is_idle && waits == 0 {
                break;
            }
            assert!(round < 1000, "{} jobs never end, and {waits} VMs wait", self.jobs.borrow().len());
        }
    }

    fn end(self: Rc<Self>) {
        self.rest();
        self.world.check_at_rest();
        // Every page can be written, by every hart.
        for (vm, hart) in (0..VMS).flat_map(|vm| (0..HARTS).map(move |hart| (vm, hart))) {
            for page in PAGES {
                let mut did = self.world.store(hart, vm, page, 7);
                for _ in 0..4 {
                    if matches!(did, Did::Waits(_) | Did::Busy | Did::NotTouched) {
                        self.world.interrupt_all();
                        did = self.world.store(hart, vm, page, 7);
                    }
                }
                assert_eq!(did, Did::Value(7), "hart {hart} of VM {vm} writes page {page}");
            }
        }
        self.world.check_all();
        let Ok(run) = Rc::try_unwrap(self) else { panic!("somebody still acts") };
        run.world.end();
    }
}

fn some_pages(first: usize, pages: usize) -> Vec<Gfn> {
    let mut pages: Vec<_> = (0..pages % 3 + 1).map(|index| gfn(PAGES[(first + index) % PAGES.len()])).collect();
    pages.sort();
    pages
}

fn steps() -> impl Strategy<Value = Step> {
    let (hart, vm, page, value, node, block) = (0..HARTS, 0..VMS, 0..PAGES.len(), 0..3u64, 0..NODES as u8, 0..2u64);
    let (h, v, p, n, b) = (hart.clone(), vm.clone(), page.clone(), node.clone(), block.clone());
    prop_oneof![
        12 => (h.clone(), v.clone(), p.clone()).prop_map(|(hart, vm, page)| Step::Load { hart, vm, page }),
        4 => (h.clone(), v.clone(), p.clone()).prop_map(|(hart, vm, page)| Step::MonitorLoad { hart, vm, page }),
        16 => (h.clone(), v.clone(), p.clone(), value.clone())
            .prop_map(|(hart, vm, page, value)| Step::Store { hart, vm, page, value }),
        10 => h.clone().prop_map(|hart| Step::Interrupt { hart }),
        6 => (h.clone(), p.clone()).prop_map(|(hart, page)| Step::FillAhead { hart, page }),
        2 => (h.clone(), v.clone(), p.clone()).prop_map(|(hart, vm, page)| Step::DeviceRead { hart, vm, page }),
        4 => (h.clone(), v.clone(), p.clone(), value.clone())
            .prop_map(|(hart, vm, page, value)| Step::DeviceWrite { hart, vm, page, value }),
        6 => (h.clone(), v.clone(), p.clone(), value.clone())
            .prop_map(|(hart, vm, page, word)| Step::Disk { hart, vm, page, word }),
        1 => (0..4usize).prop_map(|number| Step::Evict { number }),
        2 => (h.clone(), v.clone(), p.clone(), prop_oneof![1..3u64, Just(512u64)])
            .prop_map(|(hart, vm, page, pages)| Step::GiveBack { hart, vm, page, pages }),
        5 => (v.clone(), p.clone(), 0..3usize, n.clone())
            .prop_map(|(vm, page, pages, node)| Step::Migrate { vm, page, pages, node }),
        5 => (v.clone(), p.clone(), 0..3usize, n.clone())
            .prop_map(|(vm, page, pages, node)| Step::Replicate { vm, page, pages, node }),
        3 => (v.clone(), b.clone(), n.clone()).prop_map(|(vm, block, node)| Step::MoveBlock { vm, block, node }),
        3 => (v.clone(), b.clone(), 1..8u8).prop_map(|(vm, block, nodes)| Step::CopyBlock { vm, block, nodes }),
        1 => (v.clone(), b.clone(), n.clone()).prop_map(|(vm, block, node)| Step::CopyShared { vm, block, node }),
        3 => (v.clone(), p.clone(), n.clone()).prop_map(|(vm, page, node)| Step::Spread { vm, page, node }),
        1 => Just(Step::Retire),
        1 => Just(Step::Sweep),
        3 => (v.clone(), b.clone()).prop_map(|(vm, block)| Step::Split { vm, block }),
        2 => v.clone().prop_map(|vm| Step::Join { vm }),
        1 => (v.clone(), b.clone()).prop_map(|(vm, block)| Step::JoinBlock { vm, block }),
        1 => (v.clone(), b.clone()).prop_map(|(vm, block)| Step::JoinLeaves { vm, block }),
        1 => v.clone().prop_map(|vm| Step::GiveUp { vm }),
        5 => (v.clone(), p.clone(), p.clone()).prop_map(|(original, from, to)| Step::Merge { original, from, to }),
        3 => (v.clone(), b.clone(), 0..32u64)
            .prop_map(|(original, block, first)| Step::MergeBlock { original, block, first }),
        2 => (v.clone(), p.clone()).prop_map(|(vm, page)| Step::ZeroPages { vm, page }),
        1 => (v.clone(), b.clone()).prop_map(|(vm, block)| Step::ZeroBlock { vm, block }),
        3 => (v.clone(), p.clone()).prop_map(|(vm, page)| Step::Sample { vm, page }),
        20 => (h, 0..8usize).prop_map(|(hart, number)| Step::Go { hart, number }),
        2 => vm.prop_map(|vm| Step::Free { vm }),
        1 => (0..4u64, 0..3u64).prop_map(|(first, count)| Step::Refuse { first, count }),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![4 => steps(), 1 => steps().prop_map(|step| Step::Meanwhile(Box::new(step)))]
}

fn run_all(large: &[bool; VMS], steps: &[Step]) {
    let run = Run::new(large);
    for (number, step) in steps.iter().enumerate() {
        run.perform(step);
        run.world.check();
        if number % 8 == 0 {
            run.world.check_all();
        }
    }
    run.end();
}

/// Everything that takes pages, once or more, with both VMs.
fn all_that_takes_pages() -> Vec<Step> {
    let go = |hart| Step::Go { hart, number: 0 };
    let mut steps = Vec::new();
    for vm in 0..VMS {
        steps.extend((0..PAGES.len()).map(|page| Step::Store { hart: page % HARTS, vm, page, value: 1 }));
        steps.extend([
            Step::Disk { hart: 1, vm, page: 1, word: 5 },
            Step::Load { hart: 2, vm, page: 1 },
            Step::Spread { vm, page: 1, node: 2 },
            Step::Store { hart: 0, vm, page: 1, value: 2 },
            Step::DeviceWrite { hart: 3, vm, page: 2, value: 1 },
            Step::DeviceRead { hart: 3, vm, page: 3 },
        ]);
        for job in [
            Step::Migrate { vm, page: 0, pages: 2, node: 1 },
            Step::Replicate { vm, page: 3, pages: 2, node: 2 },
            Step::MoveBlock { vm, block: 1, node: 2 },
            Step::CopyBlock { vm, block: 0, nodes: 6 },
            Step::CopyShared { vm, block: 0, node: 1 },
            Step::Split { vm, block: 0 },
            Step::Merge { original: vm, from: 0, to: 0 },
            Step::ZeroPages { vm, page: 4 },
        ] {
            steps.extend([job, go(0), Step::Interrupt { hart: 0 }, go(1), Step::Load { hart: 3, vm, page: 0 }, go(2)]);
            steps.extend((0..HARTS).map(|hart| Step::Interrupt { hart }));
        }
        steps.extend([Step::GiveBack { hart: 0, vm, page: 5, pages: 1 }, Step::JoinBlock { vm, block: 0 }, go(3)]);
        steps.extend([Step::Free { vm }, Step::Store { hart: 1, vm, page: 5, value: 2 }, Step::Join { vm }]);
    }
    steps
}

/// Every page that anybody asks for is refused once, alone or with all that come after it: whoever asks gives up what it was about, memory
/// contains what was stored, and all pages come back.
#[test]
fn any_page_may_be_refused() {
    let steps = all_that_takes_pages();
    for large in [[true, true], [false, true]] {
        for count in [1, u64::MAX] {
            for first in 0.. {
                let run = Run::new(&large);
                run.world.refuse(first, count);
                for step in &steps {
                    run.perform(step);
                    run.world.check();
                }
                let asked = run.world.machine.frames().refusals().asked();
                run.end();
                if asked <= first {
                    assert!(first > 20, "{first} pages are not all that these steps take");
                    break;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4000, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order, memory contains what was stored, no hart reaches what is not its VM's, and all pages come
    /// back in the end.
    #[test]
    fn nothing_breaks_memory(large in any::<[bool; VMS]>(), steps in prop::collection::vec(any_step(), 1..160)) {
        run_all(&large, &steps);
    }
}
