//! Disks against a device that does what the test says.
//
// UNSAFETY: reads are submitted over pages that the test allocated and only looks at when they have ended.
#![expect(unsafe_code)]

use std::{cell::Cell, rc::Rc};

use crate::fake::{Chain, Model, Process, Reply, Wire, peek, poke};
use addr::MachineAddr;
use machine_io::{
    Completion, DeviceFault, DeviceType, DiskFault, Found, IoError, MachineDisk, Place, Platform as _, Segment,
};
use proptest::prelude::*;

const CAPACITY: u64 = 1000;
const FLUSH: u64 = 1 << 9;
const EVENT_INDEX: u64 = 1 << 29;
const PLACE: Place = Place::Mmio { address: MachineAddr::new(0x1000_1000) };

type Disk = MachineDisk<Process, Wire>;

/// Request types as they appear on the wire.
const IN: u32 = 0;
const OUT: u32 = 1;
const GET_ID: u32 = 8;

fn kind(chain: &Chain) -> u32 {
    u32::from_le_bytes(chain.input()[..4].try_into().expect("a header"))
}

/// Ends a request with a status byte.
fn end(chain: &Chain, status: u8) -> Reply {
    poke(chain.writable.last().expect("a status byte").0, &[status]);
    Reply::Used(chain.room())
}

/// Serves `GET_ID`, and everything else by `rest`.
fn model(features: u64, mut rest: impl FnMut(&Chain) -> Reply + 'static) -> Model {
    let config: Vec<u8> = CAPACITY.to_le_bytes().into_iter().chain([0; 16]).collect();
    Model::new(DeviceType::Block, features, &config, move |chain| {
        if kind(chain) == GET_ID {
            chain.output(b"data\0");
            return end(chain, 0);
        }
        rest(chain)
    })
}

fn disk(model: Model) -> (Disk, Wire) {
    let wire = Wire::new(model);
    (Disk::new(Found::new(wire.clone(), PLACE, None)).expect("a good disk"), wire)
}

fn memory(bytes: u32) -> Segment {
    let (address, _) = Process::allocate(bytes.div_ceil(4096) as usize).expect("memory");
    Segment { address, bytes }
}

fn read(disk: &mut Disk, token: u64, sector: u64, segments: &[Segment]) -> Result<(), IoError> {
    // SAFETY: the segments are pages of the test, which looks at them when the request has ended.
    unsafe { disk.submit_read(token, sector, segments) }
}

#[test]
fn names_and_sizes() {
    let (disk, _) = disk(model(0, |_| Reply::Hold));
    assert_eq!((disk.name(), disk.capacity_sectors(), disk.is_read_only()), ("data", CAPACITY, false));
    assert_eq!(disk.max_segments(), 64);
}

#[test]
fn a_disk_without_a_serial_is_named_by_its_place() {
    let config = CAPACITY.to_le_bytes();
    let (disk, _) = disk(Model::new(DeviceType::Block, 0, &config, |chain| end(chain, 2)));
    assert_eq!(disk.name(), "disk@mmio-10001000");
}

#[test]
fn scattered_reads_and_writes() {
    for features in [0, EVENT_INDEX] {
        let written = Rc::new(Cell::new(0));
        let sum = written.clone();
        let (mut disk, _) = disk(model(features, move |chain| {
            match kind(chain) {
                IN => chain.output(&[0xab; 1024]),
                OUT => sum.set(chain.input()[16..].iter().map(|&byte| u32::from(byte)).sum()),
                other => panic!("request {other}"),
            }
            end(chain, 0)
        }));
        let (one, two) = (memory(512), memory(512));
        assert_eq!(read(&mut disk, 7, CAPACITY - 2, &[one, two]), Ok(()));
        assert_eq!(disk.poll(), Some(Completion { token: 7, outcome: Ok(()) }));
        assert_eq!(peek(two.address.raw(), 512), [0xab; 512]);
        assert_eq!(disk.submit_write(8, 0, &[two, one]), Ok(()));
        assert_eq!(disk.poll(), Some(Completion { token: 8, outcome: Ok(()) }));
        assert_eq!(written.get(), 0xab * 1024);
        assert_eq!(disk.poll(), None);
    }
}

#[test]
fn faults_belong_to_their_request() {
    let status = Rc::new(Cell::new(0));
    let next = status.clone();
    let (mut disk, _) = disk(model(0, move |chain| end(chain, next.get())));
    let page = memory(4096);
    let cases =
        [(1, Err(DiskFault::Io)), (2, Err(DiskFault::Unsupported)), (77, Err(DiskFault::Status(77))), (0, Ok(()))];
    for (value, outcome) in cases {
        status.set(value);
        assert_eq!(read(&mut disk, 1, 0, &[page]), Ok(()));
        assert_eq!(disk.poll(), Some(Completion { token: 1, outcome }));
    }
}

#[test]
fn a_short_read_is_not_believed() {
    let (mut disk, _) = disk(model(0, |chain| {
        end(chain, 0);
        Reply::Used(513)
    }));
    assert_eq!(read(&mut disk, 1, 0, &[memory(4096)]), Ok(()));
    let outcome = Err(DiskFault::Short { want: 4096, got: 512 });
    assert_eq!(disk.poll(), Some(Completion { token: 1, outcome }));
}

#[test]
fn requests_end_in_any_order_and_the_bound_holds() {
    let (mut disk, wire) = disk(model(EVENT_INDEX, |_| Reply::Hold));
    let page = memory(512);
    for token in 0..64 {
        assert_eq!(read(&mut disk, token, token, &[page]), Ok(()));
    }
    assert_eq!(read(&mut disk, 64, 0, &[page]), Err(IoError::QueueFull));
    assert_eq!((disk.poll(), disk.in_flight()), (None, 64));
    let mut held: Vec<Chain> = wire.0.borrow_mut().held.drain(..).collect();
    held.reverse();
    for (chain, token) in held.iter().zip((0..64).rev()) {
        end(chain, 0);
        wire.0.borrow_mut().release(chain, chain.room());
        assert_eq!(disk.poll(), Some(Completion { token, outcome: Ok(()) }));
    }
    assert_eq!(disk.in_flight(), 0);
    assert_eq!(read(&mut disk, 65, 0, &[page]), Ok(()));
}

#[test]
fn bad_requests_are_refused() {
    let (mut disk, _) = disk(model(1 << 5, |_| panic!("nothing may reach the device")));
    let page = memory(4096);
    let capacity = CAPACITY;
    assert_eq!(read(&mut disk, 0, capacity - 7, &[page]), Err(IoError::OutOfRange { sector: capacity - 7, capacity }));
    assert_eq!(read(&mut disk, 0, u64::MAX, &[page]), Err(IoError::OutOfRange { sector: u64::MAX, capacity }));
    assert_eq!(read(&mut disk, 0, 0, &[]), Err(IoError::WrongLength { bytes: 0 }));
    let odd = Segment { bytes: 513, ..page };
    assert_eq!(read(&mut disk, 0, 0, &[odd]), Err(IoError::WrongLength { bytes: 513 }));
    let empty = Segment { bytes: 0, ..page };
    assert_eq!(read(&mut disk, 0, 0, &[page, empty]), Err(IoError::WrongLength { bytes: 0 }));
    assert_eq!(read(&mut disk, 0, 0, &[page; 65]), Err(IoError::TooManySegments { got: 65, limit: 64 }));
    assert_eq!(disk.submit_write(0, 0, &[page]), Err(IoError::ReadOnly));
    assert_eq!((disk.in_flight(), disk.poll()), (0, None));
}

#[test]
fn flushing_a_disk_without_a_cache_ends_at_once() {
    let (mut disk, _) = disk(model(0, |_| panic!("the device knows no flush")));
    assert_eq!(disk.submit_flush(5), Ok(()));
    assert_eq!(disk.poll(), Some(Completion { token: 5, outcome: Ok(()) }));
    let (mut disk, _) = self::disk(model(FLUSH, |chain| end(chain, 1)));
    assert_eq!(disk.submit_flush(6), Ok(()));
    assert_eq!(disk.poll(), Some(Completion { token: 6, outcome: Err(DiskFault::Io) }));
}

#[test]
fn a_device_that_lies_is_given_up() {
    for (lie, fault) in [
        (Reply::Lie as fn(u32) -> Reply, DeviceFault::UnknownDescriptor { id: 9999 }),
        (|_| Reply::Jump(300), DeviceFault::TooManyUsed { ahead: 300 }),
    ] {
        let calls = Cell::new(0);
        let (mut disk, wire) = disk(model(0, move |_| {
            calls.set(calls.get() + 1);
            if calls.get() == 2 { lie(9999) } else { Reply::Hold }
        }));
        let page = memory(512);
        assert_eq!(read(&mut disk, 1, 0, &[page]), Ok(()));
        assert_eq!(read(&mut disk, 2, 0, &[page]), Ok(()));
        let mut lost: Vec<_> = std::iter::from_fn(|| disk.poll()).collect();
        lost.sort_by_key(|completion| completion.token);
        let abandoned = |token| Completion { token, outcome: Err(DiskFault::Abandoned) };
        assert_eq!(lost, [abandoned(1), abandoned(2)]);
        assert!(wire.0.borrow().status.is_empty(), "it was reset");
        assert_eq!(read(&mut disk, 3, 0, &[page]), Err(IoError::DeviceFailed(fault)));
    }
}

#[test]
fn devices_that_cannot_be_set_up() {
    let new = |break_it: fn(&mut Model)| {
        let mut model = model(0, |_| Reply::Hold);
        break_it(&mut model);
        Disk::new(Found::new(Wire::new(model), PLACE, None)).err()
    };
    assert_eq!(new(|model| model.kind = DeviceType::Network), Some(IoError::WrongKind));
    assert_eq!(new(|model| model.refuses_features = true), Some(IoError::FeaturesRefused));
    assert_eq!(new(|model| model.queue_size = 2), Some(IoError::NoQueue { queue: 0, size: 2 }));
    assert!(matches!(new(|model| model.config.truncate(4)), Some(IoError::Config(_))));
}

proptest! {
    /// Whatever a device hands back, the driver answers every request exactly once and never panics.
    #[test]
    fn every_request_ends_once(
        features in prop::sample::select(vec![0, EVENT_INDEX]),
        moves in prop::collection::vec((0..5_u8, any::<u32>(), any::<u8>()), 1..200),
    ) {
        let replies = moves.clone().into_iter();
        let replies = std::cell::RefCell::new(replies);
        let (mut disk, wire) = disk(model(features, move |chain| match replies.borrow_mut().next() {
            Some((0, id, _)) if id.is_multiple_of(16) => Reply::Lie(id % 300),
            Some((1, by, _)) if by.is_multiple_of(16) => Reply::Jump(by as u16),
            Some((2, ..)) => Reply::Hold,
            Some((3, written, status)) => {
                end(chain, status);
                Reply::Used(written)
            }
            _ => end(chain, 0),
        }));
        let page = memory(4096);
        let (mut submitted, mut ended) = (Vec::new(), Vec::new());
        for (token, &(choice, sector, _)) in (0_u64..).zip(&moves) {
            if read(&mut disk, token, u64::from(sector), &[page, page]).is_ok() {
                submitted.push(token);
            }
            if choice == 4 {
                let held = wire.0.borrow_mut().held.pop_front();
                if let Some(chain) = held {
                    wire.0.borrow_mut().release(&chain, sector);
                }
            }
            ended.extend(disk.poll().map(|completion| completion.token));
        }
        // A machine that is shut down: whatever is still held comes back.
        for _ in 0..submitted.len() {
            let held = wire.0.borrow_mut().held.pop_front();
            if let Some(chain) = held {
                wire.0.borrow_mut().release(&chain, 0);
            }
            ended.extend(disk.poll().map(|completion| completion.token));
        }
        ended.extend(std::iter::from_fn(|| disk.poll()).map(|completion| completion.token));
        ended.sort_unstable();
        prop_assert_eq!(ended, submitted);
    }
}
