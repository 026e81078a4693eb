//! What an owner does: answers requests, and changes a page's mode.

use alloc::vec::Vec;

use dsm_wire::{Content, MachineId, Machines, Message, Mode, Page, Want};
use scarce::NoMemory;

use crate::choice;
use crate::config::Visibility;
use crate::machine::{Dsm, Refused};
use crate::pages::{Pages, Rights};
use crate::state::{Plan, Role, Task, Then};

impl Dsm {
    /// The home says that `requester` wants the page.
    pub(crate) fn forwarded(
        &mut self,
        from: MachineId,
        page: Page,
        want: Want,
        requester: MachineId,
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        if from != self.config.home(page) || self.local(page).role != Role::Owner {
            return Err(Refused::Unasked(from, page));
        }
        if requester.0 >= self.config.machines {
            return Err(Refused::Nobody(requester));
        }
        if requester == self.config.me {
            // A block came meanwhile, and the page with it.
            self.local(page).fetch = None;
            self.send(from, Message::Settled { page, owner: requester });
            self.arrived(page);
            return Ok(());
        }
        let config = self.config;
        let local = self.local(page);
        choice::count(local, want);
        let plan = choice::answer(&config, local, want);
        let is_hidden = local.is_exclusive() || local.mode != Mode::Invalidate && plan != Plan::Copy;
        let waits = match plan {
            Plan::Single if local.mode == Mode::Multi => local.copyset.without(requester),
            _ => Machines::NONE,
        };
        match plan {
            Plan::Take => self.set_rights(page, Rights::None, pages),
            Plan::Copy | Plan::Multi | Plan::Single => {
                let rights = self.local(page).rights.min(Rights::Read);
                self.set_rights(page, rights, pages);
            }
        }
        for to in waits.iter() {
            self.send(to, Message::Stop { page, mode: Mode::Single });
        }
        // What harts have written to a page of their own comes after what they logged before. So that has its places first.
        // A hart that waits for each of its stores has done so, and then only this page's count.
        let is_early = self.config.visibility == Visibility::Early;
        let drain = if is_hidden && (is_early || self.log.has(page)) { self.logged } else { 0 };
        self.begin(page, Task { waits, drain, then: Then::Answer(plan, want, requester) }, pages)
    }

    /// Begins a task; it may end at once.
    pub(crate) fn begin(&mut self, page: Page, task: Task, pages: &mut dyn Pages) -> Result<(), Refused> {
        if task.drain > self.placed {
            self.send_log(true);
        }
        self.local(page).task = Some(task);
        self.advance(page, pages)
    }

    /// Somebody has stopped.
    pub(crate) fn stopped(&mut self, from: MachineId, page: Page, pages: &mut dyn Pages) -> Result<(), Refused> {
        let local = self.local(page);
        match &mut local.task {
            Some(task) if task.waits.has(from) => task.waits = task.waits.without(from),
            _ => return Err(Refused::Unasked(from, page)),
        }
        self.advance(page, pages)
    }

    /// If the page's task waits for nothing more, it ends.
    pub(crate) fn advance(&mut self, page: Page, pages: &mut dyn Pages) -> Result<(), Refused> {
        let placed = self.placed;
        let local = self.local(page);
        let Some(task) = local.task else { return Ok(()) };
        if !task.waits.is_empty() || task.drain > placed {
            return Ok(());
        }
        match task.then {
            Then::Answer(plan, _, requester) => {
                if self.answer(page, plan, requester, pages).is_err() {
                    self.counters.no_memory += 1;
                    return Ok(());
                }
                self.local(page).task = None;
                self.wake_page(page);
            }
            Then::Sole { asked } => {
                self.local(page).task = None;
                self.become_sole(page, asked, pages);
            }
            Then::Single => {
                local.task = None;
                local.mode = Mode::Single;
                self.counters.to_single += 1;
                self.arrived(page);
            }
        }
        self.take_queued(page, pages)
    }

    fn become_sole(&mut self, page: Page, asked: bool, pages: &mut dyn Pages) {
        let local = self.local(page);
        local.copyset = Machines::NONE;
        let before = core::mem::replace(&mut local.mode, Mode::Invalidate);
        self.counters.to_invalidate += u64::from(before != Mode::Invalidate);
        self.set_rights(page, Rights::ReadWrite, pages);
        if asked {
            self.send(self.config.home(page), Message::Settled { page, owner: self.config.me });
        }
        self.arrived(page);
    }

    /// Gives the requester what the plan says.
    fn answer(&mut self, page: Page, plan: Plan, requester: MachineId, pages: &mut dyn Pages) -> Result<(), NoMemory> {
        let me = self.config.me;
        let copyset = self.local(page).copyset;
        let content = if copyset.has(requester) { None } else { Some(self.content(page, pages)?) };
        let local = self.local(page);
        let (before, history) = (local.mode, local.history);
        match plan {
            Plan::Copy | Plan::Multi => {
                local.copyset = copyset.with(requester);
                if plan == Plan::Multi {
                    local.mode = Mode::Multi;
                }
                let mode = local.mode;
                self.counters.to_update += u64::from(before == Mode::Invalidate && mode == Mode::Multi);
                self.send(requester, Message::Copy { page, mode, content });
            }
            Plan::Single => {
                (local.role, local.mode, local.copyset) = (Role::Copy, Mode::Single, Machines::NONE);
                self.counters.to_single += u64::from(before != Mode::Single);
                let copyset = copyset.without(requester).with(me);
                self.lose_reservations(page);
                self.send(requester, Message::Grant { page, mode: Mode::Single, copyset, history, content });
            }
            Plan::Take => {
                (local.role, local.mode, local.copyset) = (Role::Outside, Mode::Invalidate, Machines::NONE);
                self.counters.invalidated += 1;
                let copyset = copyset.without(requester);
                self.lose_reservations(page);
                self.send(requester, Message::Grant { page, mode: Mode::Invalidate, copyset, history, content });
            }
        }
        Ok(())
    }

    /// What everybody else may see of the page.
    fn content(&self, page: Page, pages: &dyn Pages) -> Result<Content, NoMemory> {
        if pages.is_zero(page) {
            return Ok(Content::Zero);
        }
        let mut bytes = Vec::new();
        pages.copy_out(page, &mut bytes)?;
        self.log.restore(page, &mut bytes);
        Ok(Content::Bytes(bytes))
    }

    /// Tries again what had no memory.
    ///
    /// # Errors
    /// [`Refused`], if a message that waited is refused.
    pub fn retry(&mut self, pages: &mut dyn Pages) -> Result<(), Refused> {
        let is_due = |task: &Task| task.waits.is_empty() && task.drain <= self.placed;
        let due = self.pages.iter().filter(|(_, local)| local.task.as_ref().is_some_and(is_due));
        let due: Vec<Page> = due.map(|(page, _)| *page).collect();
        due.into_iter().try_for_each(|page| self.advance(page, pages))?;
        self.settle(pages)
    }
}
