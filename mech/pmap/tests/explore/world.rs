//! The world of the search: small enough to be met whole.

use addr::{Mfn, NodeId};
use pmap::{Actions, Contents, Event, LeafChange, PageState, Rights, step};

const PAGES: usize = 3;
const VMS: usize = 2;
/// One hart on each. VM 0 runs on both, VM 1 on the second.
const NODES: usize = 2;
const HARTS: [u8; VMS] = [0b11, 0b10];

/// What a page holds. Guests write one of two values by turns, so that every write makes a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    Zero,
    Block,
    Written(bool),
}

/// The rules under test.
#[derive(Clone, Copy)]
pub struct Rules {
    /// A reference to a shared page ends behind the shootdown.
    pub references_wait: bool,
    /// A page that has taken another's place is written behind the shootdown.
    pub writes_wait: bool,
    /// A watched page is copied behind the shootdown of the watch.
    pub copies_wait: bool,
    /// A page that its VM shares is mapped by others behind the shootdown of that.
    pub sharers_wait: bool,
    /// Shootdowns of each VM under way at once, at most: the size of the world.
    pub shootdowns: [usize; VMS],
}

impl Rules {
    pub const ALL: Self =
        Self { references_wait: true, writes_wait: true, copies_wait: true, sharers_wait: true, shootdowns: [2, 1] };
}

/// What a hart may know of the guest page. Leaves in memory need no place of their own in the world: they are changed with the
/// pmap, under one lock, and a missing one comes back with the next fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Leaf {
    page: usize,
    writable: bool,
}

/// A shootdown under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pending {
    /// Harts that have not passed it.
    behind: u8,
    /// References that end with it.
    ends: [Option<usize>; 2],
    /// Another page took the place of one that TLBs may still know.
    replaces: bool,
    /// The guest hears of it: a read from the disk, or a page given back.
    answers: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Vm {
    state: PageState,
    /// The copy on the other node.
    replica: Option<usize>,
    tlbs: [Option<Leaf>; NODES],
    pending: Vec<Pending>,
    /// What the guest must see.
    expected: Value,
    /// A device is filling the page, or the guest has given it back: what it sees meanwhile is its own affair.
    in_transit: bool,
}

/// References and contents of a machine page; free without references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Row {
    references: u8,
    contents: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    rows: [Row; PAGES],
    /// The page of the disk cache.
    cache: Option<usize>,
    vms: [Vm; VMS],
}

const fn mfn(page: usize) -> Mfn {
    Mfn::new(page as u64)
}

fn backing(state: PageState) -> Option<usize> {
    state.mfn().map(|mfn| mfn.raw() as usize)
}

impl Vm {
    fn new() -> Self {
        Self {
            state: PageState::Absent,
            replica: None,
            tlbs: [None; NODES],
            pending: Vec::new(),
            expected: Value::Zero,
            in_transit: false,
        }
    }

    /// What a leaf of `node` may say.
    fn leaf(&self, node: usize) -> Option<Leaf> {
        let master = backing(self.state)?;
        let page = if node == 1 { self.replica.unwrap_or(master) } else { master };
        match self.state.rights() {
            Rights::None => None,
            Rights::Read => Some(Leaf { page, writable: false }),
            Rights::ReadWrite => Some(Leaf { page, writable: true }),
        }
    }

    fn is_settled(&self, which: impl Fn(&Pending) -> bool) -> bool {
        !self.pending.iter().any(|pending| pending.behind != 0 && which(pending))
    }

    fn renumber(&mut self, numbers: &[usize; PAGES]) {
        let new = |mfn: &mut Mfn| *mfn = self::mfn(numbers[mfn.raw() as usize]);
        match &mut self.state {
            PageState::Private { mfn, .. } | PageState::Shared { mfn, .. } => new(mfn),
            PageState::Replicated { master, .. } => new(master),
            _ => {}
        }
        let ends = self.pending.iter_mut().flat_map(|pending| pending.ends.iter_mut().flatten());
        ends.chain(&mut self.replica).for_each(|page| *page = numbers[*page]);
        self.tlbs.iter_mut().flatten().for_each(|entry| entry.page = numbers[entry.page]);
    }

    /// Every page that it refers to, once for each reference.
    fn references(&self) -> impl Iterator<Item = usize> {
        let ends = self.pending.iter().flat_map(|pending| pending.ends.into_iter().flatten());
        backing(self.state).into_iter().chain(self.replica).chain(ends)
    }
}

impl World {
    pub fn new() -> Self {
        let row = Row { references: 0, contents: Value::Zero };
        Self { rows: [row; PAGES], cache: None, vms: [Vm::new(), Vm::new()] }
    }

    /// What must hold in every state.
    pub fn check(&self) -> Result<(), String> {
        for (page, row) in self.rows.iter().enumerate() {
            let of_vms = self.vms.iter().flat_map(Vm::references).filter(|at| *at == page).count();
            let wanted = of_vms + usize::from(self.cache == Some(page));
            if usize::from(row.references) != wanted {
                return Err(format!("page {page} has {} references, {wanted} are there", row.references));
            }
        }
        for (number, vm) in self.vms.iter().enumerate() {
            for node in 0..NODES {
                let Some(entry) = vm.tlbs[node] else { continue };
                let row = self.rows[entry.page];
                if row.references == 0 {
                    return Err(format!("VM {number}: the TLB of node {node} knows a page that is free"));
                }
                if !vm.references().any(|page| page == entry.page) {
                    return Err(format!("VM {number}: the TLB of node {node} knows a page that is another's"));
                }
                let is_current = vm.expected == row.contents;
                if !vm.in_transit && !is_current {
                    return Err(format!("VM {number}: node {node} sees old contents"));
                }
            }
        }
        Ok(())
    }

    /// Gives all that can happen next to `see`, with a name.
    pub fn steps(&self, rules: Rules, see: &mut dyn FnMut(&str, Self)) {
        let mut all = Steps { world: self, rules, see };
        all.cache();
        for (vm, harts) in HARTS.into_iter().enumerate() {
            all.shootdowns(vm);
            (0..NODES).filter(|node| harts >> node & 1 != 0).for_each(|node| all.hart(vm, node));
            all.populate(vm);
            if self.vms[vm].pending.len() < rules.shootdowns[vm] {
                all.monitor(vm);
            }
        }
    }

    fn free_page(&self) -> Option<usize> {
        self.rows.iter().position(|row| row.references == 0)
    }

    fn release(&mut self, page: usize) {
        let row = &mut self.rows[page];
        row.references -= 1;
        if row.references == 0 {
            row.contents = Value::Zero;
        }
    }

    /// The same world with pages numbered in the order in which it names them, and shootdowns in one order: worlds that
    /// differ in nothing else are one.
    fn canonical(mut self) -> Self {
        let mut numbers = [usize::MAX; PAGES];
        let mut next = 0;
        let named = self.cache.into_iter().chain(self.vms.iter().flat_map(Vm::references));
        for page in named.chain(0..PAGES) {
            if numbers[page] == usize::MAX {
                (numbers[page], next) = (next, next + 1);
            }
        }
        let rows = self.rows;
        (0..PAGES).for_each(|page| self.rows[numbers[page]] = rows[page]);
        self.cache = self.cache.map(|page| numbers[page]);
        self.vms.iter_mut().for_each(|vm| vm.renumber(&numbers));
        self
    }

    /// Carries out a transition of `vm`: what `actions` say, in their order, as the monitor does.
    fn apply(
        &mut self,
        vm: usize,
        next: PageState,
        actions: Actions,
        new: Option<usize>,
        answers: Option<Value>,
        rules: Rules,
    ) {
        if let (Contents::CopyFrom(from), Some(new)) = (actions.contents, new) {
            self.rows[new].contents = self.rows[from.raw() as usize].contents;
        }
        let mut ends = [None; 2];
        if let Some(page) = actions.detach.map(|mfn| mfn.raw() as usize) {
            let is_shared = matches!(self.vms[vm].state, PageState::Shared { .. });
            if is_shared && !rules.references_wait {
                self.release(page);
            } else {
                ends[0] = Some(page);
            }
        }
        if actions.detach_replicas {
            ends[1] = self.vms[vm].replica.take();
        }
        if let Some(page) = actions.attach {
            self.rows[page.raw() as usize].references += 1;
        }
        let before = self.vms[vm].clone();
        let guest = &mut self.vms[vm];
        guest.state = next;
        guest.replica = new.filter(|_| matches!(next, PageState::Replicated { .. })).or(guest.replica);
        guest.in_transit |= answers.is_some();
        if matches!(actions.leaves, LeafChange::Weaken | LeafChange::Remove) || answers.is_some() {
            let replaces = actions.contents != Contents::Keep || actions.detach_replicas;
            guest.pending.push(Pending { behind: HARTS[vm], ends, replaces, answers });
        }
        (0..NODES).for_each(|node| check_leaves(before.leaf(node), guest.leaf(node), actions.leaves));
    }
}

/// Checks that a leaf that a state allowed goes with the next state, after what the actions do to it.
fn check_leaves(before: Option<Leaf>, after: Option<Leaf>, change: LeafChange) {
    let Some(before) = before else { return };
    let fits = |kept: Leaf| after.is_some_and(|may| may.page == kept.page && (may.writable || !kept.writable));
    assert!(match change {
        LeafChange::Keep | LeafChange::Strengthen => fits(before),
        LeafChange::Weaken => fits(Leaf { writable: false, ..before }),
        LeafChange::Remove => true,
    });
}

struct Steps<'a> {
    world: &'a World,
    rules: Rules,
    see: &'a mut dyn FnMut(&str, World),
}

impl Steps<'_> {
    fn add(&mut self, name: &str, change: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        change(&mut world);
        (self.see)(name, world.canonical());
    }

    /// An event of `vm`'s page, if the page can go that way. `new`: the page that it brings, free so far.
    fn event(&mut self, name: &str, vm: usize, event: Event, new: Option<usize>, answers: Option<Value>) {
        let Ok((next, actions)) = step(self.world.vms[vm].state, event) else { return };
        let rules = self.rules;
        self.add(&format!("VM {vm}: {name}"), |world| {
            if let Some(new) = new {
                world.rows[new].references += 1;
            }
            world.apply(vm, next, actions, new, answers, rules);
        });
    }

    /// The disk cache reads its block and forgets it.
    fn cache(&mut self) {
        match (self.world.cache, self.world.free_page()) {
            (Some(page), _) => self.add("cache forgets", |world| {
                world.cache = None;
                world.release(page);
            }),
            (None, Some(page)) => self.add("cache loads", |world| {
                world.cache = Some(page);
                world.rows[page] = Row { references: 1, contents: Value::Block };
            }),
            (None, None) => {}
        }
    }

    /// Harts pass shootdowns; what has been passed by all ends.
    fn shootdowns(&mut self, vm: usize) {
        for node in 0..NODES {
            let is_behind = |pending: &Pending| pending.behind & 1 << node != 0;
            if self.world.vms[vm].pending.iter().any(is_behind) {
                self.add(&format!("VM {vm}: node {node} fences"), |world| {
                    let guest = &mut world.vms[vm];
                    guest.tlbs[node] = None;
                    guest.pending.iter_mut().for_each(|pending| pending.behind &= !(1 << node));
                });
            }
        }
        for (index, pending) in self.world.vms[vm].pending.iter().enumerate() {
            let Pending { behind: 0, ends, answers, .. } = *pending else { continue };
            self.add(&format!("VM {vm}: shootdown {index} ends"), |world| {
                ends.into_iter().flatten().for_each(|page| world.release(page));
                let guest = &mut world.vms[vm];
                guest.pending.remove(index);
                if let Some(value) = answers {
                    guest.in_transit = false;
                    guest.expected = value;
                }
            });
        }
    }

    /// What the guest does on one hart.
    fn hart(&mut self, vm: usize, node: usize) {
        let guest = &self.world.vms[vm];
        // A buffer that a device is filling is written by nobody who wants to know what is in it.
        if let Some(entry) = guest.tlbs[node].filter(|entry| entry.writable && !guest.in_transit) {
            self.add(&format!("VM {vm}: node {node} writes"), |world| {
                let row = &mut world.rows[entry.page];
                row.contents = Value::Written(row.contents == Value::Written(false));
                world.vms[vm].expected = row.contents;
            });
        }
        // Also over an entry that is there: a TLB may forget what it likes.
        let leaf = guest.leaf(node);
        if leaf.is_some() && leaf != guest.tlbs[node] {
            self.add(&format!("VM {vm}: node {node} walks"), |world| world.vms[vm].tlbs[node] = leaf);
        }
    }

    /// A first touch.
    fn populate(&mut self, vm: usize) {
        let Some(page) = self.world.free_page() else { return };
        let Ok((next, actions)) = step(self.world.vms[vm].state, Event::Populate { mfn: mfn(page) }) else { return };
        let rules = self.rules;
        self.add(&format!("VM {vm}: populated"), |world| {
            world.rows[page] = Row { references: 1, contents: Value::Zero };
            world.apply(vm, next, actions, None, None, rules);
        });
    }

    /// What the monitor does to the page, on its own or because the guest wants to write.
    fn monitor(&mut self, vm: usize) {
        let guest = &self.world.vms[vm];
        let free = self.world.free_page();
        match guest.state {
            PageState::Shared { mfn: page, .. } => {
                if self.world.rows[page.raw() as usize].references == 1 {
                    self.event("takes the page", vm, Event::TakeSole, None, None);
                } else if let Some(new) = free {
                    self.event("copies on write", vm, Event::BreakSharing { copy: mfn(new) }, Some(new), None);
                }
            }
            // Pages of VM 1 stay where they are: it is there to share.
            PageState::Private { watched, .. } if vm == 0 => self.private(vm, watched, free),
            PageState::Private { watched: true, .. } => self.allow_write(vm),
            PageState::Replicated { .. } => self.event("collapses", vm, Event::Collapse, None, None),
            _ => {}
        }
        if !guest.in_transit {
            self.event("gives back", vm, Event::Release, None, Some(Value::Zero));
            if let Some(page) = self.world.cache {
                self.event("reads the block", vm, Event::MapShared { mfn: mfn(page) }, None, Some(Value::Block));
            }
            self.share_with_other(vm);
        }
    }

    fn private(&mut self, vm: usize, watched: bool, free: Option<usize>) {
        let guest = &self.world.vms[vm];
        if !watched {
            self.event("watches", vm, Event::Watch, None, None);
            self.event("offers", vm, Event::Share, None, None);
            return;
        }
        self.allow_write(vm);
        if let Some(new) = free.filter(|_| !self.rules.copies_wait || guest.is_settled(|_| true)) {
            self.event("moves", vm, Event::Migrate { to: mfn(new) }, Some(new), None);
            // The copy goes to node 1; the search needs no more than that.
            self.event("replicates", vm, Event::Replicate { node: NodeId(1) }, Some(new), None);
        }
    }

    fn allow_write(&mut self, vm: usize) {
        if !self.rules.writes_wait || self.world.vms[vm].is_settled(|pending| pending.replaces) {
            self.event("may write", vm, Event::Write, None, None);
        }
    }

    /// The page that the other VM offers, mapped here: as a page found equal would be.
    fn share_with_other(&mut self, vm: usize) {
        let other = &self.world.vms[1 - vm];
        let PageState::Shared { mfn: page, pins: 0 } = other.state else { return };
        let is_known = self.world.cache == backing(other.state);
        let may = !self.rules.sharers_wait || other.is_settled(|_| true);
        if may && !is_known && !other.in_transit {
            let value = self.world.rows[page.raw() as usize].contents;
            self.event("maps what is offered", vm, Event::MapShared { mfn: page }, None, Some(value));
        }
    }
}
