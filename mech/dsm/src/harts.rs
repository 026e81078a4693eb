//! What harts ask for.
//!
//! A call that answers [`Outcome::Wait`] is made again, with the same arguments, when [`Dsm::take_wakes`] names the hart.

use alloc::vec::Vec;

use dsm_wire::{MachineId, Message, Mode, Page, Store, Want};

use crate::atomics::Kind;
use crate::choice;
use crate::config::{Protocol, Visibility};
use crate::machine::{Dsm, Refused};
use crate::pages::{Pages, Rights};
use crate::state::{Fetch, Role, Task, Then};

/// Instructions for which a page with a reservation stays: a constrained LR/SC loop has 16, and may be gone through more than once.
const RESERVED: u32 = 64;

/// What became of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome<T> {
    /// It is done.
    Done(T),
    /// It must be tried again.
    Wait,
}

/// A FENCE, as far as it matters here: whether it orders stores before it ahead of loads behind it. All others cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// Stores before it (`w` or `o` in its predecessor set).
    pub after_stores: bool,
    /// Loads behind it (`r` or `i` in its successor set).
    pub before_loads: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Waiting {
    #[default]
    Nothing,
    /// For a page, in whatever state it then is.
    Page(Page),
    /// Until so many stores of this machine have their places. The access has been done, with this result.
    Places(u64, u64),
    /// Until any store has its place.
    Room,
}

/// A hart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hart {
    waiting: Waiting,
    reservation: Option<(Page, u16)>,
    /// Pages that stay until it has made progress, and how many instructions that is.
    holds: Vec<Page>,
    budget: u32,
}

/// What a store or atomic has to do next.
enum Way {
    /// The page is this machine's alone.
    Alone,
    /// It may be logged.
    Log,
    Wait,
}

impl Dsm {
    /// `hart` loads from `page`, or fetches an instruction. Done: the page may be read.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn load(&mut self, hart: u8, page: Page, pages: &mut dyn Pages) -> Result<Outcome<()>, Refused> {
        if self.is_implicit(page) || self.local(page).rights >= Rights::Read {
            self.harts[usize::from(hart)].waiting = Waiting::Nothing;
            return Ok(Outcome::Done(()));
        }
        self.need(hart, page, Want::Read);
        self.settle(pages)?;
        Ok(Outcome::Wait)
    }

    /// `hart` stores.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn store(&mut self, hart: u8, store: Store, pages: &mut dyn Pages) -> Result<Outcome<()>, Refused> {
        let done = self.write(hart, store.page, Kind::Store(store), pages)?;
        Ok(map(done, |_| ()))
    }

    /// An access that writes. The result is what an atomic returns.
    pub(crate) fn write(
        &mut self,
        hart: u8,
        page: Page,
        kind: Kind,
        pages: &mut dyn Pages,
    ) -> Result<Outcome<u64>, Refused> {
        if let Some(outcome) = self.finished(hart) {
            return Ok(outcome);
        }
        if self.is_implicit(page) {
            return Ok(self.do_alone(hart, kind, pages));
        }
        let outcome = match self.way(hart, page, kind.is_atomic(), pages)? {
            Way::Alone => self.do_alone(hart, kind, pages),
            Way::Log => self.do_logged(hart, kind, pages)?,
            Way::Wait => Outcome::Wait,
        };
        self.settle(pages)?;
        match outcome {
            Outcome::Wait => Ok(self.finished(hart).unwrap_or(Outcome::Wait)),
            done => Ok(done),
        }
    }

    /// An access of the hart's that waits for places; nothing if it waits for none.
    pub(crate) fn finished(&mut self, hart: u8) -> Option<Outcome<u64>> {
        let placed = self.placed;
        let hart = &mut self.harts[usize::from(hart)];
        let Waiting::Places(ticket, result) = hart.waiting else { return None };
        if ticket > placed {
            return Some(Outcome::Wait);
        }
        hart.waiting = Waiting::Nothing;
        Some(Outcome::Done(result))
    }

    /// Waits until all that has been logged has its place; the access then has this result.
    pub(crate) fn wait_for_places(&mut self, hart: u8, result: u64) -> Outcome<u64> {
        self.harts[usize::from(hart)].waiting = Waiting::Places(self.logged, result);
        self.send_log(true);
        self.finished(hart).unwrap_or(Outcome::Wait)
    }

    fn way(&mut self, hart: u8, page: Page, is_atomic: bool, pages: &mut dyn Pages) -> Result<Way, Refused> {
        let config = self.config;
        let local = self.local(page);
        if local.is_exclusive() {
            return Ok(Way::Alone);
        }
        let is_owner = local.role == Role::Owner;
        if is_owner && local.task.is_none() && local.mode == Mode::Invalidate && config.protocol != Protocol::Invalidate
        {
            // An atomic needs WU+ to go to all copies.
            let may_update = !is_atomic || config.protocol == Protocol::UpdatePlus;
            if may_update && choice::is_shared(&config, local) && !local.copyset.is_empty() {
                local.mode = if is_atomic { Mode::Single } else { Mode::Multi };
                self.counters.to_update += u64::from(!is_atomic);
                self.counters.to_single += u64::from(is_atomic);
            }
        }
        let local = self.local(page);
        let may_log = local.may_log() && (!is_atomic || local.mode == Mode::Single);
        if may_log && local.run < choice::run_limit(&config, local) {
            if self.log.is_full() {
                self.harts[usize::from(hart)].waiting = Waiting::Room;
                self.send_log(true);
                return Ok(Way::Wait);
            }
            return Ok(Way::Log);
        }
        if !is_owner {
            let want = if may_log {
                Want::Sole
            } else if is_atomic {
                Want::Atomic
            } else {
                Want::Write
            };
            self.need(hart, page, want);
            return Ok(Way::Wait);
        }
        self.wait_for_page(hart, page);
        if local_is_busy(self.local(page)) {
            return Ok(Way::Wait);
        }
        self.change_own(page, is_atomic, may_log, pages)?;
        Ok(if self.local(page).is_exclusive() { Way::Alone } else { Way::Wait })
    }

    /// The owner changes the page's mode for its own harts.
    fn change_own(&mut self, page: Page, is_atomic: bool, is_long: bool, pages: &mut dyn Pages) -> Result<(), Refused> {
        let drain = if self.log.has(page) { self.logged } else { 0 };
        let is_plus = self.config.protocol == Protocol::UpdatePlus;
        let local = self.local(page);
        if is_long {
            choice::alone(local);
        }
        if is_atomic && is_plus && !is_long && local.mode == Mode::Multi {
            let waits = local.copyset;
            for to in waits.iter() {
                self.send(to, Message::Stop { page, mode: Mode::Single });
            }
            return self.begin(page, Task { waits, drain: 0, then: Then::Single }, pages);
        }
        self.take_sole(page, drain, false, pages)
    }

    fn do_alone(&mut self, hart: u8, kind: Kind, pages: &mut dyn Pages) -> Outcome<u64> {
        let (page, word) = kind.place();
        let old = pages.read(page, word);
        let (store, result) = kind.perform(old);
        pages.write(page, word, store.mask, store.value);
        self.lose_reservation_but(page, word, hart);
        self.harts[usize::from(hart)].waiting = Waiting::Nothing;
        if kind.is_acquire() && self.config.visibility == Visibility::Early {
            return self.wait_for_places(hart, result);
        }
        Outcome::Done(result)
    }

    fn do_logged(&mut self, hart: u8, kind: Kind, pages: &mut dyn Pages) -> Result<Outcome<u64>, Refused> {
        let (page, word) = kind.place();
        let old = self.log.latest(page, word, pages);
        let (store, result) = kind.perform(old);
        self.log.push(store, pages);
        self.logged += 1;
        self.counters.logged += 1;
        let local = self.local(page);
        local.run = local.run.saturating_add(1);
        self.lose_reservation_but(page, word, hart);
        self.harts[usize::from(hart)].waiting = Waiting::Nothing;
        if kind.is_atomic() || self.config.visibility == Visibility::Ordered {
            let outcome = self.wait_for_places(hart, result);
            self.settle(pages)?;
            return Ok(outcome);
        }
        self.send_log(false);
        Ok(Outcome::Done(result))
    }

    /// `hart` executes a FENCE. Those of instruction fetches and page tables (`fence.i`, `sfence.vma`), device accesses and messages between
    /// harts count as full ones.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn fence(&mut self, hart: u8, fence: Fence, pages: &mut dyn Pages) -> Result<Outcome<()>, Refused> {
        if let Some(outcome) = self.finished(hart) {
            return Ok(map(outcome, |_| ()));
        }
        if self.config.visibility == Visibility::Ordered || !(fence.after_stores && fence.before_loads) {
            return Ok(Outcome::Done(()));
        }
        self.wait_for_places(hart, 0);
        self.settle(pages)?;
        Ok(map(self.finished(hart).unwrap_or(Outcome::Done(0)), |_| ()))
    }

    /// `hart` has retired `count` instructions since it was told last.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn retired(&mut self, hart: u8, count: u32, pages: &mut dyn Pages) -> Result<(), Refused> {
        let budget = &mut self.harts[usize::from(hart)].budget;
        *budget = budget.saturating_sub(count);
        if *budget == 0 { self.release(hart, Page(0), pages) } else { Ok(()) }
    }

    /// `hart` does something else for long: no page waits for it.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn leave(&mut self, hart: u8, pages: &mut dyn Pages) -> Result<(), Refused> {
        self.harts[usize::from(hart)].budget = 0;
        self.release(hart, Page(0), pages)
    }

    /// Pages from `first` on do not wait for the hart any more.
    pub(crate) fn release(&mut self, hart: u8, first: Page, pages: &mut dyn Pages) -> Result<(), Refused> {
        let freed = self.unhold(hart, first);
        for page in freed {
            self.take_queued(page, pages)?;
        }
        self.settle(pages)
    }

    fn unhold(&mut self, hart: u8, first: Page) -> Vec<Page> {
        let holds = &mut self.harts[usize::from(hart)].holds;
        let (kept, freed) = core::mem::take(holds).into_iter().partition(|page| *page < first);
        *holds = kept;
        let freed: Vec<Page> = freed;
        for page in &freed {
            self.local(*page).held &= !(1 << hart);
        }
        freed
    }

    /// Asks for a page, unless somebody here has.
    ///
    /// The hart gives up its holds from this page on. So who waits holds only pages below the one that it waits for, nobody waits in a
    /// circle, and an instruction that needs several pages gets them.
    fn need(&mut self, hart: u8, page: Page, want: Want) {
        self.wait_for_page(hart, page);
        let local = self.local(page);
        if local.fetch.is_some() || local.stopping.is_some() || local.role == Role::Owner {
            return;
        }
        local.fetch = Some(Fetch { want, since: alloc::collections::BTreeMap::new() });
        self.counters.requests += 1;
        let home: MachineId = self.config.home(page);
        self.send(home, Message::Request { page, want });
    }

    fn wait_for_page(&mut self, hart: u8, page: Page) {
        self.harts[usize::from(hart)].waiting = Waiting::Page(page);
        // What waited for these holds is taken up by `settle`.
        let freed = self.unhold(hart, page);
        self.freed.extend(freed);
    }

    /// Whether the page came with a block and nobody else has ever asked for it. Of such pages nothing is kept.
    fn is_implicit(&self, page: Page) -> bool {
        !self.pages.contains_key(&page) && self.blocks.contains(&self.config.block(page))
    }

    /// Wakes all harts that wait for `page`, and says which.
    pub(crate) fn wake_page(&mut self, page: Page) -> u64 {
        self.wake(|waiting| waiting == Waiting::Page(page))
    }

    pub(crate) fn wake_placed(&mut self) {
        let placed = self.placed;
        self.wake(|waiting| match waiting {
            Waiting::Places(ticket, _) => ticket <= placed,
            Waiting::Room => true,
            Waiting::Nothing | Waiting::Page(_) => false,
        });
    }

    fn wake(&mut self, is_due: impl Fn(Waiting) -> bool) -> u64 {
        let due = self.harts.iter().enumerate().filter(|(_, hart)| is_due(hart.waiting));
        let due = due.fold(0, |bits, (hart, _)| bits | 1 << hart);
        self.wakes |= due;
        due
    }

    /// The harts in `harts` have a hold on `page`.
    pub(crate) fn hold(&mut self, page: Page, harts: u64) {
        for (number, hart) in self.harts.iter_mut().enumerate().filter(|(number, _)| harts >> number & 1 == 1) {
            if !hart.holds.contains(&page) {
                hart.holds.push(page);
            }
            hart.budget = hart.budget.max(1);
            let held = 1 << number;
            if let Some(local) = self.pages.get_mut(&page) {
                local.held |= held;
            }
        }
    }

    /// A reservation of `hart`, and with it a longer hold.
    pub(crate) fn keep_reservation(&mut self, hart: u8, page: Page, word: u16) {
        self.harts[usize::from(hart)].reservation = Some((page, word));
        if self.pages.contains_key(&page) {
            self.hold(page, 1 << hart);
            self.harts[usize::from(hart)].budget = RESERVED;
        }
    }

    /// Ends the reservation of `hart`. Says whether it was for this word.
    pub(crate) fn end_reservation(&mut self, hart: u8, page: Page, word: u16) -> bool {
        self.harts[usize::from(hart)].reservation.take() == Some((page, word))
    }

    pub(crate) fn has_reservation(&self, hart: u8, page: Page, word: u16) -> bool {
        self.harts[usize::from(hart)].reservation == Some((page, word))
    }

    pub(crate) fn lose_reservation(&mut self, page: Page, word: u16) {
        self.lose_reservation_but(page, word, u8::MAX);
    }

    fn lose_reservation_but(&mut self, page: Page, word: u16, but: u8) {
        let others = self.harts.iter_mut().enumerate().filter(|(number, _)| *number != usize::from(but));
        for (_, hart) in others.filter(|(_, hart)| hart.reservation == Some((page, word))) {
            hart.reservation = None;
        }
    }

    pub(crate) fn lose_reservations(&mut self, page: Page) {
        for hart in self.harts.iter_mut().filter(|hart| hart.reservation.is_some_and(|(of, _)| of == page)) {
            hart.reservation = None;
        }
    }

    /// What is needed for LR: the page alone, or as its only writer. Nothing: wait.
    pub(crate) fn for_reserved(&mut self, hart: u8, page: Page, pages: &mut dyn Pages) -> Result<Option<()>, Refused> {
        if self.is_implicit(page) {
            return Ok(Some(()));
        }
        match self.way(hart, page, true, pages)? {
            Way::Alone => Ok(Some(())),
            // A store of another hart here that has no place yet must not be seen.
            Way::Log if self.config.visibility == Visibility::Ordered && self.log.has(page) => {
                self.harts[usize::from(hart)].waiting = Waiting::Room;
                self.send_log(true);
                Ok(None)
            }
            Way::Log => Ok(Some(())),
            Way::Wait => Ok(None),
        }
    }

    /// Whether SC may be logged or done alone.
    pub(crate) fn may_write_reserved(&mut self, page: Page) -> bool {
        if self.is_implicit(page) {
            return true;
        }
        let is_full = self.log.is_full();
        let local = self.local(page);
        local.is_exclusive() || local.may_log() && local.mode == Mode::Single && !is_full
    }

    /// Performs a write for which the page is ready.
    pub(crate) fn write_now(&mut self, hart: u8, kind: Kind, pages: &mut dyn Pages) -> Result<Outcome<u64>, Refused> {
        let (page, _) = kind.place();
        if self.is_implicit(page) || self.local(page).is_exclusive() {
            Ok(self.do_alone(hart, kind, pages))
        } else {
            self.do_logged(hart, kind, pages)
        }
    }
}

const fn local_is_busy(local: &crate::state::Local) -> bool {
    local.task.is_some() || local.stopping.is_some()
}

pub(crate) fn map<T, U>(outcome: Outcome<T>, f: impl FnOnce(T) -> U) -> Outcome<U> {
    match outcome {
        Outcome::Done(value) => Outcome::Done(f(value)),
        Outcome::Wait => Outcome::Wait,
    }
}
