use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::pmp::Access;

const MIB: u64 = 1 << 20;
const RAM: u64 = faults::FIRMWARE_AT;

/// Four nodes of uneven sizes, the last in two pieces with a hole between them.
fn machine() -> Containment {
    let pieces = [(0, 256, 0), (256, 512, 1), (512, 832, 2), (832, 896, 3), (1024, 1280, 3)];
    let memory = pieces.map(|(start, end, node)| Memory { start: RAM + start * MIB, end: RAM + end * MIB, node });
    let all = NodeSet::first(4);
    Containment {
        all,
        live: all,
        memory: memory.into_iter().collect(),
        linked: [all; MAX_NODES],
        poisoned: ArrayVec::new(),
        cells: [NodeSet::EMPTY; MAX_NODES],
    }
}

fn after(faults: &[Fault]) -> Containment {
    faults.iter().fold(machine(), |state, fault| state.after(*fault).expect("a fault that can be"))
}

fn set(nodes: &[usize]) -> NodeSet {
    nodes.iter().fold(NodeSet::EMPTY, |set, node| set.or(NodeSet::one(*node)))
}

fn may(state: &Containment, node: usize, mib: u64, access: Access) -> bool {
    state.plan(node).expect("a plan").allows(RAM + mib * MIB, access)
}

#[test]
fn a_lost_node_is_out_of_reach_for_all_others() {
    let state = after(&[Fault::NodePower(set(&[2]))]);
    assert_eq!((state.live(), state.reach(0), state.reach(2)), (set(&[0, 1, 3]), set(&[0, 1, 3]), NodeSet::EMPTY));
    for node in [0, 1, 3] {
        assert!(!may(&state, node, 600, Access::Read) && may(&state, node, 300, Access::Write));
    }
}

#[test]
fn a_cut_link_leaves_two_parts() {
    let state = after(&[Fault::Link(set(&[0, 1]))]);
    assert_eq!((state.reach(0), state.reach(3), state.live()), (set(&[0, 1]), set(&[2, 3]), set(&[0, 1, 2, 3])));
    assert!(!may(&state, 0, 600, Access::Read) && !may(&state, 3, 300, Access::Execute));
    assert!(may(&state, 3, 1100, Access::Write), "both pieces of the own node stay");
    let lost = state.after(Fault::Router(set(&[1]))).expect("a second fault");
    assert_eq!((lost.reach(0), lost.reach(2)), (set(&[0]), set(&[2, 3])));
}

#[test]
fn a_page_is_lost_for_everybody() {
    let page = RAM + 300 * MIB;
    let state = after(&[Fault::Page(page)]);
    let plan = state.plan(1).expect("a plan");
    assert!(!plan.allows(page, Access::Read) && !plan.allows(page + 4095, Access::Write));
    assert!(plan.allows(page - 1, Access::Read) && plan.allows(page + 4096, Access::Write));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let refused = |state: &Containment, fault| state.after(fault).err();
    let state = after(&[Fault::NodePower(set(&[1])), Fault::Page(RAM + 300 * MIB)]);
    for (fault, refusal) in [
        (Fault::NodePower(set(&[4])), Refusal::UnknownNode),
        (Fault::Link(set(&[0, 63])), Refusal::UnknownNode),
        (Fault::NodePower(set(&[1])), Refusal::AlreadyGone),
        (Fault::Router(set(&[0, 2, 3])), Refusal::NobodyLeft),
        (Fault::Link(set(&[0, 1, 2, 3])), Refusal::NobodyLeft),
        (Fault::Link(set(&[1])), Refusal::NobodyLeft),
        (Fault::Page(RAM + 300 * MIB), Refusal::AlreadyGone),
        (Fault::Page(RAM + 950 * MIB), Refusal::NotMemory),
        (Fault::Page(RAM + MIB), Refusal::NotMemory),
        (Fault::Page(!0xfff), Refusal::NotMemory),
    ] {
        assert_eq!(refused(&state, fault), Some(refusal), "{fault}");
    }
    let cut = after(&[Fault::Link(set(&[0]))]);
    assert_eq!(refused(&cut, Fault::Link(set(&[1, 2, 3]))), Some(Refusal::AlreadyGone));
}

#[test]
fn entries_run_out_in_time() {
    let mut state = after(&[Fault::Link(set(&[0, 2]))]);
    let pages = (0..20).map(|page| RAM + 260 * MIB + page * 0x2000);
    let done: Vec<_> = pages
        .map_while(|page| {
            state = state.after(Fault::Page(page)).ok()?;
            Some(page)
        })
        .collect();
    assert!((1..=MAX_POISONED).contains(&done.len()), "{} pages", done.len());
    assert!(done.iter().all(|page| !state.plan(1).expect("a plan").allows(*page, Access::Read)));
}

#[test]
fn the_firewall_lets_others_read_only() {
    let state = machine().with_firewall(0, set(&[0, 1])).expect("a cell");
    assert!(may(&state, 1, 10, Access::Write) && may(&state, 1, 600, Access::Read));
    assert!(!may(&state, 1, 600, Access::Write) && may(&state, 2, 10, Access::Write));
    assert_eq!(machine().with_firewall(0, set(&[1])).err(), Some(Refusal::UnknownNode));
    let open = state.with_firewall(1, NodeSet::EMPTY).expect("off");
    assert!(may(&open, 0, 600, Access::Write), "opened for the whole cell");
    let dead = state.after(Fault::NodePower(set(&[2]))).expect("a fault");
    assert!(!may(&dead, 1, 600, Access::Read), "what is lost cannot even be read");
}

fn any_fault() -> impl Strategy<Value = Fault> {
    let nodes = || (1_u64..16).prop_map(NodeSet);
    let one = || (0_usize..5).prop_map(NodeSet::one);
    prop_oneof![
        one().prop_map(Fault::NodePower),
        nodes().prop_map(Fault::Router),
        nodes().prop_map(Fault::Link),
        one().prop_map(Fault::NodeController),
        (0_u64..1400 * 256).prop_map(|page| Fault::Page(RAM + page * 4096)),
    ]
}

proptest! {
    /// After any faults, a plan allows exactly what the state says, everywhere.
    #[test]
    fn plans_do_what_the_state_says(
        faults in prop::collection::vec(any_fault(), 0..8),
        firewall in 0_u64..16,
        addresses in prop::collection::vec(0_u64..1400 * MIB, 40),
    ) {
        let mut state = machine();
        if let Ok(closed) = state.with_firewall(NodeSet(firewall).iter().next().unwrap_or(0), NodeSet(firewall)) {
            state = closed;
        }
        for fault in faults {
            state = state.after(fault).unwrap_or(state);
        }
        prop_assert!(!state.live().is_empty());
        let pages: Vec<u64> = state.poisoned().iter().map(|page| page - RAM + 7).collect();
        for node in state.live().iter() {
            let plan = state.plan(node).expect("every state has plans");
            for address in addresses.iter().chain(&pages).map(|offset| RAM + offset) {
                let owner = state.memory.iter().find(|part| (part.start..part.end).contains(&address)).map(|part| part.node);
                let is_firmware = address < RAM + faults::FIRMWARE_BYTES;
                let is_lost = state.poisoned().contains(&(address & !0xfff))
                    || owner.is_some_and(|owner| !state.reach(node).has(owner));
                let is_status = address & !0xfff == faults::STATUS_AT;
                let cell = state.cells[node];
                let is_closed = !cell.is_empty() && owner.is_some_and(|owner| !cell.has(owner));
                let open = !is_firmware && !is_lost;
                prop_assert_eq!(plan.allows(address, Access::Read), open || is_status, "{:#x}", address);
                prop_assert_eq!(plan.allows(address, Access::Write), open && !is_closed, "{:#x}", address);
                prop_assert_eq!(plan.allows(address, Access::Execute), open, "{:#x}", address);
            }
        }
    }

    /// Links and powers are symmetric: who does not reach is not reached.
    #[test]
    fn reach_is_mutual(faults in prop::collection::vec(any_fault(), 0..8)) {
        let state = faults.into_iter().fold(machine(), |state, fault| state.after(fault).unwrap_or(state));
        for (a, b) in (0..4).flat_map(|a| (0..4).map(move |b| (a, b))) {
            prop_assert_eq!(state.reach(a).has(b), state.reach(b).has(a));
        }
    }
}
