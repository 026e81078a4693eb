//! Faults, carried out: requests are taken from the mailbox, lost harts stop, survivors close what is lost, and all of them
//! are told when they have.
//!
//! A fault happens in three steps, none of which waits. (1) Whoever injects it publishes the new state under the lock and
//! rings every hart. (2) Each hart goes over to it in its own time, at its next trap into M-mode: lost ones stop for ever,
//! others rewrite their protection entries. (3) The last one to do so raises the recovery interrupt on all survivors.

use core::sync::atomic::{AtomicU64, Ordering};

use containment::{Containment, MAX_HARTS};
use faults::{
    Fault, MAX_NODES, NodeSet, REQUEST_WORDS, Record, Refusal, Request, SLOTS, STATUS_MAGIC, SlotState, Trigger,
    empty_mailbox, poll_ticks, slot_at, status_word, word,
};
use spin::{Mutex, Once};

use super::csr::{self, MINSTRET};
use super::harts::{self, fate, hardware, hart, node_of};
use super::{doorbell, pages, protection, sbi, timer};

/// What a hart can execute in a tick at most, with an instruction per nanosecond: so far ahead can a count be watched.
const INSTRUCTIONS_PER_TICK: u64 = 100;

struct State {
    containment: Containment,
    epoch: u64,
    /// Counts every change that harts have to go over to; [`GENERATION`] shows it.
    generation: u64,
    /// Harts that have not gone over to the epoch, by id.
    lagging: u64,
    armed: [Option<Request>; SLOTS],
    /// The hart that looks at the mailbox: the first that is alive.
    watcher: usize,
}

static STATE: Once<Mutex<State>> = Once::new();

/// What each node reaches, for those who must not wait for the lock.
static REACH: [AtomicU64; MAX_NODES] = [const { AtomicU64::new(0) }; MAX_NODES];

/// What [`State::generation`] is, for a look without the lock.
static GENERATION: AtomicU64 = AtomicU64::new(0);

fn state() -> &'static Mutex<State> {
    STATE.get().expect("no hart passes the gate before the state is there")
}

/// Prepares the two pages and the state; `first` looks at the mailbox.
pub fn init(first: usize) {
    let containment = Containment::new(hardware());
    let mailbox = pages::mailbox;
    let is_prepared = mailbox(word::MAGIC).load(Ordering::Relaxed) == faults::MAILBOX_MAGIC
        && mailbox(word::VERSION).load(Ordering::Relaxed) == faults::VERSION;
    if !is_prepared {
        pages::write(mailbox, &empty_mailbox(0));
    }
    let mut state = State { containment, epoch: 0, generation: 1, lagging: 0, armed: [None; SLOTS], watcher: first };
    pages::write(pages::status, &[0; faults::STATUS_WORDS]);
    pages::status(status_word::VERSION).store(faults::VERSION, Ordering::Relaxed);
    pages::status(status_word::NODES).store(hardware().nodes as u64, Ordering::Relaxed);
    state.publish(None);
    pages::status(status_word::MAGIC).store(STATUS_MAGIC, Ordering::Release);
    hart(first).watches.store(true, Ordering::Relaxed);
    GENERATION.store(1, Ordering::Release);
    STATE.call_once(|| Mutex::new(state));
}

/// Whether hart `from` reaches hart `to`: there is a way between their nodes, and `to` is alive.
pub fn reaches(from: usize, to: usize) -> bool {
    let reach = NodeSet(REACH[node_of(from) % MAX_NODES].load(Ordering::Acquire));
    reach.has(node_of(to)) && hart(to).fate.load(Ordering::Acquire) == fate::ALIVE
}

/// The executing hart goes over to the present state. It does not come back if it is lost.
pub fn adopt(id: usize) {
    begin_watch(id);
    if hart(id).generation.load(Ordering::Relaxed) == GENERATION.load(Ordering::Acquire) {
        return;
    }
    let (is_last, own_fate) = {
        let mut state = state().lock();
        let own_fate = hart(id).fate.load(Ordering::Acquire);
        hart(id).generation.store(state.generation, Ordering::Relaxed);
        if own_fate == fate::ALIVE {
            let plan = state.containment.plan(node_of(id)).expect("a state is taken on only if all its plans fit");
            protection::write(&plan.registers());
        }
        let was_lagging = state.lagging != 0;
        state.lagging &= !(1 << id);
        let is_last = was_lagging && state.lagging == 0;
        if is_last {
            let epoch = state.epoch;
            pages::status(status_word::RECOVERED).store(epoch, Ordering::Release);
        }
        (is_last, own_fate)
    };
    if is_last {
        raise_recovery(id);
    }
    if own_fate != fate::ALIVE {
        stop_for_ever();
    }
}

/// A hart that has become a watcher looks at once.
fn begin_watch(id: usize) {
    let own = hart(id);
    if own.watches.load(Ordering::Acquire) && own.next_look.load(Ordering::Relaxed) == u64::MAX {
        own.next_look.store(0, Ordering::Relaxed);
        timer::set(id, 0);
    }
}

/// A supervisor software interrupt for every survivor.
fn raise_recovery(id: usize) {
    for (other, _) in hardware().harts().filter(|(other, _)| hart(*other).fate.load(Ordering::Acquire) == fate::ALIVE) {
        hart(other).software.store(true, Ordering::Release);
        if other != id {
            doorbell::ring(other);
        }
    }
    sbi::ipi::serve(id);
}

fn stop_for_ever() -> ! {
    csr::write::<{ csr::MIE }>(0);
    loop {
        csr::wait_for_interrupt();
    }
}

/// Injects a fault at once; the epoch that it begins.
///
/// # Errors
/// Why not.
pub fn inject(id: usize, fault: Fault) -> Result<u64, Refusal> {
    let epoch = state().lock().inject(id, fault)?;
    doorbells(id);
    adopt(id);
    Ok(epoch)
}

/// Closes the write firewall around a cell, or opens it.
///
/// # Errors
/// Why not.
pub fn set_firewall(id: usize, cell: NodeSet) -> Result<(), Refusal> {
    if !protection::is_there() {
        return Err(Refusal::NoProtection);
    }
    {
        let mut state = state().lock();
        state.containment = state.containment.with_firewall(node_of(id), cell)?;
        state.next_generation();
    }
    doorbells(id);
    adopt(id);
    Ok(())
}

/// All other harts are to go over.
fn doorbells(id: usize) {
    hardware().harts().filter(|(other, _)| *other != id).for_each(|(other, _)| doorbell::ring(other));
}

/// Looks at the mailbox and at the triggers that this hart watches; when to look again.
pub fn look(id: usize) -> u64 {
    if !hart(id).watches.load(Ordering::Acquire) {
        return u64::MAX;
    }
    let injected = {
        let mut state = state().lock();
        if state.watcher == id {
            state.take_requests();
        }
        state.run_due(id)
    };
    if injected {
        doorbells(id);
        adopt(id);
    }
    next_look(id)
}

/// When this hart looks next.
pub fn next_look(id: usize) -> u64 {
    if hart(id).watches.load(Ordering::Relaxed) { hart(id).next_look.load(Ordering::Relaxed) } else { u64::MAX }
}

impl State {
    fn inject(&mut self, by: usize, fault: Fault) -> Result<u64, Refusal> {
        if !protection::is_there() {
            return Err(Refusal::NoProtection);
        }
        self.containment = self.containment.after(fault)?;
        self.epoch += 1;
        self.next_generation();
        self.lagging = 0;
        let live = self.containment.live();
        let lost = if matches!(fault, Fault::NodeController(_)) { fate::HUNG } else { fate::OFF };
        for (id, place) in hardware().harts() {
            let own_fate = &hart(id).fate;
            if own_fate.load(Ordering::Relaxed) != fate::ALIVE {
                continue;
            }
            self.lagging |= 1 << id;
            if !live.has(place.node) {
                own_fate.store(lost, Ordering::Release);
                if lost == fate::OFF {
                    hart(id).state.store(sbi::hsm::STOPPED, Ordering::Release);
                }
            }
        }
        self.appoint_watcher();
        let (time, instructions) = (csr::time(), csr::read::<MINSTRET>());
        self.publish(Some(Record { epoch: self.epoch, fault, time, hart: by as u64, instructions }));
        Ok(self.epoch)
    }

    fn next_generation(&mut self) {
        self.generation += 1;
        GENERATION.store(self.generation, Ordering::Release);
    }

    fn appoint_watcher(&mut self) {
        let first =
            hardware().harts().map(|(id, _)| id).find(|id| hart(*id).fate.load(Ordering::Relaxed) == fate::ALIVE);
        if let Some(first) = first {
            self.watcher = first;
            hart(first).watches.store(true, Ordering::Release);
        }
    }

    /// Writes the status page under its sequence number.
    fn publish(&mut self, record: Option<Record>) {
        let put = |index, value| pages::status(index).store(value, Ordering::Relaxed);
        let sequence = pages::status(status_word::SEQUENCE);
        let before = sequence.load(Ordering::Relaxed);
        sequence.store(before + 1, Ordering::SeqCst);
        core::sync::atomic::fence(Ordering::SeqCst);
        put(status_word::EPOCH, self.epoch);
        for (node, reach) in REACH.iter().enumerate() {
            let value = self.containment.reach(node).0;
            reach.store(value, Ordering::Release);
            put(status_word::REACH + node, value);
        }
        let poisoned = self.containment.poisoned();
        put(status_word::POISONED_COUNT, poisoned.len() as u64);
        poisoned.iter().enumerate().for_each(|(index, page)| put(status_word::POISONED + index, *page));
        if let Some(record) = record {
            let at = status_word::HISTORY + (record.epoch as usize - 1) % faults::HISTORY * faults::RECORD_WORDS;
            record.encode().iter().enumerate().for_each(|(index, value)| put(at + index, *value));
        }
        core::sync::atomic::fence(Ordering::SeqCst);
        sequence.store(before + 2, Ordering::SeqCst);
    }

    /// Takes what the host has asked for since the last look.
    fn take_requests(&mut self) {
        for slot in 0..SLOTS {
            let at = slot_at(slot);
            let state = pages::mailbox(at + word::STATE);
            // Whatever is armed here is forgotten if the host overwrites it: then it has cancelled it.
            if SlotState::from_word(state.load(Ordering::Acquire)) != SlotState::Ready {
                continue;
            }
            // Copied once: what the host writes meanwhile does not matter.
            let words: [u64; REQUEST_WORDS] =
                core::array::from_fn(|index| pages::mailbox(at + word::REQUEST + index).load(Ordering::Relaxed));
            match Request::decode(words).and_then(check_hart) {
                Ok(request) => {
                    self.armed[slot] = Some(request);
                    state.store(SlotState::Armed as u64, Ordering::Release);
                    if let Trigger::AfterInstructions { hart: counted, .. } = request.trigger {
                        hart(counted as usize).watches.store(true, Ordering::Release);
                        doorbell::ring(counted as usize);
                    }
                }
                Err(refusal) => answer(slot, Err(refusal)),
            }
        }
    }

    /// Injects what is due for this hart; whether anything was. Sets when to look again.
    fn run_due(&mut self, id: usize) -> bool {
        let is_watcher = self.watcher == id;
        let poll = poll_ticks(pages::mailbox(word::POLL_TICKS).load(Ordering::Relaxed));
        let mut next = if is_watcher { csr::time().saturating_add(poll) } else { u64::MAX };
        let mut injected = false;
        for slot in 0..SLOTS {
            let Some(request) = self.armed[slot] else { continue };
            let due = match request.trigger {
                Trigger::AfterInstructions { count, hart } if hart == id as u64 => {
                    let left = count.saturating_sub(csr::read::<MINSTRET>());
                    let ticks = (left / INSTRUCTIONS_PER_TICK).clamp(1, faults::MAX_POLL_TICKS);
                    if left == 0 { None } else { Some(csr::time().saturating_add(ticks)) }
                }
                Trigger::AfterInstructions { .. } => continue,
                Trigger::Now | Trigger::At { .. } if !is_watcher => continue,
                Trigger::Now => None,
                Trigger::At { ticks } => (csr::time() < ticks).then_some(ticks),
            };
            if let Some(due) = due {
                next = next.min(due);
                continue;
            }
            self.armed[slot] = None;
            let outcome = self.inject(id, request.fault);
            injected |= outcome.is_ok();
            answer(slot, outcome);
        }
        // Whoever gives this hart something to watch does it under the same lock.
        hart(id).watches.store(next != u64::MAX, Ordering::Release);
        hart(id).next_look.store(next, Ordering::Relaxed);
        injected
    }
}

fn check_hart(request: Request) -> Result<Request, Refusal> {
    let Trigger::AfterInstructions { hart, .. } = request.trigger else { return Ok(request) };
    let exists = usize::try_from(hart).is_ok_and(|hart| hart < MAX_HARTS && harts::hardware().harts[hart].is_some());
    if exists { Ok(request) } else { Err(Refusal::UnknownHart) }
}

/// Tells the host what became of its request.
fn answer(slot: usize, outcome: Result<u64, Refusal>) {
    let at = slot_at(slot);
    let put = |index, value| pages::mailbox(at + index).store(value, Ordering::Relaxed);
    put(word::REFUSAL, outcome.map_or_else(|refusal| refusal as u64, |_| 0));
    put(word::EPOCH, outcome.unwrap_or(0));
    put(word::TIME, csr::time());
    let state = if outcome.is_ok() { SlotState::Done } else { SlotState::Refused };
    pages::mailbox(at + word::STATE).store(state as u64, Ordering::Release);
}
