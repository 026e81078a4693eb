//! Every state that two VMs, two nodes and three machine pages can come to.
//!
//! The transition function [`pmap::step`] is run as the monitor runs it, one guest page per VM: each change of leaves begins
//! a shootdown that every hart passes in its own time, TLBs keep what they may keep, guests read and write through them, the
//! disk cache loads and forgets a block, pages are mapped from it, shared between VMs, copied, moved, replicated and given
//! back. In every state that can be reached: no TLB shows other contents than were written last, no TLB knows a page that is
//! free or another's, no reference is lost or counted twice, no leaf allows more than the pmap.
//!
//! The rules that make this hold are switches: without any one of them the same search finds a state that is wrong.

#[path = "explore/world.rs"]
mod world;

use addr::{Mfn, NodeId};
use indexmap::IndexSet;
use pmap::{Event, PageState, step};
use world::{Rules, World};

/// States looked at before a search gives up: a change that makes the world too large is noticed here, not by patience.
const LIMIT: usize = 3_000_000;

/// All states, breadth first. `Err`: the steps to the first that is wrong.
fn explore(rules: Rules) -> Result<usize, String> {
    let mut worlds = IndexSet::new();
    let mut parents = vec![0];
    worlds.insert(World::new());
    let mut at = 0;
    while let Some(world) = worlds.get_index(at).cloned() {
        if let Err(what) = world.check() {
            return Err(story(&worlds, &parents, at, rules, &what));
        }
        world.steps(rules, &mut |_, after| {
            if worlds.insert(after) {
                parents.push(at);
            }
        });
        at += 1;
        assert!(worlds.len() < LIMIT, "the world has grown beyond what a test can search");
    }
    Ok(worlds.len())
}

/// How the world came to state `at`.
fn story(worlds: &IndexSet<World>, parents: &[usize], mut at: usize, rules: Rules, what: &str) -> String {
    let mut lines = vec![format!("{what}: {:?}", worlds[at])];
    while at != 0 {
        let mut name = String::new();
        worlds[parents[at]].steps(rules, &mut |step, after| {
            if after == worlds[at] {
                name = step.to_owned();
            }
        });
        lines.push(name);
        at = parents[at];
    }
    lines.reverse();
    lines.join("\n")
}

/// Both VMs, with one shootdown each under way at a time.
#[test]
fn no_state_of_two_vms_is_wrong() {
    let states = explore(Rules { shootdowns: [1, 1], ..Rules::ALL }).unwrap_or_else(|story| panic!("{story}"));
    assert!(states > 100_000, "only {states} states: something stands still");
}

/// One VM and the disk cache, with two shootdowns under way that overlap as they like.
#[test]
fn no_state_of_overlapping_shootdowns_is_wrong() {
    let states = explore(Rules { shootdowns: [2, 0], ..Rules::ALL }).unwrap_or_else(|story| panic!("{story}"));
    assert!(states > 10_000, "only {states} states: something stands still");
}

#[test]
fn a_reference_ends_with_its_shootdown_and_not_before() {
    let story = explore(Rules { references_wait: false, ..Rules::ALL }).expect_err("a page is reused too early");
    assert!(story.contains("free") || story.contains("another"), "{story}");
}

#[test]
fn a_copy_is_written_after_the_shootdown_of_the_original_and_not_before() {
    let story = explore(Rules { writes_wait: false, ..Rules::ALL }).expect_err("old contents are seen");
    assert!(story.contains("old contents"), "{story}");
}

#[test]
fn contents_are_copied_after_the_shootdown_of_the_watch_and_not_before() {
    let story = explore(Rules { copies_wait: false, ..Rules::ALL }).expect_err("a write is lost");
    assert!(story.contains("old contents"), "{story}");
}

#[test]
fn a_shared_page_is_mapped_by_others_after_the_shootdown_of_its_writers() {
    let story = explore(Rules { sharers_wait: false, ..Rules::ALL }).expect_err("another VM's writes are seen");
    assert!(story.contains("old contents"), "{story}");
}

/// A device at work on a page keeps it where it is.
#[test]
fn nothing_takes_a_pinned_page_away() {
    let (page, other) = (Mfn::new(1), Mfn::new(2));
    let pinned = [
        PageState::Private { mfn: page, pins: 1, watched: false },
        PageState::Private { mfn: page, pins: 1, watched: true },
        PageState::Shared { mfn: page, pins: 1 },
    ];
    let events = [
        Event::Release,
        Event::Share,
        Event::MapShared { mfn: other },
        Event::BreakSharing { copy: other },
        Event::Migrate { to: other },
        Event::Replicate { node: NodeId(1) },
        Event::PageOut { slot: 1 },
        Event::Depart { holder: 1 },
    ];
    for state in pinned {
        for event in events {
            assert!(step(state, event).is_err(), "{event:?} takes a page from a device: {state:?}");
        }
        assert_eq!(step(state, Event::Unpin).map(|(state, _)| state.mfn()), Ok(Some(page)));
    }
}
