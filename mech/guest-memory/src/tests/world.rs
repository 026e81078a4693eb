//! VMs on a played machine: vCPUs that load and store through what their harts' TLBs hold, devices, a disk cache, and what memory
//! should contain.
//!
//! Each hart has a vCPU of each VM, with tables of its own, so that one address is another page for each. A TLB is as weak as the
//! specification allows. It holds translations of each stage, and of both together, until a fence that has to take them; it is filled
//! ahead under the VMID that `hgatp` holds, whether the guest runs or not; and there are few VMIDs. A hart that is interrupted leaves
//! its guest when a test says so, and goes on with what it remembers until then.

use super::machine::Handle;
use super::tlb::Tlb;
use crate::{Access, GuestRam, Machine, RAM_START, Spec, Touch};
use addr::{BASE_PAGE, CpuIndex, Gfn, GuestPhysAddr, MachineAddr, Mfn, NodeId, PageSize, VmId};
use alloc::{collections::BTreeMap, rc::Rc, vec::Vec};
use core::cell::{Cell, RefCell};
use frames::{MachineMemory, PageUse};
use gstage::LeafFound;
use guest_access::{GuestMemory, PageMap};
use rv_pte::{Mode, PteFlags};
use tlb::{HartVmids, TlbContext, TlbGeneration};

/// The memory of a VM here.
pub type Ram = GuestRam<Handle>;

/// A VM here has two blocks of 2 MiB.
pub const PAGES: u64 = 2 * addr::PAGES_PER_LARGE;

/// Faults of an access, at most: who touches a block zeroes a page of it in each, and who writes to one that moves copies 4.
const FAULTS: u64 = 2 * addr::PAGES_PER_LARGE;

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It was made: the value that is there now.
    Value(u64),
    /// The vCPU waits for harts to pass this.
    Waits(TlbGeneration),
    /// The vCPU waits for a moment.
    Busy,
    /// No memory is left.
    OutOfMemory,
    /// The guest does not touch this page now: it has given it back, or lent it to a disk.
    NotTouched,
}

/// Until when a well-behaved guest leaves a page alone.
#[derive(Clone, Copy, Debug)]
enum Until {
    Passed(TlbGeneration),
    Settled,
}

pub struct Guest {
    pub ram: Ram,
    /// What memory should contain, by guest-physical address; nothing is 0.
    words: RefCell<BTreeMap<u64, u64>>,
    untouched: RefCell<BTreeMap<Gfn, Until>>,
}

struct Hart {
    vmids: HartVmids,
    /// Of each VM's vCPU.
    contexts: Vec<TlbContext>,
    inside: Option<(usize, u16)>,
    /// The VM and VMID that `hgatp` holds, inside and later.
    hgatp: Option<(usize, u16)>,
    tlb: Tlb,
}

/// The page at which the guest of `vm` has a page of its RAM; and the other way round.
fn paged(vm: usize, page: u64) -> u64 {
    page ^ (vm as u64 + 1)
}

pub struct World {
    pub machine: Handle,
    pub guests: Vec<Guest>,
    harts: RefCell<Vec<Hart>>,
    /// Pages of the disk cache, with the word that each begins with.
    cache: RefCell<Vec<(Mfn, u64)>>,
    /// Pages that were free at first, by node.
    free: Vec<u64>,
    /// Whether pages that are there may be refused.
    refuses: Cell<bool>,
}

/// A word of a guest page.
pub fn at(page: u64, word: u64) -> GuestPhysAddr {
    GuestPhysAddr::new(RAM_START + page * BASE_PAGE + word * 8)
}

/// A guest page.
pub fn gfn(page: u64) -> Gfn {
    at(page, 0).gfn()
}

impl World {
    /// VMs with large pages or without, on a machine of 16 MiB a node.
    pub fn new(large: &[bool], nodes: usize, harts: usize) -> Rc<Self> {
        Self::with_memory(large, &alloc::vec![16; nodes], harts)
    }

    pub fn with_memory(large: &[bool], megabytes: &[u64], harts: usize) -> Rc<Self> {
        let machine = Handle::new(megabytes, harts);
        let nodes = (0..machine.nodes() as u8).map(NodeId);
        let free = nodes.map(|node| machine.frames().pages_in(node, frames::PageState::Free)).collect();
        let guest = |(number, large_pages): (usize, &bool)| {
            let bytes = PAGES * BASE_PAGE;
            let spec = Spec { bytes, mode: Mode::Sv39x4, large_pages: *large_pages, may_share: true };
            let ram = Ram::new(machine.clone(), VmId(number as u16 + 1), &spec).expect("room for tables");
            Guest { ram, words: RefCell::default(), untouched: RefCell::default() }
        };
        let guests: Vec<_> = large.iter().enumerate().map(guest).collect();
        let contexts = || guests.iter().map(|_| TlbContext::new()).collect();
        // Few VMIDs: they come to an end.
        let hart =
            |_| Hart { vmids: HartVmids::new(2), contexts: contexts(), inside: None, hgatp: None, tlb: Tlb::default() };
        let harts = RefCell::new((0..harts).map(hart).collect());
        Rc::new(Self { machine, guests, harts, cache: RefCell::default(), free, refuses: Cell::new(false) })
    }

    pub fn ram(&self, vm: usize) -> &Ram {
        &self.guests[vm].ram
    }

    pub fn harts(&self) -> usize {
        self.machine.harts()
    }

    /// Whether no VM's memory is locked.
    pub fn is_unlocked(&self) -> bool {
        self.guests.iter().all(|guest| !guest.ram.inner.is_locked())
    }

    fn enter(&self, hart: usize, vm: usize) {
        let mut harts = self.harts.borrow_mut();
        if harts[hart].inside.is_some_and(|(inside, _)| inside == vm) {
            return;
        }
        drop(harts);
        self.leave(hart);
        harts = self.harts.borrow_mut();
        let Hart { vmids, contexts, inside, hgatp, tlb } = &mut harts[hart];
        let (cpu, tracker) = (CpuIndex(hart as u16), self.guests[vm].ram.tlb());
        let entry = contexts[vm].enter(cpu, vmids, tracker);
        *hgatp = Some((vm, entry.vmid.0));
        tlb.fence(entry.fence, entry.vmid.0);
        contexts[vm].fenced(cpu, tracker, entry);
        *inside = Some((vm, entry.vmid.0));
    }

    /// The hart leaves its guest. What it was interrupted for has happened.
    pub fn leave(&self, hart: usize) {
        self.machine.take_kick(hart);
        if let Some((vm, _)) = self.harts.borrow_mut()[hart].inside.take() {
            self.guests[vm].ram.tlb().leave(CpuIndex(hart as u16));
        }
    }

    /// The hart takes its interrupt, if there is one.
    pub fn interrupt(&self, hart: usize) {
        if self.machine.take_kick(hart) {
            self.leave(hart);
        }
    }

    pub fn interrupt_all(&self) {
        (0..self.harts()).for_each(|hart| self.interrupt(hart));
    }

    /// Whose guest the hart executes.
    pub fn inside(&self, hart: usize) -> Option<usize> {
        self.harts.borrow()[hart].inside.map(|(vm, _)| vm)
    }

    /// Where an access of the guest on `hart` goes, as its TLB and its node's table have it.
    fn translate(&self, hart: usize, at: GuestPhysAddr, needed: PteFlags) -> Option<MachineAddr> {
        let mut harts = self.harts.borrow_mut();
        let Hart { inside, tlb, .. } = &mut harts[hart];
        let (vm, tag) = (*inside)?;
        let gfn = at.gfn();
        let address = (tag, paged(vm, gfn.raw() - self::gfn(0).raw()));
        let leaf = match tlb.both.get(&address) {
            Some(leaf) => *leaf,
            None => {
                let guest_page = *tlb.vs_stage.entry(address).or_insert(gfn);
                assert_eq!(guest_page, gfn, "hart {hart} uses a VS-stage translation that is not VM {vm}'s");
                let leaf = tlb.leaf(tag, gfn).or_else(|| self.walk(hart, vm, gfn))?;
                tlb.g_stage.insert((tag, leaf.gfn, leaf.size == PageSize::Large), leaf);
                tlb.both.insert(address, leaf);
                leaf
            }
        };
        let page = leaf.mfn.raw() + (gfn.raw() - leaf.gfn.raw());
        leaf.rights.contains(needed).then(|| MachineAddr::new(Mfn::new(page).addr().raw() | at.page_offset()))
    }

    /// The leaf of a guest page in the table of the hart's node.
    fn walk(&self, hart: usize, vm: usize, gfn: Gfn) -> Option<LeafFound> {
        let inner = self.guests[vm].ram.inner.lock();
        inner.tables[self.machine.node_of(hart).index()].lookup(self.machine.memory(), gfn)
    }

    /// The hart fills its TLB ahead with a page of the VM that `hgatp` names, inside or not.
    pub fn fill_ahead(&self, hart: usize, page: u64) {
        let mut harts = self.harts.borrow_mut();
        let Hart { hgatp, tlb, .. } = &mut harts[hart];
        let Some((vm, tag)) = *hgatp else { return };
        if let Some(leaf) = tlb.leaf(tag, gfn(page)).or_else(|| self.walk(hart, vm, gfn(page))) {
            tlb.g_stage.insert((tag, leaf.gfn, leaf.size == PageSize::Large), leaf);
            let guest_page = *tlb.vs_stage.entry((tag, paged(vm, page))).or_insert(gfn(page));
            if guest_page == gfn(page) {
                tlb.both.entry((tag, paged(vm, page))).or_insert(leaf);
            }
        }
    }

    /// Whether the guest leaves the page alone. Forgets the page once the guest need not any longer.
    fn is_untouched(&self, vm: usize, gfn: Gfn) -> bool {
        let guest = &self.guests[vm];
        let is_over = match guest.untouched.borrow().get(&gfn) {
            None => return false,
            Some(Until::Passed(generation)) => guest.ram.tlb().all_passed(*generation),
            Some(Until::Settled) => guest.ram.is_settled(),
        };
        if is_over {
            guest.untouched.borrow_mut().remove(&gfn);
        }
        !is_over
    }

    /// The vCPU of `vm` on `hart` loads, or stores a value.
    pub fn access(&self, hart: usize, vm: usize, at: GuestPhysAddr, store: Option<u64>) -> Did {
        if self.is_untouched(vm, at.gfn()) {
            return Did::NotTouched;
        }
        let (needed, access) = match store {
            Some(_) => (PteFlags::W, Access::Write),
            None => (PteFlags::R, Access::Read),
        };
        for _ in 0..FAULTS {
            self.enter(hart, vm);
            if let Some(place) = self.translate(hart, at, needed) {
                return Did::Value(self.perform(vm, at, place, store));
            }
            self.leave(hart);
            match self.touch(hart, vm, at, access) {
                Touch::Mapped | Touch::GoesOn => {}
                Touch::Repeated => self.harts.borrow_mut()[hart].contexts[vm].forget(),
                Touch::Waits(generation) if self.ram(vm).tlb().all_passed(generation) => {}
                Touch::Waits(generation) => return Did::Waits(generation),
                Touch::Busy => return Did::Busy,
                Touch::OutOfMemory => return Did::OutOfMemory,
            }
        }
        panic!("the vCPU on hart {hart} faults at {at:?} for ever");
    }

    /// The monitor on `hart` has left guests and loads a word through the translations of `vm`, as its guest would: inside the VM.
    /// `None` if it faults.
    pub fn monitor_load(&self, hart: usize, vm: usize, at: GuestPhysAddr) -> Option<u64> {
        if self.is_untouched(vm, at.gfn()) {
            return None;
        }
        self.leave(hart);
        // Others go on between the exit and the load, and while it is under way.
        self.machine.let_others_act();
        self.enter(hart, vm);
        self.machine.let_others_act();
        if self.inside(hart) != Some(vm) {
            // Somebody waited until every hart had left. This one would have loaded first; it enters anew, and finds what holds now.
            self.enter(hart, vm);
        }
        // Meanwhile the guest may have given the page away, and what is there is anybody's guess.
        let loaded = if self.is_untouched(vm, at.gfn()) { None } else { self.load_through(hart, vm, at) };
        self.leave(hart);
        loaded
    }

    /// The load itself.
    ///
    /// # Panics
    /// If the hart is not inside: the page may be somebody else's by now.
    pub fn load_through(&self, hart: usize, vm: usize, at: GuestPhysAddr) -> Option<u64> {
        assert_eq!(
            self.inside(hart),
            Some(vm),
            "hart {hart} loads through translations of VM {vm}, which it is outside of"
        );
        self.translate(hart, at, PteFlags::R).map(|place| self.perform(vm, at, place, None))
    }

    /// The monitor on `hart` handles a fault.
    pub fn touch(&self, hart: usize, vm: usize, at: GuestPhysAddr, access: Access) -> Touch {
        self.on(hart, || self.ram(vm).touch(at, access, self.machine.node_of(hart)))
    }

    /// The monitor acts on `hart`.
    pub fn on<T>(&self, hart: usize, act: impl FnOnce() -> T) -> T {
        let before = self.machine.go_to(self.machine.node_of(hart));
        let done = act();
        self.machine.go_to(before);
        done
    }

    fn perform(&self, vm: usize, at: GuestPhysAddr, place: MachineAddr, store: Option<u64>) -> u64 {
        let mut words = self.guests[vm].words.borrow_mut();
        if let Some(value) = store {
            self.machine.memory().write_u64(place, value);
            words.insert(at.raw(), value);
            return value;
        }
        let (found, expected) = (self.machine.memory().read_u64(place), words.get(&at.raw()).copied().unwrap_or(0));
        assert_eq!(found, expected, "a vCPU of VM {vm} loads {found} from {at:?}, where {expected} was stored last");
        found
    }

    pub fn load(&self, hart: usize, vm: usize, page: u64) -> Did {
        self.access(hart, vm, at(page, 0), None)
    }

    pub fn store(&self, hart: usize, vm: usize, page: u64, value: u64) -> Did {
        self.access(hart, vm, at(page, 0), Some(value))
    }

    /// A device of `vm` reads a word, by a hart that has left guests.
    pub fn device_read(&self, hart: usize, vm: usize, at: GuestPhysAddr) {
        if self.is_untouched(vm, at.gfn()) {
            return;
        }
        self.leave(hart);
        let Some(found) = self.by_device(self.on(hart, || self.ram(vm).read_u64(at))) else { return };
        let expected = self.guests[vm].words.borrow().get(&at.raw()).copied().unwrap_or(0);
        assert_eq!(found, expected, "a device of VM {vm} reads {found} from {at:?}, where {expected} was stored last");
    }

    /// A device writes a word. Who is still called away is by then.
    pub fn device_write(&self, hart: usize, vm: usize, at: GuestPhysAddr, value: u64) {
        if self.is_untouched(vm, at.gfn()) {
            return;
        }
        self.leave(hart);
        if self.by_device(self.on(hart, || self.ram(vm).write_u64(at, value))).is_some() {
            self.guests[vm].words.borrow_mut().insert(at.raw(), value);
        }
    }

    /// What came of a device's access: it may fail while pages are refused.
    fn by_device<T, E: core::fmt::Debug>(&self, done: Result<T, E>) -> Option<T> {
        if self.refuses.get() { done.ok() } else { Some(done.expect("it is RAM")) }
    }

    /// From now on `first` pages are given, and then `count` refused.
    pub fn refuse(&self, first: u64, count: u64) {
        self.refuses.set(count > 0);
        self.machine.frames().refusals().arm(first, count);
    }

    /// A disk reads the block of the cache that begins with `word` into a page, without a copy where that can be.
    pub fn map_from_disk(&self, hart: usize, vm: usize, page: u64, word: u64) {
        if self.is_untouched(vm, gfn(page)) {
            return;
        }
        self.leave(hart);
        let Some(block) = self.cached(hart, word) else { return };
        let mapped = self.on(hart, || self.ram(vm).map_page(at(page, 0), block));
        if mapped == PageMap::Refused {
            let copied = self.on(hart, || self.ram(vm).copy_from_machine(at(page, 0), block.addr(), BASE_PAGE));
            if self.by_device(copied).is_none() {
                return;
            }
        }
        self.on(hart, || self.ram(vm).settle_maps());
        self.forget_words(vm, page, 1);
        self.guests[vm].words.borrow_mut().insert(at(page, 0).raw(), word);
        self.guests[vm].untouched.borrow_mut().insert(gfn(page), Until::Settled);
    }

    /// The page of the disk cache that begins with `word`; read from the disk if need be.
    pub fn cached(&self, hart: usize, word: u64) -> Option<Mfn> {
        if let Some((page, _)) = self.cache.borrow().iter().find(|(_, first)| *first == word) {
            return Some(*page);
        }
        let frame = self.machine.frames().alloc_page(self.machine.node_of(hart), PageUse::Shared)?;
        let page = frame.zero(self.machine.memory()).settle();
        self.machine.memory().write_u64(page.addr(), word);
        self.cache.borrow_mut().push((page, word));
        Some(page)
    }

    /// The disk cache gives a block up.
    pub fn evict(&self, number: usize) {
        let mut cache = self.cache.borrow_mut();
        if number < cache.len() {
            let (page, _) = cache.swap_remove(number);
            self.machine.frames().release_hold(page).expect("the cache holds it");
        }
    }

    /// Holds of the disk cache on `page`.
    pub fn holds(&self, page: Mfn) -> u32 {
        self.cache.borrow().iter().filter(|(cached, _)| *cached == page).count() as u32
    }

    /// The guest's balloon gives pages back. It touches them again when no hart knows them any more.
    pub fn give_back(&self, hart: usize, vm: usize, page: u64, pages: u64) {
        self.leave(hart);
        self.on(hart, || {
            let mut done = 0;
            while done < pages {
                let step = self.ram(vm).give_back(at(page + done, 0), (pages - done) * BASE_PAGE);
                assert!(step.bytes > 0 && step.looked_at < 2 * addr::PAGES_PER_LARGE, "{step:?}");
                done += step.bytes / BASE_PAGE;
            }
        });
        self.forget_words(vm, page, pages);
        let generation = self.ram(vm).tlb().current();
        let mut untouched = self.guests[vm].untouched.borrow_mut();
        untouched.extend((page..page + pages).map(|page| (gfn(page), Until::Passed(generation))));
    }

    fn forget_words(&self, vm: usize, page: u64, pages: u64) {
        let range = at(page, 0).raw()..at(page + pages, 0).raw();
        self.guests[vm].words.borrow_mut().retain(|word, _| !range.contains(word));
    }

    /// What should be in memory, by VM and address.
    pub fn for_each_word(&self, mut see: impl FnMut(usize, GuestPhysAddr, u64)) {
        for (vm, guest) in self.guests.iter().enumerate() {
            guest.words.borrow().iter().for_each(|(at, value)| see(vm, GuestPhysAddr::new(*at), *value));
        }
    }

    /// Calls `see` for each translation that a guest may use at this moment: of which hart and VM.
    pub fn for_each_translation(&self, mut see: impl FnMut(usize, usize, &LeafFound)) {
        for (number, hart) in self.harts.borrow().iter().enumerate() {
            let Some((vm, tag)) = hart.inside else { continue };
            let Tlb { g_stage, both, .. } = &hart.tlb;
            g_stage.iter().filter(|((vmid, ..), _)| *vmid == tag).for_each(|(_, leaf)| see(number, vm, leaf));
            both.iter().filter(|((vmid, _), _)| *vmid == tag).for_each(|(_, leaf)| see(number, vm, leaf));
        }
    }

    /// All VMs end, and the disk cache, too: every page must be free. Devices of a VM that ends go on meanwhile.
    pub fn end(self: Rc<Self>) {
        (0..self.harts()).for_each(|hart| self.leave(hart));
        for guest in &self.guests {
            for step in 0.. {
                assert!(step < 1000, "teardown does not end");
                if !guest.ram.tear_down_step() {
                    break;
                }
                let _ = guest.ram.write(at(step * 389 % PAGES, 0), &[1]);
            }
        }
        while !self.cache.borrow().is_empty() {
            self.evict(0);
        }
        let frames = self.machine.frames();
        // Nobody has the pages: their copies go with the next sweep.
        while frames.spread_pages() > 0 {
            frames.sweep_spread(usize::MAX);
        }
        for (guest, number) in self.guests.iter().zip(1..) {
            let left = frames.vm_pages(self.machine.memory(), VmId(number));
            assert!(left.is_empty(), "VM {number} leaves {left:?} behind ({} in its pmap)", guest.ram.resident().len());
        }
        let counts: Vec<_> = (0..self.machine.nodes() as u8).map(|node| frames.counts(NodeId(node))).collect();
        for (free, counts) in self.free.iter().zip(&counts) {
            // What is not free holds the links of back-maps.
            let links = counts.get(frames::PageState::Monitor);
            assert_eq!(counts.get(frames::PageState::Free) + links, *free, "{counts:?}");
            assert!(links <= 1, "{links} pages of links");
        }
    }
}
