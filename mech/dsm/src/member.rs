//! What a machine does as one of those who have copies: answers, stops, stores by others.

use dsm_wire::{Content, History, MachineId, Machines, Message, Mode, Page, Store};

use crate::log::bits;
use crate::machine::{Dsm, Refused};
use crate::pages::{Pages, Rights};
use crate::state::{Asked, Role, Task, Then};

impl Dsm {
    /// As the home: the block is the requester's.
    pub(crate) fn give(&mut self, asked: Asked) {
        let (page, mode, copyset) = (asked.page, Mode::Invalidate, Machines::NONE);
        let content = Some(Content::Block);
        self.send(asked.who, Message::Grant { page, mode, copyset, history: History::default(), content });
    }

    /// A message that must wait while something goes on with the page.
    pub(crate) fn asked(
        &mut self,
        from: MachineId,
        page: Page,
        message: Message,
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        let local = self.local(page);
        if local.queued.is_some() {
            return Err(Refused::AskedTwice(from, page));
        }
        if !local.is_free() {
            let held = local.held;
            local.queued = Some((from, message));
            self.counters.held += u64::from(held != 0);
            (0..64).filter(|hart| held >> hart & 1 == 1).for_each(|hart| pages.kick(hart));
            return Ok(());
        }
        match message {
            Message::Forward { want, requester, .. } => self.forwarded(from, page, want, requester, pages),
            Message::Stop { mode, .. } => self.stop(from, page, mode, pages),
            _ => Err(Refused::NotMine),
        }
    }

    /// A message that waited may have its turn.
    pub(crate) fn take_queued(&mut self, page: Page, pages: &mut dyn Pages) -> Result<(), Refused> {
        let local = self.local(page);
        if !local.is_free() {
            return Ok(());
        }
        match local.queued.take() {
            Some((from, message)) => self.asked(from, page, message, pages),
            None => Ok(()),
        }
    }

    pub(crate) fn copied(
        &mut self,
        from: MachineId,
        page: Page,
        mode: Mode,
        content: Option<Content>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        let local = self.local(page);
        let is_of_use = content.is_some() || local.role == Role::Copy;
        if local.fetch.is_none() || local.role == Role::Owner || !is_of_use {
            return Err(Refused::Unasked(from, page));
        }
        self.install(page, content, pages);
        let local = self.local(page);
        local.role = Role::Copy;
        local.mode = mode;
        self.set_rights(page, Rights::Read, pages);
        self.send(self.config.home(page), Message::Settled { page, owner: from });
        self.arrived(page);
        Ok(())
    }

    pub(crate) fn granted(
        &mut self,
        page: Page,
        mode: Mode,
        copyset: Machines,
        history: History,
        content: Option<Content>,
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        let me = self.config.me;
        let local = self.local(page);
        let is_of_use = content.is_some() || local.role == Role::Copy;
        if local.fetch.is_none() || local.role == Role::Owner || !is_of_use {
            return Err(Refused::Unasked(me, page));
        }
        self.counters.ownerships += u64::from(content.is_none());
        if content == Some(Content::Block) {
            self.open(page, pages);
            return Ok(());
        }
        self.install(page, content, pages);
        let drain = if self.log.has(page) { self.logged } else { 0 };
        let local = self.local(page);
        (local.role, local.mode, local.copyset, local.history) = (Role::Owner, mode, copyset.without(me), history);
        self.set_rights(page, Rights::Read, pages);
        if mode == Mode::Invalidate {
            self.take_sole(page, drain, true, pages)
        } else {
            self.send(self.config.home(page), Message::Settled { page, owner: me });
            self.arrived(page);
            Ok(())
        }
    }

    fn open(&mut self, page: Page, pages: &mut dyn Pages) {
        let block = self.config.block(page);
        self.blocks.insert(block);
        self.counters.blocks += 1;
        pages.open(Page(block * self.config.block_pages), self.config.block_pages);
        // Pages of the block that harts wait for as well are asked for and answered one by one.
        let (first, end) = (block * self.config.block_pages, (block + 1) * self.config.block_pages);
        for (_, local) in self.pages.range_mut(Page(first)..Page(end)) {
            (local.role, local.rights) = (Role::Owner, Rights::ReadWrite);
        }
        self.local(page).fetch = None;
        self.send(self.config.home(page), Message::Settled { page, owner: self.config.me });
        self.arrived(page);
    }

    /// The contents have come, and what got its place since they left is put on top.
    fn install(&mut self, page: Page, content: Option<Content>, pages: &mut dyn Pages) {
        let fetch = self.local(page).fetch.take();
        let Some(content) = content else { return };
        self.counters.fetched += 1;
        pages.copy_in(page, &content);
        for (word, (mask, value)) in fetch.into_iter().flat_map(|fetch| fetch.since) {
            pages.write(page, word, mask, value);
        }
    }

    /// Tells all copies to go away; the task's end is [`Then::Sole`].
    pub(crate) fn take_sole(
        &mut self,
        page: Page,
        drain: u64,
        asked: bool,
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        let waits = self.local(page).copyset;
        for to in waits.iter() {
            self.send(to, Message::Stop { page, mode: Mode::Invalidate });
        }
        self.begin(page, Task { waits, drain, then: Then::Sole { asked } }, pages)
    }

    /// The owner says stop.
    fn stop(&mut self, from: MachineId, page: Page, mode: Mode, pages: &mut dyn Pages) -> Result<(), Refused> {
        let drain = if self.log.has(page) { self.logged } else { 0 };
        let local = self.local(page);
        if local.role != Role::Copy {
            return Err(Refused::Unasked(from, page));
        }
        local.stopping = Some((from, mode, drain));
        if drain > 0 {
            self.send_log(true);
        }
        self.end_stop(page, pages)
    }

    /// If this machine's stores have their places, the stop is obeyed.
    pub(crate) fn end_stop(&mut self, page: Page, pages: &mut dyn Pages) -> Result<(), Refused> {
        let placed = self.placed;
        let local = self.local(page);
        let Some((owner, mode, drain)) = local.stopping else { return Ok(()) };
        if drain > placed {
            return Ok(());
        }
        local.stopping = None;
        local.mode = mode;
        if mode == Mode::Invalidate {
            local.role = Role::Outside;
            self.counters.invalidated += 1;
            self.set_rights(page, Rights::None, pages);
        }
        self.lose_reservations(page);
        self.send(owner, Message::Stopped { page });
        self.wake_page(page);
        self.take_queued(page, pages)
    }

    /// Stores have their place.
    pub(crate) fn update(
        &mut self,
        from: MachineId,
        place: u64,
        writer: MachineId,
        stores: &[Store],
        pages: &mut dyn Pages,
    ) -> Result<(), Refused> {
        if from != self.config.orderer {
            return Err(Refused::NotMine);
        }
        if place != self.applied + 1 {
            return Err(Refused::OutOfOrder { got: place, want: self.applied + 1 });
        }
        self.applied = place;
        if writer != self.config.me {
            stores.iter().for_each(|store| self.apply(store, pages));
            return Ok(());
        }
        for _ in stores {
            self.log.placed(pages).ok_or(Refused::NotLogged)?;
            self.placed += 1;
        }
        self.send_log(false);
        self.wake_placed();
        self.resume(pages)
    }

    fn apply(&mut self, store: &Store, pages: &mut dyn Pages) {
        let Some(local) = self.pages.get_mut(&store.page) else { return };
        if local.role == Role::Outside {
            if let Some(fetch) = &mut local.fetch {
                let (mask, value) = fetch.since.entry(store.word).or_default();
                *value = *value & !bits(store.mask) | store.value & bits(store.mask);
                *mask |= store.mask;
            }
            return;
        }
        local.run = 0;
        let hidden = self.log.apply(store, pages);
        self.counters.applied += 1;
        self.counters.masked += u64::from(hidden.count_ones());
        self.lose_reservation(store.page, store.word);
    }

    /// Tasks that waited for places go on.
    fn resume(&mut self, pages: &mut dyn Pages) -> Result<(), Refused> {
        let is_busy = |page: &crate::state::Local| page.task.is_some() || page.stopping.is_some();
        let busy: alloc::vec::Vec<Page> =
            self.pages.iter().filter(|(_, local)| is_busy(local)).map(|(page, _)| *page).collect();
        for page in busy {
            self.advance(page, pages)?;
            self.end_stop(page, pages)?;
        }
        Ok(())
    }
}
