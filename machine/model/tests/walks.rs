//! TLB reach and what a two-dimensional walk reads.

use machine_model::{PageSize, Space, Stage, Tlb, TlbShape, WalkStep};

const GUEST: Space = Space { vmid: Some(1), asid: Some(5) };

fn tlb() -> Tlb {
    Tlb::new(TlbShape { entries: 4, walk_entries: 32 })
}

/// Sv39 over Sv39x4 with small leaves: 3 * (3 + 1) + 3 entries, each at an address of its own.
fn full_walk(leaf: u64) -> Vec<WalkStep> {
    let guest =
        |base: u64| (0..3).map(move |at| WalkStep { stage: Stage::Guest, pte_addr: base + at * 8, is_leaf: at == 2 });
    let level = |at: u64| {
        let pte_addr = if at == 2 { leaf } else { 0x100 + at };
        guest(0x1000 * (at + 1)).chain([WalkStep { stage: Stage::First, pte_addr, is_leaf: at == 2 }])
    };
    (0..3).flat_map(level).chain(guest(leaf << 8)).collect()
}

fn reads(tlb: &mut Tlb, addr: u64, steps: &[WalkStep]) -> usize {
    let mut count = 0;
    tlb.walk(GUEST, addr, PageSize::Small, steps, |_| count += 1);
    count
}

#[test]
fn a_cold_walk_reads_all_and_a_neighbour_little() {
    let mut tlb = tlb();
    assert_eq!(reads(&mut tlb, 0x1000, &full_walk(0x500)), 15);
    assert!(tlb.lookup(GUEST, 0x1fff) && !tlb.lookup(GUEST, 0x2000));
    // The neighbour's own leaf and the G-stage of its data; the table of leaves is known.
    assert_eq!(reads(&mut tlb, 0x2000, &full_walk(0x508)), 4);
}

#[test]
fn a_superpage_entry_reaches_two_mebibytes() {
    let mut tlb = tlb();
    tlb.walk(GUEST, 0x20_0000, PageSize::Mega, &[], |_| ());
    assert!(tlb.lookup(GUEST, 0x3f_ffff) && !tlb.lookup(GUEST, 0x40_0000));
}

#[test]
fn spaces_are_apart_and_a_flush_is_exact() {
    let mut tlb = tlb();
    let (global, other) = (Space { asid: None, ..GUEST }, Space { vmid: Some(2), ..GUEST });
    for (space, addr) in [(GUEST, 0x1000), (global, 0x2000), (other, 0x3000)] {
        tlb.walk(space, addr, PageSize::Small, &[], |_| ());
    }
    assert!(tlb.lookup(GUEST, 0x2000), "a global translation serves every ASID");
    assert!(!tlb.lookup(GUEST, 0x3000));
    tlb.flush(Some(1), Some(5));
    assert!(!tlb.lookup(GUEST, 0x1000) && tlb.lookup(GUEST, 0x2000));
    tlb.flush(Some(1), None);
    assert!(!tlb.lookup(GUEST, 0x2000) && tlb.lookup(other, 0x3000));
}

#[test]
fn a_flush_makes_the_walk_cold_again() {
    let mut tlb = tlb();
    reads(&mut tlb, 0x1000, &full_walk(0x500));
    tlb.flush(Some(1), None);
    assert_eq!(reads(&mut tlb, 0x1000, &full_walk(0x500)), 15);
}
