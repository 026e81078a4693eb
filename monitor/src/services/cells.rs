//! Which cells go on together: the control hart looks at the others some times a second, and at once when it is rung. The crate
//! `cell` has the rules.
//!
//! A machine of one cell never comes here: its next look is never due.

mod disks;
mod exchange;
mod frames;
mod takeover;
mod wires;

use super::crash;
use crate::{
    hart,
    io::{
        disks::{lending, remote},
        network,
    },
    machine::{
        agenda,
        boards::{self, Boards},
        capabilities, cell, failures,
    },
    trace,
};
use ::cell::{CellId, LiveSet, Patience, Times, Unreadable, Verdict, View, board};
use alloc::vec::Vec;
use control::{CellLoss, EventKind};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use exchange::Exchange;
use rv::csr;
use spin::Mutex;

/// Looks per second while nothing happens.
const LOOKS_HZ: u64 = 10;
/// Looks per second while cells agree. Who changes something rings, so this is for rings that got lost.
const AGREEING_HZ: u64 = 1000;
/// The same while this cell's own harts ring, which might hide another cell's ring: a look reads all cells' memory.
const RUNG_HZ: u64 = 250;
/// Seconds after which a cell is lost whose control hart does not look. Emulated harts wait for the host's cores, so only a cell
/// that hangs is lost so; what the hardware loses, and who panics, is noticed at once.
const SILENCE_S: u64 = 10;
/// Seconds that a cell may take to begin: it may have much memory to set up.
const BEGIN_S: u64 = 120;

/// Seconds after which a call to another cell is made again.
const CALL_S: u64 = 1;

static NEXT_LOOK: AtomicU64 = AtomicU64::new(u64::MAX);
/// The position of the leader.
static LEADER: AtomicUsize = AtomicUsize::new(CellId::FIRST.index());
/// This cell has become the leader, and has not taken the machine's devices over yet.
static MUST_TAKE_OVER: AtomicBool = AtomicBool::new(false);
/// Another cell has been asked for something, and may have answered whenever anybody rings.
static IS_WAITING: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<Option<State>> = Mutex::new(None);

/// What the control hart knows of the others.
struct State {
    live: LiveSet,
    /// When some cell was first missed that all have not agreed on yet.
    noticed: Option<u64>,
    lost: Vec<(CellId, Loss)>,
    exchange: Exchange,
}

/// How a cell was lost.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// What this cell saw of it.
    pub cause: CellLoss,
    /// The first epoch without it.
    pub epoch: u16,
}

/// Boot: where there are other cells, the control hart looks at them from its first step on.
pub fn init() {
    if boards::first_view().is_some() {
        NEXT_LOOK.store(0, Ordering::Relaxed);
    }
}

/// When to look next.
#[inline]
#[must_use]
pub fn next_look() -> u64 {
    NEXT_LOOK.load(Ordering::Relaxed)
}

/// The control hart has got a software interrupt: another cell may have rung, or the hardware reports a fault. If one of its own
/// cell did ring, the look has a little time.
pub fn rung(by_own: bool) {
    let next = next_look();
    if next != u64::MAX {
        let may_wait = by_own && !IS_WAITING.load(Ordering::Relaxed);
        let soon = if may_wait { csr::time::read() + capabilities().timebase_hz / RUNG_HZ } else { 0 };
        NEXT_LOOK.store(next.min(soon), Ordering::Relaxed);
    }
}

/// The cell that drives the machine's devices and speaks to clients: the one with the lowest number of those that go on.
#[must_use]
pub fn leader() -> CellId {
    CellId::new(LEADER.load(Ordering::Relaxed)).unwrap_or(CellId::FIRST)
}

/// Whether this cell is the leader; that of a machine of one cell is.
#[must_use]
pub fn is_leader() -> bool {
    LEADER.load(Ordering::Relaxed) == cell::index()
}

/// One look, if it is due. Who has become the leader by it takes over what a leader has.
pub fn step() {
    look();
    if MUST_TAKE_OVER.swap(false, Ordering::Relaxed) {
        takeover::take_over();
    }
}

fn look() {
    let now = csr::time::read();
    let is_due = now >= next_look();
    let has_work = is_exchanging() && has_something_to_send();
    if !is_due && !has_work {
        return;
    }
    let mut state = STATE.lock();
    let Some(state) = begun(&mut state) else { return };
    if !failures::is_whole() {
        leave("a part of it is lost");
    }
    let hz = capabilities().timebase_hz;
    // Who only has something to send does not look at the others.
    let looks_hz = if is_due { state.see_who_goes_on(now) } else { LOOKS_HZ };
    let times = Times { patience: CALL_S * hz, pause: hz / AGREEING_HZ };
    let progress = state.exchange.step(state.live.view(), leader(), now, times);
    if progress.is_news {
        let _ = agenda::call();
    }
    IS_WAITING.store(state.exchange.is_waiting(), Ordering::Relaxed);
    let next = if is_due { now + hz / looks_hz } else { next_look() };
    NEXT_LOOK.store(progress.next.min(next), Ordering::Relaxed);
}

/// Whether there are other cells.
fn is_exchanging() -> bool {
    next_look() != u64::MAX
}

/// Whether something waits for another cell: a read of a disk, the answer to one, or frames.
fn has_something_to_send() -> bool {
    remote::is_waiting() || lending::has_ended() || network::is_leaving()
}

/// This cell drives the machine's disks now: it does itself what it has asked leaders before it for.
fn take_reads_over() {
    if let Some(state) = &mut *STATE.lock() {
        state.exchange.disks.take_over();
    }
}

/// The set of cells that goes on, as this one sees it; `None` before its first look, and where there are no others.
#[must_use]
pub fn view() -> Option<View> {
    STATE.lock().as_ref().map(|state| state.live.view())
}

/// How a cell was lost; `None` if it was not.
#[must_use]
pub fn loss_of(cell: CellId) -> Option<Loss> {
    let state = STATE.lock();
    state.as_ref()?.lost.iter().find(|(lost, _)| *lost == cell).map(|(_, loss)| *loss)
}

/// Whether a cell has begun, and can be talked to.
#[must_use]
pub fn has_begun(cell: CellId) -> bool {
    board::is_ready(&mut Boards, cell) == Ok(true)
}

/// Takes bytes that another cell has sent: the leader's from others, theirs from the leader.
pub fn read(from: CellId, buf: &mut [u8]) -> usize {
    let Some(state) = &mut *STATE.lock() else { return 0 };
    state.exchange.wires.read(from, buf)
}

/// Sends bytes to another cell; how many were taken.
pub fn write(to: CellId, bytes: &[u8]) -> usize {
    let Some(state) = &mut *STATE.lock() else { return bytes.len() };
    if !bytes.is_empty() {
        rung(false);
    }
    state.exchange.wires.write(to, bytes)
}

/// The state, made at the first look.
fn begun(state: &mut Option<State>) -> Option<&mut State> {
    if state.is_none() {
        let (me, view) = boards::first_view()?;
        board::begin(&mut Boards, view);
        let hz = capabilities().timebase_hz;
        let patience = Patience { to_begin: BEGIN_S * hz, to_look: SILENCE_S * hz };
        *state = Some(State {
            live: LiveSet::new(&mut Boards, me, view, patience),
            noticed: None,
            lost: Vec::new(),
            exchange: Exchange::new(me, view),
        });
    }
    state.as_mut()
}

/// Who leads the cells of a view.
fn lead(view: View) {
    let Some(leader) = view.members.iter().next() else { return };
    if LEADER.swap(leader.index(), Ordering::Relaxed) != leader.index() && is_leader() {
        MUST_TAKE_OVER.store(true, Ordering::Relaxed);
    }
}

fn leave(why: &str) -> ! {
    let hart = hart::this_hart().expect("duties are done by a hart that runs its loop");
    crash::leave(hart, why)
}

impl State {
    /// Looks at the other cells; how often to look, per second.
    fn see_who_goes_on(&mut self, now: u64) -> u64 {
        let before = self.live.view();
        match self.live.poll(&mut Boards, now) {
            Verdict::Same => LOOKS_HZ,
            Verdict::Agreeing => {
                self.noticed.get_or_insert(now);
                AGREEING_HZ
            }
            Verdict::Changed(view) => {
                self.tell(before, view, now);
                lead(view);
                // Whoever waits for something of the lost cell hears of it.
                let _ = agenda::call();
                LOOKS_HZ
            }
            Verdict::Stop => leave("the others go on without it"),
        }
    }

    /// Tells who has been lost between two views.
    fn tell(&mut self, before: View, view: View, now: u64) {
        let noticed_ticks = self.noticed.take().unwrap_or(now);
        for lost in before.members.minus(view.members).iter() {
            let Some(facts) = cell::facts(lost.index()) else { continue };
            let cause = match ::cell::has_stopped(&mut Boards, lost) {
                Err(Unreadable::Dead) => CellLoss::MemoryGone,
                Err(Unreadable::Cut) => CellLoss::OutOfReach,
                Ok(true) => CellLoss::Stopped,
                Ok(false) => CellLoss::Silent,
            };
            self.lost.push((lost, Loss { cause, epoch: view.epoch }));
            log::warn!("cell {} is lost ({cause:?}), epoch {}", facts.name, view.epoch);
            let kind = EventKind::CellLost { cell: facts.name.clone(), epoch: view.epoch, cause, noticed_ticks };
            trace::record(None, kind);
        }
    }
}
