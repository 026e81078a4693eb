//! Carries out what the policy of crate `merging` proposes, in bounded steps of the control hart: whoever ends a VM does so on
//! the same hart, so nobody holds on to a VM that is to go.

mod kernels;
mod places;
mod wire;

use super::registry;
use crate::{
    hart::{self, PreemptionPoint},
    io::sent,
    machine::{agenda, capabilities},
    vm::{
        Vm,
        memory::{Candidates, GuestRam, Merge, Watched, ZeroPages},
    },
};
use addr::{Gfn, PAGES_PER_LARGE, VmId};
use alloc::sync::Arc;
use control::EventKind;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use kernels::Kernels;
use merging::breaks::Breaks;
use merging::marks::Marks;
use merging::{Guest, Image, Merging, PORTION, Proposal};
use pace::{Pace, Share};
use places::Places;
use rv::csr;
use spin::Mutex;
use wire::Wire;

/// Steps per second while there is something to do, at most.
const STEPS_HZ: u64 = 2_000;
/// The longest pause after steps that were dear: themselves, or by the writes that ended what they had merged.
const LONGEST_PAUSE_S: u64 = 1;
/// How long a step waits for a moment in which the control hart runs no guest. A guest that never rests is interrupted no
/// more often.
const PATIENCE_S: u64 = 1;
/// Pages that are searched for anything but zeroes between two preemption points, most often a few words of each; divides 64.
const SEARCH: u64 = 1;
/// Pages searched in one step while nobody calls, and those of them that were read to their ends.
const SEARCHED: u64 = 256;
const READ: u32 = 32;
/// Proposals that come to nothing in one step.
const LOOKS: usize = 8;
/// Pages of zeroes, or equal to another guest's, for which a large page is given up: a quarter of it.
const WORTH_A_SPLIT: u64 = PAGES_PER_LARGE / 4;
/// Pages of zeroes in a block of single pages for which they go: some of them have just been taken, and are wanted soon.
const WORTH_A_LOOK: u64 = 4;

/// A block that is searched for pages of nothing but zeroes.
#[derive(Clone, Copy, Debug)]
struct Search {
    vm: VmId,
    first: Gfn,
    zero: Marks,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Finds out which pages are zeroes, as far as can be told while the guest writes them.
    Look,
    /// All were. Sees whether they still are, once the guest cannot write the block unseen.
    LookAgain(Watched),
    /// Many were: they go one by one.
    Drop,
}

/// Two guests' pages that are about to become one.
#[derive(Debug)]
struct Pages {
    original: VmId,
    copy: VmId,
    merge: Merge,
    /// The finder, which is told what came of it.
    by: Finder,
}

/// The finder of two equal pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    /// A pass over one guest's memory.
    Pass,
    /// The same; afterwards the blocks with these pages may be under one leaf again.
    PassOfBlock(Gfn, Gfn),
    /// A round over what went over the wire.
    Wire,
}

/// What two guests may have in common: the original, the copy, and their pages.
type Candidate = (Arc<Vm>, Arc<Vm>, Candidates);

/// How much of a block has been searched in a step: most pages are told by their first words, the others take longer.
#[derive(Clone, Copy, Debug, Default)]
struct Searched {
    pages: u64,
    read: u32,
}

impl Searched {
    /// Whether the step goes on.
    fn goes_on(self, point: &mut PreemptionPoint<'_>) -> bool {
        self.pages == 0 || (self.pages < SEARCHED && self.read < READ && point.may_go_on())
    }

    /// The next [`SEARCH`] pages, of which these were what was searched for.
    const fn add(&mut self, bits: u64) {
        self.pages += SEARCH;
        self.read += bits.count_ones();
    }
}

impl Search {
    const fn new(vm: VmId, first: Gfn) -> Self {
        Self { vm, first, zero: Marks::new(), stage: Stage::Look }
    }
}

#[derive(Debug)]
struct Work {
    policy: Merging,
    /// What comes before everything else: pages that are watched by now.
    pages: Option<Pages>,
    zero_pages: Option<(VmId, ZeroPages)>,
    search: Option<Search>,
    kernels: Option<Kernels>,
    places: Option<Places>,
    wire: Wire,
    /// What the pass under way has found.
    merged: u64,
    zeroes: u64,
    /// Pages that the round under way has merged.
    by_wire: u64,
    /// Pages that were merged too early.
    breaks: Breaks,
    /// All of it keeps to its share of a hart.
    pace: Pace,
}

static WORK: Mutex<Work> = Mutex::new(Work {
    policy: Merging::new(),
    pages: None,
    zero_pages: None,
    search: None,
    kernels: None,
    places: None,
    wire: Wire::new(),
    merged: 0,
    zeroes: 0,
    by_wire: 0,
    breaks: Breaks::new(),
    pace: Pace::new(),
});
/// Whether a pass is not finished.
static UNDER_WAY: AtomicBool = AtomicBool::new(false);
/// When the next step is due.
static NEXT: AtomicU64 = AtomicU64::new(u64::MAX);
/// When it is even if the control hart does not rest before.
static LATEST: AtomicU64 = AtomicU64::new(u64::MAX);
/// When the last step is made up for: nothing is due before, whoever asks for it.
static PAID_AT: AtomicU64 = AtomicU64::new(0);

/// The next step is due at `next`, if not before; `true` if that is news.
fn plan(next: u64) -> bool {
    let latest = next.saturating_add(PATIENCE_S * capabilities().timebase_hz);
    LATEST.fetch_min(latest, Ordering::SeqCst);
    let is_news = NEXT.fetch_min(next, Ordering::SeqCst) > next;
    agenda::note(next, latest);
    is_news
}

/// A VM begins to run, loaded from `image`.
pub fn began(vm: &Vm, image: Option<Image>) {
    let ram = vm.memory();
    let guest = Guest { vm: vm.id, base: ram.base(), pages: ram.bytes() / addr::BASE_PAGE, image };
    let mut work = WORK.lock();
    work.policy.began(guest, csr::time::read(), capabilities().timebase_hz);
    note_company(&work.policy);
    wake_at(work.policy.next_due());
}

fn note_company(policy: &Merging) {
    sent::set_looking(!policy.is_idle());
}

/// There is something to do at `at`, if not before.
fn wake_at(at: u64) {
    if plan(at) {
        // Whoever is in a guest now has set its timer without knowing.
        agenda::wake_control();
    }
}

/// A VM's memory is about to go.
pub fn ended(vm: VmId) {
    let mut work = WORK.lock();
    work.policy.ended(vm);
    if let Some(pages) = work.pages.take_if(|pages| [pages.original, pages.copy].contains(&vm)) {
        work.note_merged(pages.by, pages.merge.merged());
    }
    work.zero_pages.take_if(|(of, _)| *of == vm);
    work.search.take_if(|search| search.vm == vm);
    work.kernels.take_if(|kernels| kernels.concerns(vm));
    work.places.take_if(|places| places.concerns(vm));
    work.wire.forget(vm);
    work.breaks.forget(vm);
    note_company(&work.policy);
    if work.policy.is_idle() {
        // Nobody to share with is left.
        work.search = None;
    }
}

/// When there will be something to do.
#[inline]
#[must_use]
pub fn next_step() -> u64 {
    NEXT.load(Ordering::SeqCst).min(sent::round_at()).max(PAID_AT.load(Ordering::Relaxed))
}

/// When there will be, if the control hart does not rest before.
#[inline]
#[must_use]
pub fn latest_step() -> u64 {
    LATEST.load(Ordering::SeqCst).min(sent::latest_round_at()).max(PAID_AT.load(Ordering::Relaxed))
}

/// Whether there is work that goes on when the control hart rests.
#[inline]
#[must_use]
pub fn is_under_way() -> bool {
    UNDER_WAY.load(Ordering::Relaxed)
}

/// Whether there is something to do now.
#[inline]
#[must_use]
pub fn is_due() -> bool {
    let next = next_step();
    next != u64::MAX && csr::time::read() >= next
}

/// A bounded piece of work, if it is due.
pub fn step(point: &mut PreemptionPoint<'_>) {
    if !is_due() {
        return;
    }
    let now = csr::time::read();
    let mut work = WORK.lock();
    // Whoever sends something from here on calls again.
    NEXT.store(u64::MAX, Ordering::SeqCst);
    LATEST.store(u64::MAX, Ordering::SeqCst);
    work.step(now, point);
    let due = work.policy.next_due().min(work.wire.next_due());
    let is_busy = work.is_under_way() || due <= now;
    UNDER_WAY.store(is_busy, Ordering::Relaxed);
    let next = work.next_step(csr::time::read(), now);
    PAID_AT.store(next, Ordering::Relaxed);
    plan(if is_busy { next } else { due });
}

impl Work {
    const fn is_under_way(&self) -> bool {
        self.pages.is_some()
            || self.zero_pages.is_some()
            || self.search.is_some()
            || self.kernels.is_some()
            || self.places.is_some()
    }

    /// When to go on, after a step from `begin` to `end`.
    fn next_step(&mut self, end: u64, begin: u64) -> u64 {
        let hz = capabilities().timebase_hz;
        let faults = hart::ticks_of_faults(self.breaks.take(), hz);
        self.pace.spent(end.wrapping_sub(begin).saturating_add(faults), Share::of_machine(hart::all().len()), end);
        self.pace.next(hz / STEPS_HZ, LONGEST_PAUSE_S * hz, end)
    }

    /// Begins to merge, and goes on with it as far as that comes.
    fn merge(&mut self, candidate: Option<Candidate>, by: Finder, point: &mut PreemptionPoint<'_>) {
        let Some((original, copy, candidates)) = candidate else { return };
        let merge = Merge::begin(original.memory(), copy.memory(), &candidates, || point.pause());
        self.pages = merge.map(|merge| Pages { original: original.id, copy: copy.id, merge, by });
        self.go_on_merging(point);
    }

    fn go_on_merging(&mut self, point: &mut PreemptionPoint<'_>) {
        let Some(pages) = &mut self.pages else { return };
        let (by, lives) = (pages.by, alive(pages.original).zip(alive(pages.copy)));
        let Some((theirs, own)) = lives else {
            let merged = pages.merge.merged();
            self.pages = None;
            return self.note_merged(by, merged);
        };
        let Some(merged) = pages.merge.step(theirs.memory(), own.memory(), || point.may_go_on()) else {
            return;
        };
        self.pages = None;
        self.note_merged(by, merged);
        for life in [&theirs, &own] {
            self.breaks.look(life.id, life.memory().pages_shared().1);
        }
        if let Finder::PassOfBlock(first, second) = by {
            join_leaves(&theirs, first);
            join_leaves(&own, second);
        }
    }

    /// So many of the finder's pages are one now.
    fn note_merged(&mut self, by: Finder, merged: u64) {
        self.breaks.merged(merged);
        match by {
            Finder::Wire => self.by_wire += merged,
            Finder::Pass | Finder::PassOfBlock(..) => self.merged += merged,
        }
    }

    /// Pages of zeroes go back, if nobody has written them since they were watched.
    fn drop_zero_pages(&mut self, point: &mut PreemptionPoint<'_>) {
        let Some((vm, zeroes)) = self.zero_pages.take() else { return };
        let Some(life) = alive(vm) else { return };
        match life.memory().drop_zero_pages(&zeroes, || point.pause()) {
            Some(dropped) => self.zeroes += dropped,
            None => self.zero_pages = Some((vm, zeroes)),
        }
    }

    fn step(&mut self, now: u64, point: &mut PreemptionPoint<'_>) {
        if self.pages.is_some() {
            return self.go_on_merging(point);
        }
        if self.zero_pages.is_some() {
            return self.drop_zero_pages(point);
        }
        if let Some(search) = self.search.take() {
            self.search = self.go_on(search, point);
            return;
        }
        if let Some(kernels) = &mut self.kernels {
            match kernels.step(point) {
                Some(candidate) => self.merge(candidate, Finder::Pass, point),
                None => self.kernels = None,
            }
            return;
        }
        if let Some(places) = &mut self.places {
            match places.step(point) {
                Some(candidate) => self.merge(candidate, Finder::Pass, point),
                None => self.places = None,
            }
            return;
        }
        for _ in 0..LOOKS {
            match self.policy.next(now) {
                Some(Proposal::Compare { original, copy, pages }) => {
                    let candidate = candidates(original, copy, pages);
                    let by = Finder::PassOfBlock(last_of(original.1, pages), last_of(copy.1, pages));
                    self.merge(candidate, by, point);
                    return;
                }
                Some(Proposal::Kernels { original, copy }) => {
                    self.kernels = Kernels::new(original, copy);
                    return;
                }
                Some(Proposal::Places { original, copy, first, pages }) => {
                    self.places = Places::new(original, copy, first, pages);
                    return;
                }
                Some(Proposal::Zeroes { vm, first }) => {
                    self.search = self.go_on(Search::new(vm, first), point);
                    return;
                }
                Some(Proposal::Passed { vm }) => {
                    let (merged, zeroes) = (core::mem::take(&mut self.merged), core::mem::take(&mut self.zeroes));
                    if merged + zeroes != 0 {
                        crate::trace::record(Some(vm), EventKind::PagesMerged { merged, zeroes });
                    }
                }
                None => {
                    self.merged_by_wire(now, point);
                    return;
                }
            }
        }
    }

    /// A piece of work on what went over the wire.
    fn merged_by_wire(&mut self, now: u64, point: &mut PreemptionPoint<'_>) {
        let candidate = self.wire.step(now, &self.policy, point);
        self.merge(candidate, Finder::Wire, point);
        if self.by_wire != 0 && !self.wire.is_searching() {
            let merged = core::mem::take(&mut self.by_wire);
            crate::trace::record(None, EventKind::PagesMerged { merged, zeroes: 0 });
        }
    }

    /// Searches on; `None` when it has ended.
    fn go_on(&mut self, mut search: Search, point: &mut PreemptionPoint<'_>) -> Option<Search> {
        let life = alive(search.vm)?;
        match search.stage {
            Stage::Look => {
                let mut searched = Searched::default();
                while searched.goes_on(point) {
                    let bits = life.memory().zeroes(Gfn::new(search.first.raw() + search.zero.done()), SEARCH);
                    search.zero.add(bits, SEARCH);
                    searched.add(bits);
                    if search.zero.is_done() {
                        return looked(life.memory(), search);
                    }
                }
                Some(search)
            }
            Stage::LookAgain(since) => {
                if !life.memory().is_in_force(since) {
                    return Some(search);
                }
                let mut searched = Searched::default();
                while !search.zero.is_done() {
                    if !searched.goes_on(point) {
                        return Some(search);
                    }
                    let bits = life.memory().zeroes(Gfn::new(search.first.raw() + search.zero.done()), SEARCH);
                    if bits != (1 << SEARCH) - 1 {
                        return None;
                    }
                    search.zero.add(bits, SEARCH);
                    searched.add(bits);
                }
                if life.memory().drop_zeroes(search.first, since) {
                    self.zeroes += PAGES_PER_LARGE;
                }
                None
            }
            Stage::Drop => {
                let portion = search.zero.next_portion(search.first);
                self.zero_pages = Some((search.vm, life.memory().watch_zero_pages(&portion)));
                self.drop_zero_pages(point);
                (!search.zero.is_done()).then_some(search)
            }
        }
    }
}

/// What becomes of a block that has been looked at.
fn looked(memory: &GuestRam, search: Search) -> Option<Search> {
    let (is_large, zeroes) = (memory.is_large(search.first), search.zero.count());
    let search = Search { zero: search.zero.again(), ..search };
    if is_large && zeroes == PAGES_PER_LARGE {
        return Some(Search { stage: Stage::LookAgain(memory.watch_block(search.first)?), ..search });
    }
    // A large page is worth something, too.
    let worth = if is_large { WORTH_A_SPLIT } else { WORTH_A_LOOK };
    (zeroes >= worth).then_some(Search { stage: Stage::Drop, ..search })
}

fn candidates(original: (VmId, Gfn), copy: (VmId, Gfn), pages: u64) -> Option<Candidate> {
    let (theirs, own) = (alive(original.0)?, alive(copy.0)?);
    let pair = |index| (Gfn::new(original.1.raw() + index), Gfn::new(copy.1.raw() + index));
    Some((theirs, own, (0..pages.min(PORTION)).map(pair).collect()))
}

/// The last of `pages` pages from `first` on.
const fn last_of(first: Gfn, pages: u64) -> Gfn {
    Gfn::new(first.raw() + pages.saturating_sub(1))
}

/// One leaf for the block that ends with `last`, if it is the last page of one.
fn join_leaves(life: &Vm, last: Gfn) {
    if (last.raw() + 1).is_multiple_of(PAGES_PER_LARGE) {
        life.memory().join_leaves(last);
    }
}

/// The present life of a VM, unless it is ending.
fn alive(vm: VmId) -> Option<Arc<Vm>> {
    let registry = registry::lock();
    let record = registry.records().find(|record| record.id == vm)?;
    record.life.clone().filter(|life| !life.is_ending())
}
