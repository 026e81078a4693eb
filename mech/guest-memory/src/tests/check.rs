//! What must hold between any two steps.

use super::world::{PAGES, World, gfn};
use crate::Machine;
use addr::{Gfn, Mfn, NodeId, PageSize, VmId};
use alloc::{collections::BTreeMap, vec::Vec};
use frames::{MachineMemory, PageOwner, PageState as Row};
use gstage::LeafFound;
use pmap::{PageState, Rights};
use rv_pte::PteFlags;

impl World {
    /// Holds at any time.
    pub fn check(&self) {
        self.check_translations();
        self.check_words();
    }

    /// Holds at any time, and takes longer to see.
    pub fn check_all(&self) {
        self.check();
        self.check_tables();
        self.check_references(false);
    }

    /// Holds when all harts have passed all shootdowns and nothing is under way.
    pub fn check_at_rest(&self) {
        self.check_all();
        self.check_references(true);
        let frames = self.machine.frames();
        for node in (0..self.machine.nodes() as u8).map(NodeId) {
            assert_eq!(frames.pages_in(node, Row::Dying), 0, "frames on {node:?} wait for ever");
        }
    }

    /// No hart that is inside a VM knows a page that is free, the monitor's, or another VM's; and none writes a page of several.
    fn check_translations(&self) {
        self.for_each_translation(|hart, vm, leaf| {
            for index in 0..leaf.size.base_pages() {
                let (page, at) = (Mfn::new(leaf.mfn.raw() + index), Gfn::new(leaf.gfn.raw() + index));
                let row = self.machine.frames().map().info(page).expect("RAM");
                let id = VmId(vm as u16 + 1);
                let is_its = row.owner == Some(PageOwner { vm: id, gfn: at });
                let may = match row.state {
                    // Which VM's it was the row need not say any more.
                    Row::Dying => true,
                    Row::Private | Row::Replica => is_its,
                    Row::Shared => !leaf.rights.contains(PteFlags::W),
                    _ => false,
                };
                assert!(may, "hart {hart} reaches {page:?} by {leaf:?} of VM {vm}: {row:?}");
            }
        });
    }

    /// What backs each word that was stored contains it; all copies of a page do.
    fn check_words(&self) {
        let (frames, memory) = (self.machine.frames(), self.machine.memory());
        self.for_each_word(|vm, at, value| {
            let inner = self.ram(vm).inner.lock();
            let mapping = inner.pmap.lookup(memory, at.gfn()).expect("RAM");
            for node in (0..self.machine.nodes() as u8).map(NodeId) {
                let page = match mapping.size {
                    PageSize::Base => inner.pmap.page_for(frames, &mapping, node),
                    PageSize::Large => mapping.machine_page(at.gfn()),
                };
                let word = |page: Mfn| memory.read_u64(addr::MachineAddr::new(page.addr().raw() | at.page_offset()));
                let found = page.map_or(0, word);
                assert_eq!(found, value, "VM {vm} {at:?} on {node:?}: {mapping:?}");
            }
        });
    }

    /// No table says more than the pmap.
    fn check_tables(&self) {
        for guest in &self.guests {
            let inner = guest.ram.inner.lock();
            for (node, table) in inner.tables.iter().enumerate() {
                table.for_each_leaf(self.machine.memory(), |leaf| {
                    self.check_leaf(&inner.pmap, NodeId(node as u8), &leaf)
                });
            }
        }
    }

    fn check_leaf(&self, pmap: &pmap::Pmap, node: NodeId, leaf: &LeafFound) {
        let frames = self.machine.frames();
        for index in 0..leaf.size.base_pages() {
            let (at, page) = (Gfn::new(leaf.gfn.raw() + index), Mfn::new(leaf.mfn.raw() + index));
            let mapping = pmap.lookup(self.machine.memory(), at).expect("RAM");
            let is_writable = mapping.rights() == Rights::ReadWrite;
            assert!(is_writable || !leaf.rights.contains(PteFlags::W), "{leaf:?} allows more than {mapping:?}");
            let first = mapping.machine_page(at);
            let is_it = match mapping.state {
                PageState::Private { .. } => first == Some(page),
                PageState::Replicated { master, .. } => {
                    first == Some(page) || frames.replicas(master).any(|copy| copy == page)
                }
                PageState::Shared { mfn, .. } => mfn == page || frames.spread_on(mfn, node) == Some(page),
                _ => false,
            };
            assert!(is_it, "{leaf:?} of {node:?} shows {page:?}, but the pmap has {mapping:?}");
        }
    }

    /// The memmap counts each guest page that has a shared page, and each holder; some that are about to go, too, if not `at_rest`.
    fn check_references(&self, at_rest: bool) {
        let mut mapped = BTreeMap::<Mfn, Vec<PageOwner>>::new();
        for (guest, id) in self.guests.iter().zip(1..) {
            let inner = guest.ram.inner.lock();
            for at in (0..PAGES).map(gfn) {
                let mapping = inner.pmap.lookup(self.machine.memory(), at).expect("RAM");
                let owner = PageOwner { vm: VmId(id), gfn: at };
                match mapping.state {
                    PageState::Shared { mfn, .. } => mapped.entry(mfn).or_default().push(owner),
                    PageState::Private { .. } => self.check_owner(mapping.machine_page(at), Row::Private, owner),
                    PageState::Replicated { .. } => self.check_owner(mapping.machine_page(at), Row::Private, owner),
                    _ => {}
                }
            }
        }
        for (page, owners) in mapped {
            let row = self.machine.frames().map().info(page).expect("RAM");
            if let [owner] = *owners
                && row.state == Row::Private
            {
                // It may be shared, and nobody else has come yet.
                self.check_owner(Some(page), Row::Private, owner);
                continue;
            }
            assert_eq!(row.state, Row::Shared, "{page:?} backs {owners:?}");
            let is_spread = (0..self.machine.nodes() as u8)
                .any(|node| self.machine.frames().spread_on(page, NodeId(node)).is_some());
            let known = owners.len() as u32 + self.holds(page) + u32::from(is_spread);
            let is_right = if at_rest { row.references == known } else { row.references >= known };
            assert!(is_right, "{page:?} has {} references, and {owners:?} with {} holds", row.references, known);
            let mut told = Vec::new();
            self.machine.frames().for_each_owner(self.machine.memory(), page, |owner| told.push(owner));
            assert!(
                owners.iter().all(|owner| told.contains(owner)),
                "{page:?} tells of {told:?}, not all of {owners:?}"
            );
        }
    }

    fn check_owner(&self, page: Option<Mfn>, state: Row, owner: PageOwner) {
        let row = page.and_then(|page| self.machine.frames().map().info(page)).expect("RAM");
        assert!(row.state == state && row.owner == Some(owner), "{owner:?} has {page:?}, whose row says {row:?}");
    }
}
