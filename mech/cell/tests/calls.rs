//! Every order in which three cells can call each other, die, lose links and enter a new view.
//!
//! One cell dies, or one link is cut, at any step. A step is one poll of one cell, a part of it, or two cells' polls in one another: a cell
//! may stop in the middle of its writes, with its memory lost or still there to read. In every state: nothing is carried out
//! twice, an answer means that the call was carried out, and a call that ended with a new epoch was not. In every state where
//! nothing more can happen, no survivor has an open call.

use cell::{CallError, CallId, Calls, CellId, CellSet, Port, Refused, Service, Unreadable, View, board};
use indexmap::IndexSet;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

const LIMIT: usize = 2_000_000;
/// Who calls whom, in this order for each caller.
const SCRIPT: [(usize, usize); 3] = [(0, 1), (0, 1), (2, 1)];
const FIRST: View = View { epoch: 0, members: CellSet::from_bits(0b111) };
/// A time that never comes in calls that wait for an answer; the last call has one that does.
const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rules {
    /// A service remembers what it has taken.
    remembers: bool,
    /// A cell takes no calls of the epoch before the one it shows.
    leaves: bool,
    /// The members of a new view enter it.
    enters: bool,
}

const ALL: Rules = Rules { remembers: true, leaves: true, enters: true };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Runs,
    /// It stands still; its memory can be read.
    Halted,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Waiting,
    Open(CallId),
    Ended(Result<(), CallError>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    boards: [BTreeMap<usize, u64>; 3],
    life: [Life; 3],
    cut: Option<(usize, usize)>,
    view: [View; 3],
    next_view: View,
    calls: [Calls; 3],
    service: [Service; 3],
    script: [Call; SCRIPT.len()],
    carried_out: [u8; SCRIPT.len()],
    now: u64,
    forgot: bool,
    rules: Rules,
}

/// `calls` and `service` stay out of it: what they hold shows on the boards and in the script nearly always, and they are large.
impl Hash for World {
    fn hash<H: Hasher>(&self, to: &mut H) {
        (&self.boards, self.life, self.cut, self.script, self.carried_out, self.now).hash(to);
    }
}

/// What one cell does of its act before another one does a whole act, and who does which.
type Between = Option<(usize, usize, usize)>;

/// What one cell sees of the world. After `left` more writes it has died: the rest is not done.
struct Sight<'a> {
    world: &'a mut World,
    me: usize,
    left: usize,
    writes: usize,
    between: Between,
    ops: usize,
}

impl<'a> Sight<'a> {
    fn new(world: &'a mut World, me: usize, left: usize, between: Between) -> Self {
        Self { world, me, left, writes: 0, between, ops: 0 }
    }

    fn op(&mut self) {
        if let Some((_, cell, act)) = self.between.filter(|&(after, _, _)| after == self.ops) {
            let _ = self.world.act(cell, act, usize::MAX, None);
        }
        self.ops += 1;
    }
}

impl Port for Sight<'_> {
    fn read(&mut self, cell: CellId, word: usize) -> Result<u64, Unreadable> {
        self.op();
        let other = cell.index();
        let (a, b) = (self.me.min(other), self.me.max(other));
        if self.world.cut == Some((a, b)) {
            return Err(Unreadable::Cut);
        }
        if self.world.life[other] == Life::Lost {
            return Err(Unreadable::Dead);
        }
        Ok(self.world.boards[other].get(&word).copied().unwrap_or(0))
    }

    fn write(&mut self, word: usize, value: u64) {
        self.op();
        self.writes += 1;
        if self.left > 0 {
            self.left -= 1;
            // Words that are 0 are not kept: most are.
            match value {
                0 => self.world.boards[self.me].remove(&word),
                value => self.world.boards[self.me].insert(word, value),
            };
        }
    }

    fn ring(&mut self, _: CellId) {}
}

fn id(cell: usize) -> CellId {
    CellId::new(cell).expect("a cell")
}

impl World {
    fn new(rules: Rules) -> Self {
        let mut world = Self {
            boards: Default::default(),
            life: [Life::Runs; 3],
            cut: None,
            view: [FIRST; 3],
            next_view: FIRST,
            calls: [0, 1, 2].map(|cell| Calls::new(id(cell))),
            service: [0, 1, 2].map(|cell| Service::new(id(cell))),
            script: [Call::Waiting; SCRIPT.len()],
            carried_out: [0; SCRIPT.len()],
            now: 0,
            forgot: false,
            rules,
        };
        for me in 0..3 {
            board::begin(&mut Sight::new(&mut world, me, usize::MAX, None), FIRST);
        }
        world
    }

    /// One act of the cell `me`, of which `left` writes reach its board. How many it wanted to do, or `None`: nothing to do.
    fn act(&mut self, me: usize, act: usize, left: usize, between: Between) -> Option<usize> {
        match act {
            0 => self.begin_or_poll(me, left, between),
            1 => self.serve(me, left),
            2 => self.enter(me, left),
            // Both, in the middle of another cell's act.
            _ => self.serve(me, left).and(self.enter(me, left)),
        }
    }

    fn begin_or_poll(&mut self, me: usize, left: usize, between: Between) -> Option<usize> {
        let at = self.current(me)?;
        let view = self.view[me];
        let mut calls = self.calls[me].clone();
        let now = self.now;
        let state = self.script[at];
        let mut sight = Sight::new(self, me, left, between);
        let state = match state {
            Call::Open(call) => match calls.poll(&mut sight, view, now, call) {
                None => return None,
                Some(Ok(answer)) => {
                    assert_eq!(answer[3], 100 + at as u64, "the answer to another call");
                    Call::Ended(Ok(()))
                }
                Some(Err(error)) => Call::Ended(Err(error)),
            },
            _ => {
                let mut payload = [0; board::PAYLOAD_WORDS];
                payload[3] = at as u64;
                let deadline = if at == 2 { 1 } else { NEVER };
                match calls.call(&mut sight, view, id(SCRIPT[at].1), &payload, deadline) {
                    Ok(call) => Call::Open(call),
                    Err(_) => Call::Ended(Err(CallError::NotMember)),
                }
            }
        };
        let writes = sight.writes;
        self.script[at] = state;
        self.calls[me] = calls;
        Some(writes)
    }

    fn serve(&mut self, me: usize, left: usize) -> Option<usize> {
        let (view, rules) = (self.view[me], self.rules);
        let mut service = self.service[me].clone();
        let mut sight = Sight::new(self, me, left, None);
        let ticket = match service.poll(&mut sight, view) {
            None if !rules.leaves => service.poll(&mut sight, FIRST)?,
            ticket => ticket?,
        };
        let at = ticket.payload()[3] as usize;
        let mut answer = *ticket.payload();
        answer[3] += 100;
        service.answer(&mut sight, ticket, &answer);
        let writes = sight.writes;
        self.carried_out[at] += 1;
        self.service[me] = service;
        Some(writes)
    }

    fn enter(&mut self, me: usize, left: usize) -> Option<usize> {
        if self.view[me] == self.next_view || !self.next_view.members.contains(id(me)) {
            return None;
        }
        self.view[me] = self.next_view;
        let view = self.next_view;
        board::publish_view(&mut Sight::new(self, me, left, None), view);
        Some(1)
    }

    /// The world without `cell`: the survivors will enter a view without it.
    fn lose(&mut self, cell: usize) {
        self.next_view = View { epoch: 1, members: FIRST.members.minus(CellSet::EMPTY.with(id(cell))) };
    }

    /// Act 0 of `me`, with another cell's service or new view in the middle of it.
    fn interleaved(&self, me: usize, act: usize, each: &mut dyn FnMut(String, World)) {
        let Some(Call::Open(_)) = (act == 0).then(|| self.script[self.current(me).expect("it acted")]) else { return };
        for other in (0..3).filter(|&other| other != me && self.life[other] == Life::Runs) {
            for (after_ops, other_act) in [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1)] {
                let mut after = self.clone();
                if after.act(me, 0, usize::MAX, Some((after_ops, other, other_act))).is_some() {
                    each(format!("cell {me} does 0; after {after_ops} words, cell {other} does {other_act}"), after);
                }
            }
        }
    }

    fn current(&self, me: usize) -> Option<usize> {
        (0..SCRIPT.len()).find(|&at| SCRIPT[at].0 == me && !matches!(self.script[at], Call::Ended(_)))
    }

    fn steps(&self, each: &mut dyn FnMut(String, World)) {
        let rules = self.rules;
        let whole = self.next_view == FIRST;
        for me in (0..3).filter(|&me| self.life[me] == Life::Runs) {
            for act in 0..if rules.enters { 3 } else { 2 } {
                let mut after = self.clone();
                let Some(writes) = after.act(me, act, usize::MAX, None) else { continue };
                each(format!("cell {me} does {act}"), after);
                self.interleaved(me, act, each);
                // All words of a payload are alike to a reader: a record without its last word stands for those cut shorter.
                let cuts = [0, 1, writes.saturating_sub(1), writes];
                for (n, &left) in cuts.iter().enumerate().filter(|_| whole) {
                    if left > writes || cuts[..n].contains(&left) {
                        continue;
                    }
                    for life in [Life::Halted, Life::Lost] {
                        let mut after = self.clone();
                        let _ = after.act(me, act, left, None);
                        after.life[me] = life;
                        after.lose(me);
                        each(format!("cell {me} does {act} and dies after {left} writes: {life:?}"), after);
                    }
                }
            }
        }
        if whole {
            for (a, b) in [(0, 1), (1, 2), (0, 2)] {
                let mut after = self.clone();
                after.cut = Some((a, b));
                after.lose(b);
                each(format!("the link {a}-{b} is cut"), after);
            }
        } else if self.cut.is_some() {
            // The cell that is out notices by itself, and stops.
            for me in (0..3).filter(|&me| self.life[me] == Life::Runs && !self.next_view.members.contains(id(me))) {
                let mut after = self.clone();
                after.life[me] = Life::Halted;
                each(format!("cell {me} stops"), after);
            }
        }
        if self.now == 0 {
            let mut after = self.clone();
            after.now = 1;
            each("time passes".into(), after);
        }
        if !rules.remembers && !self.forgot {
            let mut after = self.clone();
            after.forgot = true;
            after.service[1] = Service::new(id(1));
            each("cell 1 forgets".into(), after);
        }
    }

    fn check(&self) -> Result<(), String> {
        for (at, call) in self.script.iter().enumerate() {
            let done = self.carried_out[at];
            if done > 1 {
                return Err(format!("call {at} was carried out {done} times"));
            }
            // What happened in a cell that is gone matters to nobody, and what a cell died in the middle of has no end.
            if SCRIPT.map(|(from, _)| self.life[from])[at] != Life::Runs {
                continue;
            }
            if *call == Call::Ended(Ok(())) && done == 0 {
                return Err(format!("call {at} was answered, but not carried out"));
            }
            if *call == Call::Ended(Err(CallError::NewEpoch)) && done == 1 {
                return Err(format!("call {at} was carried out, though its caller may call again"));
            }
        }
        Ok(())
    }

    /// Nobody among the survivors waits, now that nothing happens any more.
    fn check_end(&self) -> Result<(), String> {
        for (at, call) in self.script.iter().enumerate() {
            if self.life[SCRIPT[at].0] == Life::Runs && !matches!(call, Call::Ended(_)) {
                return Err(format!("call {at} waits for ever"));
            }
        }
        Ok(())
    }
}

/// All states, breadth first. `Err`: the steps to the first that is wrong.
fn explore(rules: Rules) -> Result<usize, String> {
    let mut worlds = IndexSet::new();
    let mut parents: Vec<(usize, String)> = vec![(0, String::new())];
    worlds.insert(World::new(rules));
    let mut at = 0;
    while let Some(world) = worlds.get_index(at).cloned() {
        let mut steps = 0;
        world.steps(&mut |name, after| {
            steps += 1;
            if worlds.insert(after) {
                parents.push((at, name));
            }
        });
        if let Err(what) = world.check().and_then(|()| if steps == 0 { world.check_end() } else { Ok(()) }) {
            let mut lines = vec![what];
            while at != 0 {
                lines.push(parents[at].1.clone());
                at = parents[at].0;
            }
            lines.reverse();
            return Err(lines.join("\n"));
        }
        at += 1;
        assert!(worlds.len() < LIMIT, "the world has grown beyond what a test can search");
    }
    Ok(worlds.len())
}

#[test]
fn no_state_of_three_cells_that_call_is_wrong() {
    let states = explore(ALL).unwrap_or_else(|story| panic!("{story}"));
    println!("{states} states");
    assert!(states > 10_000, "only {states} states: something stands still");
}

#[test]
fn calls_are_refused_where_they_could_not_end() {
    let mut world = World::new(ALL);
    let mut calls = Calls::new(id(0));
    let mut sight = Sight::new(&mut world, 0, usize::MAX, None);
    let payload = [0; board::PAYLOAD_WORDS];
    let mut call = |to| calls.call(&mut sight, FIRST, id(to), &payload, NEVER);
    assert_eq!(call(0), Err(Refused::NotMember), "itself");
    assert_eq!(call(3), Err(Refused::NotMember));
    for _ in 0..board::SLOTS {
        call(1).expect("a free slot");
    }
    assert_eq!(call(1), Err(Refused::Busy));
    call(2).expect("other cells' slots are free");
}

#[test]
fn a_board_is_ready_once_it_has_begun() {
    let mut world = World::new(ALL);
    world.boards[2].clear();
    let mut sight = Sight::new(&mut world, 0, usize::MAX, None);
    assert_eq!([1, 2].map(|cell| board::is_ready(&mut sight, id(cell))), [Ok(true), Ok(false)]);
}

#[test]
fn a_service_that_forgets_carries_out_twice() {
    let story = explore(Rules { remembers: false, ..ALL }).expect_err("a state is wrong");
    assert!(story.contains("carried out 2 times"), "{story}");
}

#[test]
fn a_cell_that_does_not_leave_its_epoch_breaks_the_promise() {
    let story = explore(Rules { leaves: false, ..ALL }).expect_err("a state is wrong");
    assert!(story.contains("may call again"), "{story}");
}

#[test]
fn without_new_views_somebody_waits_for_ever() {
    let story = explore(Rules { enters: false, ..ALL }).expect_err("a state is wrong");
    assert!(story.contains("waits for ever"), "{story}");
}
