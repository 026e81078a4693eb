//! Which cells go on together: agreement by words that each cell writes on its own board.
//!
//! Each cell shows whom it cannot reach, and the set it *proposes*. A proposal only ever shrinks. It becomes the cell's view when
//! all its members show the same one. A cell that has proposed a set without another one never goes on with it again, so no
//! cell can be in a set whose members count on something else.
//!
//! Who is in the proposal depends on two kinds of loss. A cell that is dead, that says it has stopped, or whose beat stands still is
//! out. A link that is cut leaves two cells alive that cannot both go on: of the cells left, the largest part goes on
//! in which nobody is cut from anybody; of parts equally large, the one with the lowest numbers. A cell supposes that those
//! whom it cannot see reach each other. So the smaller part stops, although it cannot ask.
//!
//! One fault of the hardware may divide several cells from several others, and each of them notices at its own moment. Who notices first
//! does not see that the others are divided, too, and may take itself for the smallest part. So a cell also asks the hardware,
//! where that says which links are cut ([`Port::cut_from`]).
//!
//! Cells begin one after the other. One that has not begun counts as there: it is only lost when its memory is, or when it takes
//! too long. Nothing is agreed before it has come, because it begins with the first view and has to agree, too.

use crate::board::{CELLS, LIVE_BEAT_AT, LIVE_LOST_AT, LIVE_PROPOSAL_AT, Port, STOPPED_AT, Unreadable};
use crate::{CellId, CellSet, View, board};

/// What a cell does after a look at the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its view holds.
    Same,
    /// Some cell is lost, and who goes on is not agreed yet. The view still holds; look again soon.
    Agreeing,
    /// This view holds from now on, and stands on the board.
    Changed(View),
    /// This cell is not among those that go on: it stops. Its board says so.
    Stop,
}

/// What a cell knows of who is there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LiveSet {
    me: CellId,
    view: View,
    proposal: CellSet,
    /// Cells lost for good, and cells out of reach, as this cell has seen them.
    dead: CellSet,
    cut: CellSet,
    /// Whether the proposal stood on the board before this look.
    shown: bool,
    stopped: bool,
    patience: Patience,
    /// The last beat seen of each cell ([`NOT_BEGUN`] before the first), and when it was new. `None`: not looked at yet.
    heard: [Option<(u64, u64)>; CELLS],
}

/// How long a cell waits for others, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Patience {
    /// A cell that has not begun is lost after so long.
    pub to_begin: u64,
    /// A cell without a new beat is lost after so long. It must be longer than the longest time between two looks of a cell that
    /// lives.
    pub to_look: u64,
}

/// Stands for the beat of a cell that has not begun. No time is so late.
const NOT_BEGUN: u64 = u64::MAX;

/// What a look has found of a cell.
enum Seen {
    /// It has stopped, or its beat stands still.
    Lost,
    /// It shows nothing yet.
    NotBegun,
    Shown(Shown),
}

/// What one cell shows.
#[derive(Clone, Copy)]
struct Shown {
    proposal: CellSet,
    cut: CellSet,
    dead: CellSet,
}

impl LiveSet {
    /// The cell `me` in the view that it begins with, the same for all.
    pub fn new(port: &mut impl Port, me: CellId, view: View, patience: Patience) -> Self {
        let live = Self {
            me,
            view,
            proposal: view.members,
            dead: CellSet::EMPTY,
            cut: CellSet::EMPTY,
            shown: true,
            stopped: false,
            patience,
            heard: [None; CELLS],
        };
        live.show(port);
        live
    }

    /// The view that holds.
    pub fn view(&self) -> View {
        self.view
    }

    /// One look at the others. This cell's own beat is the time of the look. Bounded: four words of each member are read, and 256 sets
    /// weighed at most.
    pub fn poll(&mut self, port: &mut impl Port, now: u64) -> Verdict {
        if self.stopped {
            return Verdict::Stop;
        }
        port.write(LIVE_BEAT_AT, now);
        let shown = self.look(port, now);
        let before = (self.proposal, self.dead, self.cut);
        let Some(proposal) = self.part(port, &shown) else {
            return self.stop(port);
        };
        self.proposal = proposal;
        if before != (self.proposal, self.dead, self.cut) {
            self.shown = false;
        }
        if !self.shown {
            self.show(port);
            self.shown = true;
            for cell in self.view.members.iter().filter(|&cell| cell != self.me) {
                port.ring(cell);
            }
            return Verdict::Agreeing;
        }
        self.conclude(port, &shown)
    }

    /// What the members show. Who cannot be read, has stopped or is silent is noted as lost.
    fn look(&mut self, port: &mut impl Port, now: u64) -> [Option<Shown>; CELLS] {
        let mut shown = [None; CELLS];
        self.cut = self.cut.either(port.cut_from(self.me).both(self.view.members));
        for cell in self.proposal.minus(self.cut.with(self.me)).iter() {
            match self.read(port, cell, now) {
                Ok(Seen::Shown(words)) => shown[cell.index()] = Some(words),
                Ok(Seen::NotBegun) => {}
                Ok(Seen::Lost) | Err(Unreadable::Dead) => self.dead = self.dead.with(cell),
                Err(Unreadable::Cut) => self.cut = self.cut.with(cell),
            }
        }
        // What others know to be dead is dead.
        for words in shown.iter().flatten() {
            self.dead = self.dead.either(words.dead);
        }
        shown
    }

    fn read(&mut self, port: &mut impl Port, cell: CellId, now: u64) -> Result<Seen, Unreadable> {
        // In the other order than they are written: so what made the proposal is as new as it.
        let proposal = CellSet::from_bits(port.read(cell, LIVE_PROPOSAL_AT)? as u8);
        let lost = port.read(cell, LIVE_LOST_AT)?;
        // Who has begun shows a proposal, which it is in itself.
        let has_begun = proposal != CellSet::EMPTY;
        let beat = if has_begun { port.read(cell, LIVE_BEAT_AT)? } else { NOT_BEGUN };
        let heard = &mut self.heard[cell.index()];
        let since = match *heard {
            Some((last, since)) if last == beat => since,
            _ => now,
        };
        *heard = Some((beat, since));
        let patience = if has_begun { self.patience.to_look } else { self.patience.to_begin };
        if now.saturating_sub(since) > patience || has_stopped(port, cell)? {
            return Ok(Seen::Lost);
        }
        if !has_begun {
            return Ok(Seen::NotBegun);
        }
        Ok(Seen::Shown(Shown {
            proposal,
            cut: CellSet::from_bits(lost as u8),
            dead: CellSet::from_bits((lost >> 8) as u8),
        }))
    }

    /// The set that should go on. `None`: this cell is not in it.
    fn part(&self, port: &mut impl Port, shown: &[Option<Shown>; CELLS]) -> Option<CellSet> {
        let mut left = self.proposal.minus(self.dead);
        for (words, cell) in shown.iter().zip(CellId::all()) {
            if let Some(words) = words.filter(|_| !self.dead.contains(cell)) {
                left = left.both(words.proposal);
            }
        }
        let mut cut = [CellSet::EMPTY; CELLS];
        cut[self.me.index()] = self.cut;
        for (words, cuts) in shown.iter().zip(&mut cut) {
            *cuts = words.map_or(*cuts, |words| words.cut);
        }
        for cell in left.iter() {
            let cuts = &mut cut[cell.index()];
            *cuts = cuts.either(port.cut_from(cell));
        }
        let best = largest_part(left, &cut);
        best.contains(self.me).then_some(best)
    }

    /// Whether all members of the proposal show it, and what follows.
    fn conclude(&mut self, port: &mut impl Port, shown: &[Option<Shown>; CELLS]) -> Verdict {
        if self.proposal == self.view.members {
            return Verdict::Same;
        }
        let agree = |cell: CellId| shown[cell.index()].is_some_and(|words| words.proposal == self.proposal);
        if !self.proposal.iter().all(|cell| cell == self.me || agree(cell)) {
            return Verdict::Agreeing;
        }
        // The number of cells lost: the same for all who come to this set, whether or not they agreed on sets between.
        let lost = self.view.members.count() - self.proposal.count();
        self.view = View { epoch: self.view.epoch + lost as u16, members: self.proposal };
        board::publish_view(port, self.view);
        Verdict::Changed(self.view)
    }

    fn show(&self, port: &mut impl Port) {
        port.write(LIVE_LOST_AT, u64::from(self.cut.bits()) | u64::from(self.dead.bits()) << 8);
        port.write(LIVE_PROPOSAL_AT, u64::from(self.proposal.bits()));
    }

    fn stop(&mut self, port: &mut impl Port) -> Verdict {
        self.stopped = true;
        stop(port);
        Verdict::Stop
    }
}

/// Say on the own board that this cell has stopped, for whatever reason. A panic does this last.
pub fn stop(port: &mut impl Port) {
    port.write(STOPPED_AT, 1);
}

/// Whether the board of `cell` says that it has stopped.
///
/// # Errors
/// The board cannot be read.
pub fn has_stopped(port: &mut impl Port, cell: CellId) -> Result<bool, Unreadable> {
    Ok(port.read(cell, STOPPED_AT)? != 0)
}

/// The largest part of `left` in which no cell is cut from another one; of equal ones, that with the lowest numbers.
fn largest_part(left: CellSet, cut: &[CellSet; CELLS]) -> CellSet {
    let whole = |part: CellSet| part.iter().all(|cell| cut[cell.index()].both(part) == CellSet::EMPTY);
    let parts =
        (0..=left.bits()).map(CellSet::from_bits).filter(|&part| part.minus(left) == CellSet::EMPTY && whole(part));
    // The lowest bit is the lowest number, and counts most.
    parts.max_by_key(|part| (part.count(), part.bits().reverse_bits())).unwrap_or(CellSet::EMPTY)
}
