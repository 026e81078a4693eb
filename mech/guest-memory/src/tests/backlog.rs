//! References to shared pages that wait for harts: however many a guest has, few wait at a time.

use super::machine::Handle;
use crate::{GuestRam, Machine as _, RAM_START, Spec, later::MOST_WAITING};
use addr::{BASE_PAGE, CpuIndex, GuestPhysAddr, Mfn, NodeId, PAGES_PER_LARGE, VmId};
use alloc::{boxed::Box, rc::Rc, vec::Vec};
use frames::{PageState, PageUse};
use guest_access::{GuestMemory as _, PageMap};
use rv_pte::Mode;

const VM: VmId = VmId(1);
const PAGES: u64 = 64 << 20 >> 12;
/// Guest pages that one block of the disk backs, and the blocks that back all of them.
const USERS: u64 = 500;
const BLOCKS: u64 = PAGES.div_ceil(USERS);

const fn at(page: u64) -> GuestPhysAddr {
    GuestPhysAddr::new(RAM_START + page * BASE_PAGE)
}

struct Guest {
    machine: Handle,
    ram: Rc<GuestRam<Handle>>,
    disk: Vec<Mfn>,
}

impl Guest {
    /// All of its memory is mapped from a disk.
    fn new() -> Self {
        let machine = Handle::new(&[16], 2);
        let spec = Spec { bytes: PAGES * BASE_PAGE, mode: Mode::Sv39x4, large_pages: true, may_share: true };
        let ram = Rc::new(GuestRam::new(machine.clone(), VM, &spec).expect("room for tables"));
        let block = |_| {
            let frame = machine.frames().alloc_page(NodeId(0), PageUse::Shared).expect("room for the disk's cache");
            frame.zero(machine.memory()).settle()
        };
        let disk = (0..2 * BLOCKS).map(block).collect();
        let guest = Self { machine, ram, disk };
        (0..PAGES).for_each(|page| assert_ne!(guest.map(page, page / USERS), PageMap::Refused, "page {page}"));
        guest.ram.settle_maps();
        assert_eq!(guest.shared(), PAGES);
        guest
    }

    fn map(&self, page: u64, block: u64) -> PageMap {
        self.ram.map_page(at(page), self.disk[block as usize])
    }

    fn shared(&self) -> u64 {
        self.ram.resident().iter().map(|node| node.shared_pages).sum()
    }

    fn waiting(&self) -> usize {
        self.ram.later.lock().references()
    }

    /// Gives back all, as far as that goes.
    fn give_back_all(&self) {
        let mut page = 0;
        while page < PAGES {
            let step = self.ram.give_back(at(page), (PAGES - page) * BASE_PAGE);
            if step.bytes == 0 {
                return;
            }
            page += step.bytes / BASE_PAGE;
        }
    }

    fn enter(&self, hart: u16) {
        let (cpu, tracker) = (CpuIndex(hart), self.ram.tlb());
        let generation = tracker.enter(cpu);
        tracker.passed(cpu, generation);
    }

    fn end(self) {
        self.ram.tlb().leave(CpuIndex(0));
        while self.ram.free_deferred() {}
        while self.ram.tear_down_step() {
            assert!(self.waiting() <= PAGES_PER_LARGE as usize, "{} references wait", self.waiting());
        }
        let frames = self.machine.frames();
        self.disk.iter().for_each(|page| assert_eq!(frames.release_hold(*page), Ok(true), "somebody else has it"));
        assert!(frames.vm_pages(self.machine.memory(), VM).is_empty());
        assert_eq!(frames.pages_in(NodeId(0), PageState::Dying), 0);
    }
}

/// What a step of teardown adds is gone before the next one adds more.
#[test]
fn the_end_of_a_vm_with_many_shared_pages_needs_little_memory() {
    Guest::new().end();
}

/// However the pages lie: many in one block, or one of each.
#[test]
fn a_step_of_giving_back_looks_at_few_pages() {
    const MOST: u64 = 128;
    let guest = Guest::new();
    let (mut page, mut steps) = (0, 0);
    while page < PAGES {
        let step = guest.ram.give_back(at(page), (PAGES - page) * BASE_PAGE);
        assert!((1..=MOST).contains(&step.looked_at), "{} pages in one step", step.looked_at);
        assert!(
            step.bytes > 0 && step.bytes <= step.looked_at * BASE_PAGE,
            "{} bytes for {} looks",
            step.bytes,
            step.looked_at
        );
        (page, steps) = (page + step.bytes / BASE_PAGE, steps + 1);
        while guest.ram.free_deferred() {}
    }
    assert_eq!((steps, guest.shared()), (PAGES / MOST, 0));
    assert_eq!(guest.ram.pages_returned(), PAGES);
    guest.end();
}

/// A hart that does not leave keeps what it may know. The guest gives back no more than can wait, and keeps the rest.
#[test]
fn a_guest_with_a_hart_inside_gives_back_what_can_wait() {
    let guest = Guest::new();
    guest.enter(0);
    let most = MOST_WAITING + PAGES_PER_LARGE as usize;
    guest.give_back_all();
    assert!((MOST_WAITING..most).contains(&guest.waiting()), "{} references wait", guest.waiting());
    assert_eq!(guest.ram.pages_returned(), guest.waiting() as u64);
    assert_eq!(guest.shared(), PAGES - guest.waiting() as u64, "the rest is as it was");
    for page in 0..PAGES {
        guest.ram.give_back(at(page), BASE_PAGE);
    }
    assert!(guest.waiting() < most);

    guest.ram.tlb().leave(CpuIndex(0));
    guest.give_back_all();
    assert_eq!(guest.shared(), 0);
    while guest.ram.free_deferred() {}
    assert_eq!(guest.waiting(), 0);
    guest.end();
}

/// The same for a disk that maps other blocks in the place of these: it copies what cannot be mapped, and the device waits for the
/// hart for that.
#[test]
fn a_disk_maps_no_more_than_can_wait() {
    let guest = Guest::new();
    guest.enter(0);
    let mut mapped = 0;
    while guest.map(mapped, BLOCKS + mapped / USERS) != PageMap::Refused {
        mapped += 1;
        if mapped.is_multiple_of(64) {
            guest.ram.settle_maps();
        }
    }
    guest.ram.settle_maps();
    assert!(guest.waiting() <= MOST_WAITING + 64, "{} references wait", guest.waiting());
    assert!(mapped as usize >= MOST_WAITING);
    let ram = guest.ram.clone();
    guest.machine.set_on_time(Box::new(move || ram.tlb().leave(CpuIndex(0))));
    let last = PAGES - 1;
    assert_eq!(guest.ram.write(at(last), &[7]), Ok(()));
    assert!(guest.waiting() < MOST_WAITING);
    assert_eq!(guest.shared(), PAGES - 1);
    assert_ne!(guest.map(last, 0), PageMap::Refused);
    guest.ram.settle_maps();
    guest.machine.set_on_time(Box::new(|| ()));
    guest.end();
}
