//! Every order in which three cells can look at each other, die and lose links, with up to three faults at any moment.
//!
//! In every state, two cells that run in the same epoch are in the same set. In every state in which no look changes anything:
//! all cells that run have the same view, and it names just them. If cells only died, everybody else runs. If each
//! fault came after the one before was settled, the part that the rule names runs.

use cell::{CellId, CellSet, LiveSet, Patience, Port, Unreadable, Verdict, View, board};
use indexmap::IndexSet;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

const LIMIT: usize = 2_000_000;
const CELLS: usize = 3;
/// Nobody begins too late in these searches, and nobody is silent: their time stands still.
const PATIENCE: Patience = Patience { to_begin: 3, to_look: 1 };
const FIRST: View = View { epoch: 0, members: CellSet::from_bits(0b111) };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Rules {
    /// Faults that happen, at most.
    faults: usize,
    /// A fault happens only when the ones before are settled.
    settled: bool,
    /// Links are cut, too.
    cuts: bool,
    /// A cell looks in the middle of another one's look.
    between: bool,
    /// A port tells a cut link from a dead cell.
    tells_cut: bool,
    /// The last cell begins at any moment, the others have begun.
    late: bool,
}

const ALL: Rules = Rules { faults: 2, settled: false, cuts: true, between: true, tells_cut: true, late: false };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    /// It has not begun.
    Boots,
    Runs,
    /// It found that it is not among those that go on.
    Stopped,
    /// It panicked: its memory can be read, and says that it has stopped.
    Halted,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    boards: [BTreeMap<usize, u64>; CELLS],
    life: [Life; CELLS],
    /// For each cell, from whom it is cut.
    cut: [u8; CELLS],
    live: [LiveSet; CELLS],
    faults: usize,
    was_cut: bool,
    /// Who should go on, if each fault is settled before the next.
    expected: u8,
    rules: Rules,
}

/// `live` stays out of it: what it holds shows on the boards nearly always, and it is large.
impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (&self.boards, self.life, self.cut, self.faults).hash(to);
    }
}

/// What one cell sees of the world; after `left` more writes it has died. After `between.0` words another cell takes a look.
struct Sight<'a> {
    world: &'a mut World,
    me: usize,
    left: usize,
    between: Option<(usize, usize)>,
    words: usize,
    writes: usize,
}

impl Sight<'_> {
    fn word(&mut self) {
        if let Some((_, other)) = self.between.filter(|&(after, _)| after == self.words) {
            self.world.look(other, usize::MAX, None);
        }
        self.words += 1;
    }
}

impl Port for Sight<'_> {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        self.word();
        let other = cell.index();
        if self.world.cut[self.me] & 1 << other != 0 {
            return Err(if self.world.rules.tells_cut { Unreadable::Cut } else { Unreadable::Dead });
        }
        if self.world.life[other] == Life::Lost {
            return Err(Unreadable::Dead);
        }
        Ok(self.world.boards[other].get(&word).copied().unwrap_or(0))
    }

    fn write(&mut self, word: usize, value: u64) {
        self.word();
        self.writes += 1;
        if self.left > 0 {
            self.left -= 1;
            self.world.boards[self.me].insert(word, value);
        }
    }

    fn ring(&mut self, _: CellId) {}
}

fn id(cell: usize) -> CellId {
    CellId::new(cell).expect("a cell")
}

impl World {
    fn new(rules: Rules) -> Self {
        let mut boards: [BTreeMap<usize, u64>; CELLS] = Default::default();
        let live = [0, 1, 2].map(|me| LiveSet::new(&mut Begin(&mut boards[me]), id(me), FIRST, PATIENCE));
        let mut life = [Life::Runs; CELLS];
        if rules.late {
            (boards[CELLS - 1], life[CELLS - 1]) = (BTreeMap::new(), Life::Boots);
        }
        Self { boards, life, cut: [0; CELLS], live, faults: 0, was_cut: false, expected: 0b111, rules }
    }

    /// One look of `me`. How many words it wrote.
    fn look(&mut self, me: usize, left: usize, between: Option<(usize, usize)>) -> usize {
        let mut live = self.live[me].clone();
        let mut sight = Sight { world: self, me, left, between, words: 0, writes: 0 };
        let verdict = live.poll(&mut sight, 0);
        let writes = sight.writes;
        self.live[me] = live;
        if verdict == Verdict::Stop {
            self.life[me] = Life::Stopped;
        }
        writes
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..CELLS).filter(|&cell| self.life[cell] == Life::Runs)
    }

    fn steps(&self, each: &mut dyn FnMut(String, World)) {
        let mut settled = true;
        for me in self.running() {
            let mut after = self.clone();
            after.look(me, usize::MAX, None);
            if after != *self {
                settled = false;
                each(format!("cell {me} looks"), after);
            }
            for other in self.running().filter(|&other| self.rules.between && other != me) {
                for words in 1..12 {
                    let mut after = self.clone();
                    after.look(me, usize::MAX, Some((words, other)));
                    if after != *self {
                        each(format!("cell {me} looks; after {words} words cell {other} does"), after);
                    }
                }
            }
        }
        for me in (0..CELLS).filter(|&cell| self.life[cell] == Life::Boots) {
            let mut after = self.clone();
            after.life[me] = Life::Runs;
            after.live[me] = LiveSet::new(&mut Begin(&mut after.boards[me]), id(me), FIRST, PATIENCE);
            each(format!("cell {me} begins"), after);
        }
        if self.faults < self.rules.faults && (settled || !self.rules.settled) {
            self.faults(each);
        }
    }

    fn faults(&self, each: &mut dyn FnMut(String, World)) {
        for me in (0..CELLS).filter(|&cell| self.life[cell] == Life::Boots) {
            for life in [Life::Halted, Life::Lost] {
                let mut after = self.clone();
                after.life[me] = life;
                if life == Life::Halted {
                    cell::stop(&mut Begin(&mut after.boards[me]));
                }
                after.faults += 1;
                after.expected &= !(1 << me);
                each(format!("cell {me} dies before it begins: {life:?}"), after);
            }
        }
        for me in self.running() {
            let writes = self.clone().look(me, usize::MAX, None);
            for left in 0..=writes {
                for life in [Life::Halted, Life::Lost] {
                    let mut after = self.clone();
                    after.look(me, left, None);
                    after.life[me] = life;
                    if life == Life::Halted {
                        cell::stop(&mut Begin(&mut after.boards[me]));
                    }
                    after.faults += 1;
                    after.expected &= !(1 << me);
                    each(format!("cell {me} dies after {left} writes of a look: {life:?}"), after);
                }
            }
        }
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            if self.rules.cuts && self.cut[a] & 1 << b == 0 {
                let mut after = self.clone();
                after.cut[a] |= 1 << b;
                after.cut[b] |= 1 << a;
                after.faults += 1;
                after.was_cut = true;
                // With three cells, the rule is: of two that are cut from each other, the lower one stays.
                if after.expected & 1 << a != 0 {
                    after.expected &= !(1 << b);
                }
                each(format!("the link {a}-{b} is cut"), after);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for a in self.running() {
            for b in self.running() {
                let (a, b) = (self.live[a].view(), self.live[b].view());
                if a.epoch == b.epoch && a != b {
                    return Err(format!("one epoch, two sets: {a:?}, {b:?}"));
                }
            }
        }
        let settled = self.running().all(|me| {
            let mut after = self.clone();
            after.look(me, usize::MAX, None);
            after == *self
        });
        // Who waits for a cell that has not begun is not done.
        let is_complete = !self.life.contains(&Life::Boots);
        if settled && is_complete { self.check_settled() } else { Ok(()) }
    }

    fn check_settled(&self) -> Result<(), String> {
        let running = self.running().fold(CellSet::EMPTY, |set, cell| set.with(id(cell)));
        for cell in self.running() {
            let members = self.live[cell].view().members;
            if members != running {
                return Err(format!("cell {cell} goes on with {members:?}, but {running:?} run"));
            }
        }
        if (!self.was_cut || self.rules.settled) && running.bits() != self.expected {
            return Err(format!("{running:?} run, not {:#b}", self.expected));
        }
        Ok(())
    }
}

/// The board of a cell at work on its own.
struct Begin<'a>(&'a mut BTreeMap<usize, u64>);

impl Port for Begin<'_> {
    fn read(&mut self, _: CellId, _: usize) -> Result<u64, Unreadable> {
        Err(Unreadable::Cut)
    }

    fn write(&mut self, word: usize, value: u64) {
        self.0.insert(word, value);
    }

    fn ring(&mut self, _: CellId) {}
}

/// All states, breadth first. `Err`: the steps to the first that is wrong.
fn explore(rules: Rules) -> Result<usize, String> {
    let mut worlds = IndexSet::new();
    let mut parents: Vec<(usize, String)> = vec![(0, String::new())];
    worlds.insert(World::new(rules));
    let mut at = 0;
    while let Some(world) = worlds.get_index(at).cloned() {
        if let Err(what) = world.check() {
            let mut lines = vec![what];
            while at != 0 {
                lines.push(parents[at].1.clone());
                at = parents[at].0;
            }
            lines.reverse();
            return Err(lines.join("\n"));
        }
        world.steps(&mut |name, after| {
            if worlds.insert(after) {
                parents.push((at, name));
            }
        });
        at += 1;
        assert!(worlds.len() < LIMIT, "the world has grown beyond what a test can search");
    }
    Ok(worlds.len())
}

#[test]
fn whatever_happens_one_part_at_most_goes_on() {
    let states = explore(ALL).unwrap_or_else(|story| panic!("{story}"));
    println!("{states} states");
    assert!(states > 1000, "only {states} states: something stands still");
}

#[test]
fn after_three_faults_one_part_at_most_goes_on() {
    let states = explore(Rules { faults: 3, between: false, ..ALL }).unwrap_or_else(|story| panic!("{story}"));
    assert!(states > 1000, "only {states} states: something stands still");
}

#[test]
fn when_cells_only_die_all_others_go_on() {
    let states = explore(Rules { cuts: false, ..ALL }).unwrap_or_else(|story| panic!("{story}"));
    assert!(states > 100, "only {states} states: something stands still");
}

#[test]
fn after_one_fault_at_a_time_the_part_of_the_rule_goes_on() {
    let states = explore(Rules { faults: 3, settled: true, ..ALL }).unwrap_or_else(|story| panic!("{story}"));
    assert!(states > 100, "only {states} states: something stands still");
}

#[test]
fn who_takes_a_cut_link_for_a_death_goes_on_in_two_parts() {
    let story = explore(Rules { tells_cut: false, ..ALL }).expect_err("a state is wrong");
    assert!(story.contains("goes on with") || story.contains("two sets"), "{story}");
}

#[test]
fn a_cell_may_begin_late_or_never() {
    for cuts in [false, true] {
        let rules = Rules { cuts, between: !cuts, late: true, ..ALL };
        let states = explore(rules).unwrap_or_else(|story| panic!("{story}"));
        assert!(states > 100, "only {states} states: something stands still");
    }
}

#[test]
fn a_cell_that_does_not_begin_is_lost_in_the_end() {
    let mut world = World::new(Rules { late: true, ..ALL });
    let looks = |world: &mut World, now| {
        [0, 1].map(|me| {
            let mut live = world.live[me].clone();
            let mut sight = Sight { world, me, left: usize::MAX, between: None, words: 0, writes: 0 };
            let verdict = live.poll(&mut sight, now);
            world.live[me] = live;
            verdict
        })
    };
    for now in 0..=PATIENCE.to_begin {
        assert_eq!(looks(&mut world, now), [Verdict::Same; 2], "at {now}");
    }
    let without = View { epoch: 1, members: CellSet::from_bits(0b011) };
    assert_eq!(looks(&mut world, 4), [Verdict::Agreeing; 2]);
    assert_eq!(looks(&mut world, 4), [Verdict::Changed(without); 2]);
}

#[test]
fn a_silent_cell_is_lost_and_stops_when_it_wakes() {
    let mut world = World::new(ALL);
    let mut views = vec![];
    for now in 0..5 {
        for me in [0, 2] {
            let mut live = world.live[me].clone();
            let mut sight = Sight { world: &mut world, me, left: usize::MAX, between: None, words: 0, writes: 0 };
            if let Verdict::Changed(view) = live.poll(&mut sight, now) {
                views.push(view);
            }
            world.live[me] = live;
        }
    }
    let without = View { epoch: 1, members: CellSet::from_bits(0b101) };
    assert_eq!(views, [without; 2]);
    world.look(1, usize::MAX, None);
    assert_eq!(world.life[1], Life::Stopped);
    assert_eq!(
        board::view_of(&mut Sight { world: &mut world, me: 1, left: 0, between: None, words: 0, writes: 0 }, id(0)),
        Ok(without)
    );
}

/// A machine of six cells that is divided in two, of which each cell notices at its own moment.
struct Divided {
    boards: [BTreeMap<usize, u64>; SIX],
    /// The part on one side, and who has noticed.
    side: u8,
    noticed: u8,
    says_cut: bool,
}

const SIX: usize = 6;

impl Divided {
    fn is_cut(&self, a: usize, b: usize) -> bool {
        (self.side >> a ^ self.side >> b) & 1 != 0
    }
}

struct Part<'a>(&'a mut Divided, usize);

impl Port for Part<'_> {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        let (world, other) = (&self.0, cell.index());
        if world.noticed & 1 << self.1 != 0 && world.is_cut(self.1, other) {
            return Err(Unreadable::Cut);
        }
        Ok(world.boards[other].get(&word).copied().unwrap_or(0))
    }

    fn write(&mut self, word: usize, value: u64) {
        self.0.boards[self.1].insert(word, value);
    }

    fn cut_from(&mut self, cell: CellId) -> CellSet {
        let others = (0..SIX).filter(|&other| self.0.says_cut && self.0.is_cut(cell.index(), other));
        others.map(id).fold(CellSet::EMPTY, CellSet::with)
    }

    fn ring(&mut self, _: CellId) {}
}

/// Which cells go on after a division, with looks and noticing in this order.
fn divide(side: u8, says_cut: bool, seed: u64) -> u8 {
    let first = View { epoch: 0, members: CellSet::from_bits((1 << SIX) - 1) };
    let mut world = Divided { boards: Default::default(), side: 0, noticed: 0, says_cut };
    let mut live: Vec<_> =
        (0..SIX).map(|me| LiveSet::new(&mut Part(&mut world, me), id(me), first, PATIENCE)).collect();
    world.side = side;
    let (mut state, mut running, mut epochs) = (seed, (1_u8 << SIX) - 1, [0; SIX]);
    for step in 0..600 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let me = (state >> 33) as usize % SIX;
        if state >> 60 == 0 || step > 300 {
            world.noticed |= 1 << me;
        }
        if running & 1 << me == 0 {
            continue;
        }
        match live[me].poll(&mut Part(&mut world, me), 0) {
            Verdict::Stop => running &= !(1 << me),
            Verdict::Changed(view) => epochs[me] = view.epoch,
            Verdict::Same | Verdict::Agreeing => {}
        }
    }
    let lost = SIX as u32 - running.count_ones();
    let agree = (0..SIX).filter(|&me| running & 1 << me != 0).all(|me| u32::from(epochs[me]) == lost);
    assert!(agree, "{running:#b} run in {epochs:?}");
    running
}

#[test]
fn one_cut_that_divides_many_leaves_the_part_of_the_rule() {
    for side in 1..(1_u8 << SIX) - 1 {
        let other = !side & ((1 << SIX) - 1);
        let by_rule = |part: u8| (part.count_ones(), part.reverse_bits());
        let expected = if by_rule(side) > by_rule(other) { side } else { other };
        for seed in 0..40 {
            assert_eq!(divide(side, true, seed), expected, "{side:#b}, {seed}");
        }
    }
}

#[test]
fn where_the_hardware_says_nothing_fewer_may_go_on() {
    assert!((0..40).any(|seed| divide(0b111, false, seed) != 0b111));
}
