//! Every order of messages and steps of harts, for three machines and two pages.
//!
//! Channels deliver each message once and in order for each pair of machines, and in any order otherwise. In every
//! state:
//! - who may write without asking is alone with the page;
//! - all states that end have their programs done, all copies equal, and nothing left to say;
//! - from every state such an end can be reached (nobody waits for ever).
//!
//! The programs' results are compared with what RVWMO allows, written out by hand for each.

mod programs;
mod world;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use world::{Step, World};

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// How many states there are.
    pub states: usize,
    /// Registers and last values of all ends.
    pub ends: BTreeSet<Vec<u64>>,
}

fn digest(world: &World) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// Goes through all states from `first`.
pub fn search(first: World, limit: usize) -> Found {
    let mut seen = HashMap::from([(digest(&first), 0_u32)]);
    let mut parents: Vec<(u32, Option<Step>)> = vec![(0, None)];
    let mut edges: Vec<(u32, u32)> = Vec::new();
    let (mut queue, mut ends, mut finals) = (VecDeque::from([(0_u32, first.clone())]), BTreeSet::new(), Vec::new());
    while let Some((number, world)) = queue.pop_front() {
        if let Err(wrong) = world.check() {
            panic!("{wrong} after {:#?}", trace(&parents, number));
        }
        let steps = world.steps();
        if steps.is_empty() {
            let end =
                world.end().unwrap_or_else(|wrong| panic!("{wrong} after {:#?}\n{world:#?}", trace(&parents, number)));
            ends.insert(end);
            finals.push(number);
        }
        for step in steps {
            let mut next = world.clone();
            next.make(step);
            let fresh = parents.len() as u32;
            let to = *seen.entry(digest(&next)).or_insert(fresh);
            edges.push((to, number));
            if to == fresh {
                assert!(parents.len() < limit, "more than {limit} states");
                parents.push((number, Some(step)));
                queue.push_back((to, next));
            }
        }
    }
    all_reach(&finals, edges, parents.len());
    Found { states: parents.len(), ends }
}

fn trace(parents: &[(u32, Option<Step>)], mut at: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    while let (parent, Some(step)) = parents[at as usize] {
        steps.push(step);
        at = parent;
    }
    steps.reverse();
    steps
}

/// From each state one of `finals` can be reached.
fn all_reach(finals: &[u32], mut edges: Vec<(u32, u32)>, states: usize) {
    edges.sort_unstable();
    let mut reaches = vec![false; states];
    let mut queue: Vec<u32> = finals.to_vec();
    finals.iter().for_each(|at| reaches[*at as usize] = true);
    while let Some(at) = queue.pop() {
        let first = edges.partition_point(|(to, _)| *to < at);
        for (_, from) in edges[first..].iter().take_while(|(to, _)| *to == at) {
            if !std::mem::replace(&mut reaches[*from as usize], true) {
                queue.push(*from);
            }
        }
    }
    let stuck = reaches.iter().filter(|reaches| !**reaches).count();
    assert_eq!(stuck, 0, "{stuck} of {states} states never end");
}
