use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const HZ: u64 = 10;
const BASE: u64 = 0x80000;
const IMAGE: Image = Image { origin: 7, first: Gfn::new(BASE + 512), pages: 700 };

fn guest(vm: u16, image: Option<Image>) -> Guest {
    Guest { vm: VmId(vm), base: Gfn::new(BASE), pages: 4 * PAGES_PER_LARGE, image }
}

/// A whole pass of whoever is due.
fn pass(merging: &mut Merging, now: u64) -> Vec<Proposal> {
    let mut all = vec![];
    while let Some(proposal) = merging.next(now) {
        all.push(proposal);
        if matches!(proposal, Proposal::Passed { .. }) {
            return all;
        }
    }
    all
}

fn compared(pass: &[Proposal]) -> u64 {
    let pages = |proposal: &Proposal| if let Proposal::Compare { pages, .. } = proposal { *pages } else { 0 };
    pass.iter().map(pages).sum()
}

#[test]
fn nothing_is_due_without_guests_or_too_early() {
    let mut merging = Merging::new();
    assert_eq!((merging.next_due(), merging.next(u64::MAX - 1)), (u64::MAX, None));
    merging.began(guest(1, Some(IMAGE)), 1_000, HZ);
    merging.began(guest(2, Some(IMAGE)), 1_001, HZ);
    assert_eq!(merging.next_due(), 1_000 + FIRST_PASS_S * HZ);
    assert_eq!(merging.next(merging.next_due() - 1), None);
}

#[test]
fn a_guest_alone_is_not_disturbed() {
    let mut merging = Merging::new();
    merging.began(guest(1, Some(IMAGE)), 0, HZ);
    let late = 100 * FIRST_PASS_S * HZ;
    assert_eq!((merging.next_due(), merging.next(late)), (u64::MAX, None));
    // Another one comes: what is overdue is done; and goes: the rest stays undone.
    merging.began(guest(2, None), late, HZ);
    assert_eq!(merging.next_due(), FIRST_PASS_S * HZ);
    assert!(merging.next(late).is_some());
    merging.ended(VmId(2));
    assert_eq!((merging.next_due(), merging.next(late)), (u64::MAX, None));
}

#[test]
fn the_first_guest_of_an_image_is_compared_with_nobody() {
    let mut merging = Merging::new();
    merging.began(guest(1, Some(IMAGE)), 0, HZ);
    merging.began(guest(2, Some(Image { origin: 8, ..IMAGE })), 0, HZ);
    merging.began(guest(3, None), 0, HZ);
    let now = merging.next_due();
    for vm in 1..=3 {
        let all = pass(&mut merging, now);
        assert_eq!(compared(&all), 0);
        let blocks: Vec<_> = (0..4)
            .map(|n| Proposal::Zeroes { vm: VmId(vm), first: Gfn::new(BASE + n * PAGES_PER_LARGE) })
            .chain([Proposal::Passed { vm: VmId(vm) }])
            .collect();
        assert_eq!(all, blocks);
    }
    assert_eq!(merging.next(now), None);
}

#[test]
fn a_later_guest_is_compared_with_the_oldest() {
    let mut merging = Merging::new();
    for vm in 1..=3 {
        merging.began(guest(vm, Some(IMAGE)), u64::from(vm), HZ);
    }
    let now = 3 + FIRST_PASS_S * HZ;
    let passes: Vec<_> = (0..3).map(|_| pass(&mut merging, now)).collect();
    assert_eq!(passes.iter().map(|all| compared(all)).collect::<Vec<_>>(), [0, 700, 700]);
    let first = Proposal::Compare { original: (VmId(1), IMAGE.first), copy: (VmId(3), IMAGE.first), pages: PORTION };
    assert_eq!(passes[2][0], first);
    // The oldest ends: the next one takes its place.
    merging.ended(VmId(1));
    let later = merging.next_due().max(now + 10 * FIRST_PASS_S * HZ);
    assert_eq!(compared(&pass(&mut merging, later)), 0);
    assert_eq!(compared(&pass(&mut merging, later)), 700);
}

#[test]
fn no_portion_crosses_a_block() {
    let mut merging = Merging::new();
    let odd = Image { first: Gfn::new(BASE + 505), ..IMAGE };
    merging.began(guest(1, Some(IMAGE)), 0, HZ);
    merging.began(guest(2, Some(odd)), 0, HZ);
    let now = merging.next_due();
    let _ = pass(&mut merging, now);
    let all = pass(&mut merging, now);
    assert_eq!(compared(&all), 700);
    for proposal in all {
        if let Proposal::Compare { copy: (_, first), pages, .. } = proposal {
            assert!(first.index_in_large() as u64 + pages <= PAGES_PER_LARGE);
        }
    }
}

#[test]
fn passes_become_rarer_and_end() {
    let mut merging = Merging::new();
    merging.began(guest(1, None), 0, HZ);
    merging.began(guest(2, None), u64::MAX, HZ);
    let mut times = vec![];
    while merging.next_due() != u64::MAX {
        let now = merging.next_due();
        times.push(now / HZ);
        let _ = pass(&mut merging, now);
    }
    assert_eq!(times, [15, 30, 60, 120, 240, 480, 960]);
    assert_eq!(times.len(), PASSES as usize);
}

#[test]
fn ram_that_is_no_whole_block_is_left_alone() {
    let mut merging = Merging::new();
    let odd = Guest { base: Gfn::new(BASE + 5), pages: PAGES_PER_LARGE + 3, ..guest(1, None) };
    merging.began(odd, 0, HZ);
    merging.began(guest(2, None), u64::MAX, HZ);
    let now = merging.next_due();
    assert_eq!(pass(&mut merging, now), [Proposal::Passed { vm: VmId(1) }]);
    let last = Guest { base: Gfn::new(u64::MAX - 3), pages: 3, ..guest(1, None) };
    merging.began(last, 0, HZ);
    assert_eq!(pass(&mut merging, now), [Proposal::Passed { vm: VmId(1) }]);
}

#[test]
fn places_are_those_that_both_have() {
    let mut merging = Merging::new();
    merging.began(guest(1, Some(IMAGE)), 0, HZ);
    let other = Guest { base: Gfn::new(BASE + 100), ..guest(2, Some(IMAGE)) };
    merging.began(other, 0, HZ);
    merging.began(Guest { base: Gfn::new(u64::MAX - 3), ..guest(3, Some(IMAGE)) }, 0, HZ);
    let now = merging.next_due();
    let places: Vec<_> = (0..3)
        .flat_map(|_| pass(&mut merging, now))
        .filter_map(|proposal| match proposal {
            Proposal::Places { original, copy, first, pages } => Some((original.0, copy.0, first.raw(), pages)),
            _ => None,
        })
        .collect();
    let none = |original| (original, 3, u64::MAX - 3, 0);
    assert_eq!(places, [(1, 2, BASE + 100, 4 * PAGES_PER_LARGE - 100), none(1), none(2)]);
}

proptest! {
    #[test]
    fn everything_is_proposed_once_against_an_older_guest(
        steps in prop::collection::vec((1u16..6, 0u64..3, 0u64..400), 1..40)
    ) {
        let (mut merging, mut now) = (Merging::new(), 0);
        // Guests alive, with the time they began: their order.
        let mut alive: BTreeMap<VmId, (u64, u64)> = BTreeMap::new();
        let mut order = 0;
        for (vm, origin, wait) in steps {
            now += wait;
            if origin == 0 {
                merging.ended(VmId(vm));
                alive.remove(&VmId(vm));
            } else {
                order += 1;
                merging.began(guest(vm, Some(Image { origin, ..IMAGE })), now, HZ);
                alive.insert(VmId(vm), (order, origin));
            }
            while merging.next_due() <= now {
                let all = pass(&mut merging, now);
                let Some(Proposal::Passed { vm }) = all.last() else { panic!("a pass ends: {all:?}") };
                let own = alive[vm];
                let originals = alive.values().filter(|other| other.1 == own.1 && other.0 < own.0);
                let oldest = originals.min();
                prop_assert_eq!(compared(&all), if oldest.is_some() { 700 } else { 0 });
                let looks = |is_wanted: fn(&Proposal) -> bool| -> Vec<_> {
                    let wanted = all.iter().filter(|proposal| is_wanted(proposal));
                    wanted
                        .filter_map(|proposal| match proposal {
                            Proposal::Kernels { original, copy } => Some((alive[original], *copy)),
                            Proposal::Places { original, copy, first, pages } => {
                                assert_eq!((first.raw(), *pages), (BASE, 4 * PAGES_PER_LARGE));
                                Some((alive[original], *copy))
                            }
                            _ => None,
                        })
                        .collect()
                };
                let kernels = looks(|proposal| matches!(proposal, Proposal::Kernels { .. }));
                let places = looks(|proposal| matches!(proposal, Proposal::Places { .. }));
                let mut originals: Vec<_> =
                    alive.values().filter(|other| other.1 == own.1 && other.0 < own.0).map(|other| (*other, *vm)).collect();
                originals.sort_unstable();
                originals.truncate(LIKELY);
                prop_assert_eq!(kernels, originals.clone());
                prop_assert_eq!(places, originals);
                for proposal in &all {
                    if let Proposal::Compare { original, copy, .. } = proposal {
                        prop_assert_eq!(copy.0, *vm);
                        prop_assert_eq!(Some(&alive[&original.0]), oldest);
                        prop_assert_eq!(original.1, copy.1);
                    }
                }
            }
        }
    }
}
