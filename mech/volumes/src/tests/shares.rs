//! What volumes may take of their store.

use proptest::prelude::*;
use storage::{Kind, Status};

use super::world::*;
use crate::*;

/// A disk below with this many blocks.
fn base_of(blocks: u64) -> Base {
    Base { sectors: blocks * 8, ..base() }
}

#[test]
fn a_volume_with_a_share_gets_that_and_no_more() {
    let mut world = World::new();
    let a = world.volume("a", None);
    world.store.keep(a, 3).unwrap();
    for block in 0..3 {
        assert_eq!(world.write(a, block * 8, 8, block), Status::Ok);
    }
    assert_eq!(world.write(a, 3 * 8, 8, 3), Status::NoSpace);
    assert_eq!(world.store.share(a), Share { used: 3, kept: Some(3) });
    // What it has can be written over; what it gives up it may have again elsewhere.
    assert_eq!(world.write(a, 0, 8, 9), Status::Ok);
    assert_eq!(world.run(a, Kind::Discard, 8, 8), Status::Ok);
    assert_eq!(world.write(a, 3 * 8, 8, 3), Status::Ok);
    assert_eq!(world.write(a, 4 * 8, 8, 3), Status::NoSpace);
    assert_eq!([world.read(a, 0, 1), world.read(a, 3 * 8, 1)], [[9], [3]]);
}

/// One volume takes all that it can, in data blocks or in names for blocks of zeroes; the other one gets what is kept for it.
#[test]
fn what_is_kept_for_a_volume_is_there_when_others_have_taken_the_rest() {
    const KEPT: u64 = 20;
    for kind in [Kind::Write, Kind::WriteZeroes] {
        let mut world = World::new();
        let blocks = world.store.space().0;
        let names = world.store.geometry.max_entries() + 10;
        let a = world.store.mount("a", &base_of(names), None, "a").unwrap();
        let b = world.volume("b", None);
        world.store.keep(b, KEPT).unwrap();
        assert_eq!(world.write(b, 0, 8, 1), Status::Ok);
        let refused = (0..names).find(|block| world.run(a, kind, block * 8, 8) != Status::Ok);
        let most = if kind == Kind::Write { blocks } else { names - 10 };
        assert_eq!(refused, Some(most - KEPT));
        for block in 1..KEPT {
            assert_eq!(world.write(b, block * 8, 8, block), Status::Ok);
        }
        assert_eq!(world.write(b, KEPT * 8, 8, 1), Status::NoSpace);
        assert_eq!(world.flush(b), Status::Ok);
    }
}

#[test]
fn no_more_is_kept_than_there_is() {
    let mut world = World::new();
    let (a, b) = (world.volume("a", None), world.volume("b", None));
    let (blocks, free) = world.store.space();
    assert_eq!(blocks, free);
    world.store.keep(a, blocks - 10).unwrap();
    assert_eq!(world.store.keep(b, 11), Err(VolumeError::TooLittle { wanted: 11, left: 10 }));
    assert_eq!(world.store.share(b).kept, None);
    assert_eq!(world.write(b, 0, 8, 1), Status::Ok);
    world.store.keep(b, 10).unwrap();
    // A snapshot takes what the volume has, and all of its share is kept for what comes.
    assert_eq!(world.store.snapshot("b", "s", 1), Err(VolumeError::TooLittle { wanted: 10, left: 9 }));
    world.store.unmount(a);
    world.store.snapshot("b", "s", 1).unwrap();
    world.drain();
    assert_eq!(world.store.share(b), Share { used: 0, kept: Some(10) });
    let a = world.volume("a", None);
    assert_eq!(
        world.store.keep(a, blocks - 10),
        Err(VolumeError::TooLittle { wanted: blocks - 10, left: blocks - 11 })
    );
    world.store.keep(a, blocks - 11).unwrap();
    assert_eq!(world.store.share(a), Share { used: 0, kept: Some(blocks - 11) });
    world.store.unmount(a);
    assert_eq!(world.store.keep(a, 1), Err(VolumeError::NoSuchVolume { name: "".into() }));
}

proptest! {
    /// Volumes with shares and one without write and give up blocks at random: a write within a share never finds the store full, as
    /// long as what was given up has come back.
    #[test]
    fn writes_within_a_share_find_room(steps in prop::collection::vec((0..4_usize, 0..900_u64, 1..40_u64, 0..6_u8), 1..80)) {
        let mut world = World::new();
        let total = world.store.space().0;
        let base = base_of(1_000);
        let volumes = ["a", "b", "c", "d"].map(|name| world.store.mount(name, &base, None, name).unwrap());
        let shares = [total / 4, total / 3, total / 5];
        for (volume, share) in volumes.iter().zip(shares) {
            world.store.keep(*volume, share).unwrap();
        }
        for (of, block, count, what) in steps {
            let kind = if what == 0 { Kind::Discard } else { Kind::Write };
            let before = world.store.share(volumes[of]);
            let status = world.run(volumes[of], kind, block * 8, count.min(1_000 - block) * 8);
            let may_fail = before.kept.is_none_or(|kept| before.used + count > kept);
            prop_assert!(status == Status::Ok || (may_fail && status == Status::NoSpace), "{:?} {:?}", status, before);
            // What was given up, or taken for a write that was refused, is free when the log has it.
            if kind == Kind::Discard || status != Status::Ok {
                prop_assert_eq!(world.flush(volumes[of]), Status::Ok);
            }
            for (volume, share) in volumes.iter().zip(shares) {
                prop_assert!(world.store.share(*volume).used <= share);
            }
        }
    }
}
