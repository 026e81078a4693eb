//! Memory is taken from a VM whose harts remember everything: who is fenced, who is interrupted, and that nobody
//! reaches a page after it was freed.

use crate::testing::{Event, FakeMachine};
use crate::{Installed, NodeTable};
use addr::{CpuIndex, Gfn, Mfn, NodeId, PAGES_PER_LARGE, PageSize, SpuId, VmId};
use frames::testing::{FakeMemory, small_machine};
use frames::{DyingList, Frames, PageOwner, PendingShootdown, Pool};
use proptest::prelude::*;
use rv_pte::{Mode, PteFlags};
use tlb::Fence;

const NODES: [NodeId; 1] = [NodeId(0)];
const VM: VmId = VmId(1);
const BASE: u64 = 0x80000;

struct Bench<'a> {
    pool: Pool<'a, FakeMemory>,
    /// One per node of the VM.
    tables: [NodeTable; 2],
    machine: FakeMachine<'a>,
}

fn bench<'a>(frames: &'a Frames, memory: &'a FakeMemory) -> Bench<'a> {
    let pool = Pool { frames, memory, nodes: &NODES, vm: VM, spu: SpuId(0) };
    let tables = [(); 2].map(|()| NodeTable::new(&pool, Mode::Sv39x4).unwrap());
    Bench { pool, tables, machine: FakeMachine::new(frames, 4, 2) }
}

impl Bench<'_> {
    /// A fault on guest page `gfn` on a hart of `node`; the page it gets.
    fn fault(&mut self, node: usize, gfn: Gfn) -> Mfn {
        let present = self.tables.iter().find_map(|table| table.lookup(self.pool.memory, gfn));
        let mfn = match present {
            Some(leaf) => leaf.mfn,
            None => self.pool.guest_page(PageSize::Base, gfn).unwrap().settle(),
        };
        self.tables[node].install(&self.pool, gfn, mfn, PageSize::Base, PteFlags::RWX).unwrap();
        mfn
    }

    fn enter(&mut self, cpu: u16) {
        self.machine.enter(CpuIndex(cpu), &self.tables[usize::from(cpu % 2)], self.pool.memory);
    }

    /// Takes guest page `gfn` away, in the order that the crate's documentation asks for.
    fn take_away(&mut self, gfn: Gfn) {
        let Some(leaf) = self.tables.iter().find_map(|table| table.lookup(self.pool.memory, gfn)) else { return };
        let mut dying = DyingList::new();
        self.pool.frames.drop_mapping(&mut dying, leaf.mfn, 0, PageOwner { vm: VM, gfn }).unwrap();
        for table in &mut self.tables {
            table.remove(self.pool.memory, gfn, 1);
        }
        let token = self.machine.tracker.retire();
        self.machine.shoot_down(self.pool.memory, PendingShootdown::new(token, dying));
    }
}

#[test]
fn only_harts_inside_are_interrupted_and_all_others_fence_when_they_enter() {
    let (memory, frames) = small_machine(&[2]);
    let mut bench = bench(&frames, &memory);
    let gfn = Gfn::new(BASE);
    let mfn = bench.fault(0, gfn);
    bench.fault(1, gfn);
    (0..3).for_each(|cpu| bench.enter(cpu));
    bench.machine.leave(CpuIndex(2));
    bench.machine.take_events();
    assert!(bench.machine.reaches(CpuIndex(1), mfn).is_some());

    bench.take_away(gfn);
    let (one, two) = (CpuIndex(0), CpuIndex(1));
    let kicked = |cpu| [Event::Kicked { cpu }, Event::Left { cpu }];
    assert_eq!(
        bench.machine.take_events(),
        [kicked(one).as_slice(), &kicked(two), &[Event::Freed { pages: 1 }]].concat()
    );

    // Harts 0 and 2 were in the VM before: they fence by themselves. Hart 3 never was: it need not.
    for (cpu, fences) in [(0, true), (2, true), (3, false)] {
        bench.enter(cpu);
        let [Event::Entered { fence, .. }] = bench.machine.take_events()[..] else { panic!("one event") };
        assert_eq!(matches!(fence, Fence::Vmid(_)), fences, "hart {cpu}");
        assert_eq!(bench.machine.reaches(CpuIndex(cpu), mfn), None);
    }
}

#[test]
fn a_stale_translation_outlives_the_leaf_until_the_shootdown() {
    let (memory, frames) = small_machine(&[2]);
    let mut bench = bench(&frames, &memory);
    let gfn = Gfn::new(BASE);
    let mfn = bench.fault(0, gfn);
    bench.enter(0);
    assert_eq!(bench.tables[0].remove(&memory, gfn, 1), 1);
    assert!(bench.machine.reaches(CpuIndex(0), mfn).is_some(), "or this test shows nothing");
    let pending = PendingShootdown::new(bench.machine.tracker.retire(), DyingList::new());
    assert!(!pending.is_complete(&bench.machine.tracker));
    bench.machine.shoot_down(bench.pool.memory, pending);
    assert_eq!(bench.machine.reaches(CpuIndex(0), mfn), None);
}

#[test]
fn a_collapsed_block_gives_its_table_back_behind_a_shootdown() {
    let (memory, frames) = small_machine(&[8]);
    let mut bench = bench(&frames, &memory);
    let first = Gfn::new(BASE);
    let large = bench.pool.guest_page(PageSize::Large, first).unwrap().settle();
    let table = &mut bench.tables[0];
    assert_eq!(table.install(&bench.pool, first, large, PageSize::Large, PteFlags::RWX), Ok(Installed::New));
    table.split(&bench.pool, first).unwrap();
    let pages = table.pages();
    bench.enter(0);
    bench.machine.take_events();

    let mut dying = DyingList::new();
    bench.tables[0].collapse(&bench.pool, first, large, PteFlags::RWX, &mut dying).unwrap();
    assert_eq!((bench.tables[0].pages(), dying.pages()), (pages - 1, 1));
    let pending = PendingShootdown::new(bench.machine.tracker.retire(), dying);
    bench.machine.shoot_down(bench.pool.memory, pending);
    let cpu = CpuIndex(0);
    let events = bench.machine.take_events();
    assert_eq!(events, [Event::Kicked { cpu }, Event::Left { cpu }, Event::Freed { pages: 1 }]);
    assert_eq!(bench.tables[0].lookup(&memory, first).map(|leaf| leaf.size), Some(PageSize::Large));
    assert_eq!(bench.tables[0].remove(&memory, Gfn::new(BASE + PAGES_PER_LARGE - 1), 1), 1, "goes as a whole");
}

#[derive(Clone, Debug)]
enum Op {
    Enter(u16),
    Leave(u16),
    Fault(u16, u64),
    TakeAway(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (0u16..4).prop_map(Op::Enter),
        (0u16..4).prop_map(Op::Leave),
        (0u16..4, 0u64..6).prop_map(|(cpu, page)| Op::Fault(cpu, page)),
        (0u64..6).prop_map(Op::TakeAway),
    ]
}

proptest! {
    /// The fake checks at each entry and each free that no hart reaches free memory.
    #[test]
    fn nobody_reaches_memory_that_is_free(ops in prop::collection::vec(op(), 1..120)) {
        let (memory, frames) = small_machine(&[2]);
        let mut bench = bench(&frames, &memory);
        for op in ops {
            match op {
                Op::Enter(cpu) => {
                    bench.machine.leave(CpuIndex(cpu));
                    bench.enter(cpu);
                }
                Op::Leave(cpu) => bench.machine.leave(CpuIndex(cpu)),
                Op::Fault(cpu, page) => {
                    bench.machine.leave(CpuIndex(cpu));
                    let mfn = bench.fault(usize::from(cpu % 2), Gfn::new(BASE + page));
                    bench.enter(cpu);
                    prop_assert!(bench.machine.reaches(CpuIndex(cpu), mfn).is_some(), "the fault is answered");
                }
                Op::TakeAway(page) => bench.take_away(Gfn::new(BASE + page)),
            }
        }
    }
}
