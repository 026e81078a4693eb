use std::vec::Vec;

use device::{Device, IrqLine};
use proptest::prelude::*;

use super::*;
use crate::testing::{Buffer, Driver, TestEnv};
use crate::transport::Trigger;

const SECTORS: u64 = 64;

struct RamDisk {
    data: Vec<u8>,
    is_read_only: bool,
    can_discard: bool,
    defer: bool,
    pending: Vec<BlockTag>,
    seen: Vec<(BlockKind, u64, u64)>,
    cancelled: u32,
}

impl RamDisk {
    fn new() -> Self {
        Self {
            data: (0..SECTORS * 512).map(|n| (n / 512 + n) as u8).collect(),
            is_read_only: false,
            can_discard: true,
            defer: false,
            pending: Vec::new(),
            seen: Vec::new(),
            cancelled: 0,
        }
    }

    fn device(self) -> VirtioMmio<Block<Self>> {
        VirtioMmio::new(Block::new(self), IrqLine(1), Trigger::Edge)
    }
}

impl BlockBackend for RamDisk {
    fn capacity_sectors(&self) -> u64 {
        SECTORS
    }
    fn is_read_only(&self) -> bool {
        self.is_read_only
    }
    fn can_discard(&self) -> bool {
        self.can_discard
    }
    fn id(&self) -> [u8; 20] {
        *b"ramdisk\0\0\0\0\0\0\0\0\0\0\0\0\0"
    }
    fn submit(&mut self, tag: BlockTag, request: BlockRequest<'_>, memory: &dyn GuestMemory) -> Outcome {
        self.seen.push((request.kind, request.sector, request.sectors));
        if self.defer {
            self.pending.push(tag);
            return Outcome::Pending;
        }
        let mut at = request.sector as usize * 512;
        let bytes = request.sectors as usize * 512;
        if !request.segments.is_empty() {
            assert_eq!(request.segments.iter().map(|segment| segment.len as usize).sum::<usize>(), bytes);
        }
        for segment in request.segments {
            let part = &mut self.data[at..at + segment.len as usize];
            match request.kind {
                BlockKind::Read => memory.write(segment.addr, part).unwrap(),
                BlockKind::Write => memory.read(segment.addr, part).unwrap(),
                _ => unreachable!(),
            }
            at += segment.len as usize;
        }
        if matches!(request.kind, BlockKind::Discard | BlockKind::WriteZeroes { .. }) {
            self.data[at..at + bytes].fill(0);
        }
        Outcome::Done(BlockStatus::Ok)
    }
    fn cancel_all(&mut self) {
        self.cancelled += 1;
        self.pending.clear();
    }
}

fn header(command: u32, sector: u64) -> [u8; 16] {
    (u128::from(command) | u128::from(sector) << 64).to_le_bytes()
}

/// Sends one request whose answer is the status byte in the last buffer; returns (used length, status).
fn request(
    driver: &mut Driver<'_>,
    device: &mut dyn Device,
    command: u32,
    sector: u64,
    data: &[Buffer],
    indirect: bool,
) -> (u32, u8) {
    let mut buffers = std::vec![driver.readable(&header(command, sector))];
    buffers.extend_from_slice(data);
    let status = driver.writable(1);
    driver.env.memory.write(status.addr, &[0xff]).unwrap();
    buffers.push(status);
    driver.add(0, &buffers, indirect);
    driver.notify(device, 0).unwrap();
    let used = driver.used(0);
    assert_eq!(used.len(), 1);
    (used[0].len, driver.bytes(&status)[0])
}

#[test]
fn reads_and_writes_cross_segments_direct_and_indirect() {
    for indirect in [false, true] {
        let env = TestEnv::new(4 << 20);
        let mut device = RamDisk::new().device();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        let (a, b) = (driver.writable(100), driver.writable(924));
        assert_eq!(request(&mut driver, &mut device, 0, 3, &[a, b], indirect), (1025, 0));
        let expected = device.model().backend().data[1536..2560].to_vec();
        assert_eq!([driver.bytes(&a), driver.bytes(&b)].concat(), expected);
        let out = driver.readable(&[7; 512]);
        assert_eq!(request(&mut driver, &mut device, 1, 63, &[out], indirect), (1, 0));
        assert_eq!(device.model().backend().data[63 * 512..], [7; 512]);
        assert_eq!(env.take_pulses(), 2);
    }
}

#[test]
fn any_framing_of_header_data_and_status_works() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk::new().device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    // A write: header and data in one segment; a read: data and status in one segment.
    let mut raw = header(1, 5).to_vec();
    raw.extend([9; 512]);
    let (first, second) = (driver.readable(&raw[..7]), driver.readable(&raw[7..]));
    let status = driver.writable(1);
    driver.add(0, &[first, second, status], false);
    let header = driver.readable(&header(0, 5));
    let data = driver.writable(513);
    driver.add(0, &[header, data], false);
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(driver.used(0).iter().map(|used| used.len).collect::<Vec<_>>(), [1, 513]);
    let read = driver.bytes(&data);
    assert_eq!((&read[..512], read[512]), (&[9; 512][..], 0));
}

#[test]
fn ranges_identity_and_flush() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk::new().device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let id = driver.writable(20);
    assert_eq!(request(&mut driver, &mut device, 8, 0, &[id], true), (21, 0));
    assert_eq!(&driver.bytes(&id)[..8], b"ramdisk\0");
    assert_eq!(request(&mut driver, &mut device, 4, 0, &[], true), (1, 0));
    let range = |sector: u64, sectors: u32, flags: u32| {
        (u128::from(sector) | u128::from(sectors) << 64 | u128::from(flags) << 96).to_le_bytes()
    };
    let mut zero = |command, raw: &[u8]| {
        let range = driver.readable(raw);
        request(&mut driver, &mut device, command, 0, &[range], true).1
    };
    assert_eq!(zero(11, &range(2, 3, 0)), 0);
    assert_eq!(zero(13, &range(10, 1, 1)), 0);
    assert_eq!(zero(11, &range(2, 3, 1)), 2, "unmap means nothing in a discard");
    assert_eq!(zero(13, &range(2, 3, 6)), 2, "unknown flags");
    assert_eq!(zero(11, &range(SECTORS, 1, 0)), 1);
    assert_eq!(zero(11, &range(u64::MAX, 2, 0)), 1);
    assert_eq!(zero(13, &range(0, 0, 0)), 1);
    assert_eq!(zero(13, &[0; 32]), 1, "one range per request");
    assert_eq!(
        device.model().backend().seen,
        [(BlockKind::Flush, 0, 0), (BlockKind::Discard, 2, 3), (BlockKind::WriteZeroes { unmap: true }, 10, 1)]
    );
}

#[test]
fn bad_requests_are_refused_by_status() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk::new().device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let (block, odd) = (driver.writable(512), driver.writable(511));
    for (command, sector, data, status) in [
        (0, SECTORS, &[block][..], 1),
        (0, u64::MAX, &[block], 1),
        (0, 0, &[odd], 1),
        (0, 0, &[], 1),
        (1, 0, &[], 1),
        (99, 0, &[block], 2),
        (8, 0, &[], 1),
    ] {
        assert_eq!(request(&mut driver, &mut device, command, sector, data, true), (1, status), "command {command}");
    }
    assert!(device.model().backend().seen.is_empty(), "the backend saw none of it");
    assert_eq!(device.model().metrics().errors, 7);
}

#[test]
fn a_read_only_disk_refuses_writes() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk { is_read_only: true, can_discard: false, ..RamDisk::new() }.device();
    let mut driver = Driver::new(&env);
    let features = driver.start(&mut device, u64::MAX);
    assert_eq!(features & (spec::F_RO | spec::F_DISCARD), spec::F_RO);
    let data = driver.readable(&[0; 512]);
    assert_eq!(request(&mut driver, &mut device, 1, 0, &[data], false).1, 1);
    let range = driver.readable(&[1; 16]);
    assert_eq!(request(&mut driver, &mut device, 11, 0, &[range], false).1, 2);
}

#[test]
fn requests_without_header_or_status_ask_for_a_reset() {
    for is_short in [true, false] {
        let env = TestEnv::new(4 << 20);
        let mut device = RamDisk::new().device();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        let header = driver.readable(&header(0, 0)[..if is_short { 15 } else { 16 }]);
        let status = driver.writable(1);
        let buffers = [header, status];
        driver.add(0, if is_short { &buffers } else { &buffers[..1] }, false);
        driver.notify(&mut device, 0).unwrap();
        assert!(!device.is_live());
        assert_eq!(driver.get(&mut device, 0x60), 2);
    }
}

#[test]
fn pending_requests_complete_later_in_any_order_and_never_after_a_reset() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk { defer: true, ..RamDisk::new() }.device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let heads: Vec<u16> = (0..3)
        .map(|sector| {
            let (header, data, status) =
                (driver.readable(&header(0, sector)), driver.writable(512), driver.writable(1));
            driver.add(0, &[header, data, status], true)
        })
        .collect();
    driver.notify(&mut device, 0).unwrap();
    assert_eq!((driver.used(0).len(), device.model().pending(), env.take_pulses()), (0, 3, 0));
    let tags = device.model().backend().pending.clone();
    device.complete(tags[2], BlockStatus::Ok, &env).unwrap();
    device.complete(tags[2], BlockStatus::Ok, &env).unwrap();
    device.complete(tags[0], BlockStatus::IoError, &env).unwrap();
    let used = driver.used(0);
    assert_eq!(used.iter().map(|used| (used.head, used.len)).collect::<Vec<_>>(), [(heads[2], 513), (heads[0], 1)]);
    driver.start(&mut device, u64::MAX);
    assert!(device.model().backend().cancelled > 0);
    device.complete(tags[1], BlockStatus::Ok, &env).unwrap();
    assert_eq!((driver.used(0).len(), device.model().pending()), (0, 0));
}

#[test]
fn the_same_head_twice_in_flight_stops_the_guest() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk { defer: true, ..RamDisk::new() }.device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let (header, data, status) = (driver.readable(&header(0, 0)), driver.writable(512), driver.writable(1));
    let head = driver.add(0, &[header, data, status], true);
    driver.offer(0, head);
    let fault = driver.notify(&mut device, 0).unwrap_err();
    assert_eq!((fault.device, fault.value), ("virtio-blk", u64::from(head)));
    driver.notify(&mut device, 0).unwrap();
    assert!(!device.is_live(), "nothing more is served");
}

#[test]
fn a_4_kib_read_makes_eleven_accesses_and_its_data() {
    let env = TestEnv::new(4 << 20);
    let mut device = RamDisk::new().device();
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let (header, data, status) = (driver.readable(&header(0, 0)), driver.writable(4096), driver.writable(1));
    driver.add(0, &[header, data, status], true);
    env.memory.take_accesses();
    driver.notify(&mut device, 0).unwrap();
    assert_eq!(env.memory.take_accesses(), 11 + 1);
}

proptest! {
    #[test]
    fn random_requests_never_panic_and_always_end(
        requests in proptest::collection::vec(
            (0_u32..16, prop_oneof![0_u64..80, any::<u64>()], 0_u32..2100, any::<bool>(), any::<bool>(), 0_usize..20),
            1..20,
        ),
    ) {
        let env = TestEnv::new(8 << 20);
        let mut device = RamDisk::new().device();
        let mut driver = Driver::new(&env);
        driver.start(&mut device, u64::MAX);
        for (command, sector, len, is_write, indirect, header_len) in requests {
            let raw = header(command, sector);
            let mut buffers = Vec::new();
            if header_len > 0 {
                buffers.push(driver.readable(&raw[..header_len.min(16)]));
            }
            if len > 0 {
                buffers.push(if is_write { driver.readable(&std::vec![1; len as usize]) } else { driver.writable(len) });
            }
            if header_len != 1 {
                buffers.push(driver.writable(1));
            }
            if buffers.is_empty() {
                continue;
            }
            driver.add(0, &buffers, indirect);
            driver.notify(&mut device, 0).unwrap();
            if device.is_live() {
                prop_assert_eq!(driver.used(0).len(), 1);
            } else {
                driver.start(&mut device, u64::MAX);
            }
        }
    }
}
