//! A machine: what it knows, what comes in and goes out.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use dsm_wire::{Envelope, MAX_STORES, MachineId, Message, Page};

use crate::config::Config;
use crate::counters::Counters;
use crate::harts::Hart;
use crate::home::{Home, Next};
use crate::log::Log;
use crate::pages::{Pages, Rights};
use crate::state::{Asked, Local};

/// Messages of a peer that wait for the order, at most: what a wire's window can hold and more.
const EARLY: usize = 4_096;

/// A message that no machine sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such machine in the cluster.
    #[error("there is no machine {0:?} here")]
    Nobody(MachineId),
    /// It asked again before it was answered.
    #[error("{0:?} asked twice for {1:?}")]
    AskedTwice(MachineId, Page),
    /// A message for a page's home or the orderer that this machine is not.
    #[error("this machine does not answer that")]
    NotMine,
    /// A page that the VM has not.
    #[error("the VM has no {0:?}")]
    Outside(Page),
    /// More messages than a peer can have under way.
    #[error("too many messages of {0:?} wait")]
    TooMany(MachineId),
    /// An answer to nothing, or from somebody who does not own the page.
    #[error("{0:?} answered what nobody asked about {1:?}")]
    Unasked(MachineId, Page),
    /// Stores whose place is not the next.
    #[error("stores for place {got} where {want} is next")]
    OutOfOrder {
        /// The place that they have.
        got: u64,
        /// The next one.
        want: u64,
    },
    /// More than waits for its place.
    #[error("places for stores that were not made")]
    NotLogged,
}

/// One machine's part of a memory that several share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dsm {
    pub(crate) config: Config,
    /// The last place in the order that this machine has applied.
    pub(crate) applied: u64,
    /// Stores of this machine that ever were logged, and that have their places.
    pub(crate) logged: u64,
    pub(crate) placed: u64,
    pub(crate) log: Log,
    pub(crate) home: Home,
    pub(crate) pages: BTreeMap<Page, Local>,
    /// Blocks that were given to this machine untouched.
    pub(crate) blocks: BTreeSet<u64>,
    pub(crate) harts: Vec<Hart>,
    pub(crate) wakes: u64,
    /// Messages that came before this machine had applied as much as their senders.
    early: Vec<VecDeque<Envelope>>,
    /// Messages to itself.
    own: VecDeque<Message>,
    out: VecDeque<(MachineId, Envelope)>,
    /// Logs that the orderer keeps while its messages pile up.
    unordered: VecDeque<(MachineId, Vec<dsm_wire::Store>)>,
    is_crowded: bool,
    /// Pages that a hart does not hold any more, and for which a message may wait.
    pub(crate) freed: Vec<Page>,
    pub(crate) counters: Counters,
}

impl Dsm {
    /// A machine that has not said or heard anything.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            applied: 0,
            logged: 0,
            placed: 0,
            log: Log::new(config.visibility),
            home: Home::default(),
            pages: BTreeMap::new(),
            blocks: BTreeSet::new(),
            harts: (0..config.harts.min(64)).map(|_| Hart::default()).collect(),
            wakes: 0,
            early: (0..config.machines.min(64)).map(|_| VecDeque::new()).collect(),
            own: VecDeque::new(),
            out: VecDeque::new(),
            unordered: VecDeque::new(),
            is_crowded: false,
            freed: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// What it was made with.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// What happened.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The next message to send, and to whom. Messages to one machine must arrive in this order.
    pub fn next_message(&mut self) -> Option<(MachineId, Envelope)> {
        self.out.pop_front()
    }

    /// Harts, one bit each, that waited and should try again.
    pub fn take_wakes(&mut self) -> u64 {
        core::mem::take(&mut self.wakes)
    }

    /// Whether messages of this machine pile up on their way. While they do, the orderer gives no places.
    ///
    /// # Errors
    /// [`Refused`], if what was kept back is refused.
    pub fn set_crowded(&mut self, is_crowded: bool, pages: &mut dyn Pages) -> Result<(), Refused> {
        self.is_crowded = is_crowded;
        while !self.is_crowded
            && let Some((writer, stores)) = self.unordered.pop_front()
        {
            self.order(writer, stores, pages)?;
        }
        self.settle(pages)
    }

    /// Takes a message from another machine.
    ///
    /// # Errors
    /// [`Refused`]: no machine of this protocol sends that. Its sender should be given up.
    pub fn deliver(&mut self, from: MachineId, envelope: Envelope, pages: &mut dyn Pages) -> Result<(), Refused> {
        let Some(early) = self.early.get_mut(usize::from(from.0)) else {
            self.counters.refused += 1;
            return Err(Refused::Nobody(from));
        };
        if early.len() >= EARLY {
            self.counters.refused += 1;
            return Err(Refused::TooMany(from));
        }
        self.counters.early += u64::from(envelope.stamp > self.applied);
        early.push_back(envelope);
        let result = self.take_early(pages).and_then(|()| self.settle(pages));
        self.counters.refused += u64::from(result.is_err());
        result
    }

    /// Messages that have come but wait for the order.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.early.iter().map(VecDeque::len).sum()
    }

    /// Whether the machine wants nothing of others and owes nothing to them.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_quiet = |page: &Local| page.task.is_none() && page.fetch.is_none() && page.queued.is_none();
        self.waiting() == 0 && self.log.len() == 0 && self.out.is_empty() && self.pages.values().all(is_quiet)
    }

    fn take_early(&mut self, pages: &mut dyn Pages) -> Result<(), Refused> {
        // Each round takes a message or ends.
        loop {
            let is_due = |queue: &VecDeque<Envelope>| queue.front().is_some_and(|first| self.is_due(first));
            let Some(from) = self.early.iter().position(is_due) else { return Ok(()) };
            let Some(envelope) = self.early[from].pop_front() else { return Ok(()) };
            self.handle(MachineId(from as u8), envelope.message, pages)?;
            self.settle(pages)?;
        }
    }

    /// Whether this machine has applied all that the sender had. Places themselves come in order and wait for nothing.
    fn is_due(&self, envelope: &Envelope) -> bool {
        envelope.stamp <= self.applied || matches!(envelope.message, Message::Update { .. })
    }

    /// Handles what this machine said to itself.
    pub(crate) fn settle(&mut self, pages: &mut dyn Pages) -> Result<(), Refused> {
        loop {
            if let Some(message) = self.own.pop_front() {
                self.handle(self.config.me, message, pages)?;
            } else if let Some(page) = self.freed.pop() {
                self.take_queued(page, pages)?;
            } else {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, from: MachineId, message: Message, pages: &mut dyn Pages) -> Result<(), Refused> {
        if let Some(page) = message.pages().find(|page| page.0 >= self.config.pages) {
            return Err(Refused::Outside(page));
        }
        match message {
            Message::Request { page, want } => self.requested(Asked { who: from, want, page }),
            Message::Settled { page, owner } => self.settled(page, from, owner),
            Message::Forward { page, .. } | Message::Stop { page, .. } => self.asked(from, page, message, pages),
            Message::Copy { page, mode, content } => self.copied(from, page, mode, content, pages),
            Message::Grant { page, mode, copyset, history, content } => {
                self.granted(page, mode, copyset, history, content, pages)
            }
            Message::Stopped { page } => self.stopped(from, page, pages),
            Message::Log { stores } => self.order(from, stores, pages),
            Message::Update { place, writer, stores } => self.update(from, place, writer, &stores, pages),
        }
    }

    fn requested(&mut self, asked: Asked) -> Result<(), Refused> {
        if self.config.home(asked.page) != self.config.me {
            return Err(Refused::NotMine);
        }
        let block = self.config.block(asked.page);
        let next = self.home.request(asked, block).ok_or(Refused::AskedTwice(asked.who, asked.page))?;
        self.do_next(next);
        Ok(())
    }

    fn settled(&mut self, page: Page, from: MachineId, owner: MachineId) -> Result<(), Refused> {
        if owner.0 >= self.config.machines {
            return Err(Refused::Nobody(owner));
        }
        let block = self.config.block(page);
        let next = self.home.settled(page, from, owner, block).ok_or(Refused::Unasked(from, page))?;
        self.do_next(next);
        Ok(())
    }

    fn do_next(&mut self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Give(asked) => self.give(asked),
            Next::Ask(owner, Asked { who, want, page }) => {
                self.send(owner, Message::Forward { page, want, requester: who });
            }
        }
    }

    /// Sends a message, to this machine itself, too.
    pub(crate) fn send(&mut self, to: MachineId, message: Message) {
        if to == self.config.me {
            self.own.push_back(message);
        } else {
            self.out.push_back((to, Envelope { stamp: self.applied, message }));
        }
    }

    /// The orderer gives stores their place.
    fn order(&mut self, writer: MachineId, stores: Vec<dsm_wire::Store>, pages: &mut dyn Pages) -> Result<(), Refused> {
        if self.config.orderer != self.config.me {
            return Err(Refused::NotMine);
        }
        if self.is_crowded {
            if self.unordered.len() >= EARLY {
                return Err(Refused::TooMany(writer));
            }
            self.unordered.push_back((writer, stores));
            return Ok(());
        }
        let place = self.applied + 1;
        // First to the others: what this machine says after it has applied them must not overtake them.
        let me = self.config.me;
        for to in (0..self.config.machines).map(MachineId).filter(|machine| *machine != me) {
            self.send(to, Message::Update { place, writer, stores: stores.clone() });
        }
        self.update(self.config.me, place, writer, &stores, pages)
    }

    /// Sends stores that wait: all, or as long as none is under way a first batch.
    pub(crate) fn send_log(&mut self, all: bool) {
        while self.log.unsent() > 0 && (all || !self.log.is_under_way() || self.log.unsent() >= MAX_STORES) {
            let stores: Vec<_> = self.log.send(MAX_STORES).collect();
            self.counters.batches += 1;
            self.send(self.config.orderer, Message::Log { stores });
        }
    }

    /// What this machine knows of `page`, made if it is nothing yet.
    pub(crate) fn local(&mut self, page: Page) -> &mut Local {
        let is_ours = self.blocks.contains(&self.config.block(page));
        self.pages.entry(page).or_insert_with(|| Local::new(is_ours))
    }

    /// Sets what harts may do; reservations end with the right to write.
    pub(crate) fn set_rights(&mut self, page: Page, rights: Rights, pages: &mut dyn Pages) {
        let local = self.local(page);
        let before = core::mem::replace(&mut local.rights, rights);
        if before != rights {
            pages.rights(page, rights);
        }
    }

    /// Wakes every hart that waits for this page, and gives it the time for an instruction.
    pub(crate) fn arrived(&mut self, page: Page) {
        let waiters = self.wake_page(page);
        self.hold(page, waiters);
    }
}
