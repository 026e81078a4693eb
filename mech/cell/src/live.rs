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
    /// Ticks without a new beat after which a cell is lost.
    patience: u64,
    /// The last beat seen of each cell, and when it was new. `None`: not looked at yet.
    heard: [Option<(u64, u64)>; CELLS],
}

/// What one cell shows.
#[derive(Clone, Copy)]
struct Shown {
    proposal: CellSet,
    cut: CellSet,
    dead: CellSet,
}

impl LiveSet {
    /// The cell `me` in the view that it begins with. `patience`: ticks without a new beat after which a cell is lost. It must be
    /// longer than the longest time between two looks of a cell that lives.
    pub fn new(port: &mut impl Port, me: CellId, view: View, patience: u64) -> Self {
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
        let Some(proposal) = self.part(&shown) else {
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
        for cell in self.proposal.minus(CellSet::EMPTY.with(self.me)).iter() {
            match self.read(port, cell, now) {
                Ok(Some(words)) => shown[cell.index()] = Some(words),
                Ok(None) | Err(Unreadable::Dead) => self.dead = self.dead.with(cell),
                Err(Unreadable::Cut) => self.cut = self.cut.with(cell),
            }
        }
        // What others know to be dead is dead.
        for words in shown.iter().flatten() {
            self.dead = self.dead.either(words.dead);
        }
        shown
    }

    /// What `cell` shows. `None`: it has stopped, or its beat stands still.
    fn read(&mut self, port: &mut impl Port, cell: CellId, now: u64) -> Result<Option<Shown>, Unreadable> {
        let beat = port.read(cell, LIVE_BEAT_AT)?;
        let heard = &mut self.heard[cell.index()];
        let since = match *heard {
            Some((last, since)) if last == beat => since,
            _ => now,
        };
        *heard = Some((beat, since));
        if now.saturating_sub(since) > self.patience || port.read(cell, STOPPED_AT)? != 0 {
            return Ok(None);
        }
        // In the other order than they are written: so what made the proposal is as new as it.
        let proposal = CellSet::from_bits(port.read(cell, LIVE_PROPOSAL_AT)? as u8);
        let lost = port.read(cell, LIVE_LOST_AT)?;
        Ok(Some(Shown { proposal, cut: CellSet::from_bits(lost as u8), dead: CellSet::from_bits((lost >> 8) as u8) }))
    }

    /// The set that should go on. `None`: this cell is not in it.
    fn part(&self, shown: &[Option<Shown>; CELLS]) -> Option<CellSet> {
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

/// The largest part of `left` in which no cell is cut from another one; of equal ones, that with the lowest numbers.
fn largest_part(left: CellSet, cut: &[CellSet; CELLS]) -> CellSet {
    let whole = |part: CellSet| part.iter().all(|cell| cut[cell.index()].both(part) == CellSet::EMPTY);
    let parts =
        (0..=left.bits()).map(CellSet::from_bits).filter(|&part| part.minus(left) == CellSet::EMPTY && whole(part));
    // The lowest bit is the lowest number, and counts most.
    parts.max_by_key(|part| (part.count(), part.bits().reverse_bits())).unwrap_or(CellSet::EMPTY)
}
