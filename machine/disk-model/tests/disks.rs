//! What holds for all disks and all requests.

use disk_model::{Disk, DiskError, MAX_SECTORS, Operation, Preset, Request};
use proptest::prelude::*;

const SECTORS: u64 = 1 << 21;
const US: u64 = 1_000_000;

fn request(operation: Operation, sector: u64, sectors: u64) -> Request {
    Request { operation, sector, sectors }
}

fn ssd() -> Disk {
    Disk::new(Preset::Ssd, SECTORS, 1).expect("it is possible")
}

#[test]
fn requests_and_disks_that_cannot_be_are_refused() {
    assert!(matches!(Disk::new(Preset::Ssd, MAX_SECTORS + 1, 1), Err(DiskError::TooLarge { .. })));
    for scale in [0, 101] {
        assert_eq!(Disk::new(Preset::Ssd, 1, scale).map(|_| ()), Err(DiskError::Scale { scale }));
    }
    let mut disk = ssd();
    assert_eq!(disk.submit(0, request(Operation::Read, 0, 0)), Err(DiskError::Empty));
    for (sector, sectors) in [(SECTORS, 1), (SECTORS - 1, 2), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(matches!(
            disk.submit(0, request(Operation::Write, sector, sectors)),
            Err(DiskError::OutOfRange { .. })
        ));
    }
    assert!(disk.submit(0, request(Operation::Read, SECTORS - 1, 1)).is_ok());
    assert_eq!(Preset::Hp97560.capacity(), Some(1962 * 19 * 72));
}

#[test]
fn a_flash_disk_works_on_its_channels_at_once() {
    // Overhead 5 us, 60 us from the cells, 8 sectors of 0.16 us on the bus.
    let bus = 8 * 160_000;
    assert_eq!(ssd().submit(0, request(Operation::Read, 0, 8)), Ok(65 * US + bus));
    // Eight pages side by side; sixteen in two rounds.
    assert_eq!(ssd().submit(0, request(Operation::Read, 0, 64)), Ok(65 * US + 8 * bus));
    assert_eq!(ssd().submit(0, request(Operation::Read, 0, 128)), Ok(125 * US + 16 * bus));
    assert_eq!(ssd().submit(0, request(Operation::Write, 0, 8)), Ok(25 * US + bus));
    // Two requests for one channel wait for each other, for two channels they do not.
    let second = |sector| {
        let mut disk = ssd();
        disk.submit(0, request(Operation::Read, 0, 8)).expect("it is on the disk");
        disk.submit(0, request(Operation::Read, sector, 8)).expect("it is on the disk")
    };
    assert_eq!((second(64), second(8)), (125 * US + bus, 70 * US + bus));
    let mut fast = Disk::new(Preset::Ssd, SECTORS, 2).expect("it is possible");
    assert_eq!(fast.submit(0, request(Operation::Read, 0, 8)), Ok(35 * US + bus));
}

#[test]
fn a_flush_waits_for_all_before_it() {
    let mut disk = ssd();
    assert_eq!(disk.flush(7), 7);
    let done = disk.submit(0, request(Operation::Write, 0, 64)).expect("it is on the disk");
    assert_eq!((disk.flush(7), disk.flush(done + 1)), (done, done + 1));
}

fn requests() -> impl Strategy<Value = Vec<(u64, Request)>> {
    let one = (0..20_000_u64, any::<bool>(), 0..SECTORS - 2048, 1..2048_u64);
    let one = one.prop_map(|(pause_us, is_read, sector, sectors)| {
        let operation = if is_read { Operation::Read } else { Operation::Write };
        (pause_us * US, request(operation, sector, sectors))
    });
    prop::collection::vec(one, 1..40)
}

proptest! {
    /// Nothing is complete before it came; a mechanical disk finishes in order; the same requests take the same times;
    /// and no request takes longer than the longest seek, some turns for each track, and the wait before it.
    #[test]
    fn times_are_possible(requests in requests(), preset in prop::sample::select(vec![Preset::Hp97560, Preset::Ssd])) {
        let mut disk = Disk::new(preset, SECTORS, 1).expect("it is possible");
        let mut again = disk.clone();
        let (mut now, mut before) = (0, 0);
        for (pause, request) in requests {
            now += pause;
            let done = disk.submit(now, request).expect("it is on the disk");
            prop_assert!(done > now);
            prop_assert_eq!(again.submit(now, request), Ok(done));
            if preset == Preset::Hp97560 {
                prop_assert!(done > before, "requests are served in order");
                let turns = 3 * (request.sectors / 72 + 2);
                prop_assert!(done - now.max(before) < 30_000 * US + turns * 15_000 * US);
                before = done;
            }
        }
    }
}
