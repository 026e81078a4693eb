use std::vec::Vec;

use device::GuestMemory;

use super::*;
use crate::testing::{RAM_BASE, TestMemory};

const DESC: u64 = RAM_BASE;
const AVAIL: u64 = RAM_BASE + 0x1000;
const USED: u64 = RAM_BASE + 0x2000;
const DATA: u64 = RAM_BASE + 0x4000;
const TABLE: u64 = RAM_BASE + 0x3000;
const RAM: usize = 0x1_0000;
const SIZE: u16 = 8;

const NEXT: u16 = spec::DESC_F_NEXT;
const WRITE: u16 = spec::DESC_F_WRITE;
const INDIRECT: u16 = spec::DESC_F_INDIRECT;

struct Rig {
    memory: TestMemory,
    queue: Queue,
    chain: Chain,
    avail_idx: u16,
}

impl Rig {
    fn new() -> Self {
        let memory = TestMemory::new(RAM_BASE, RAM);
        let mut queue = Queue::new(256);
        queue.set_size(u32::from(SIZE));
        for (ring, addr) in [(Ring::Desc, DESC), (Ring::Avail, AVAIL), (Ring::Used, USED)] {
            queue.set_ring(ring, false, addr as u32);
            queue.set_ring(ring, true, (addr >> 32) as u32);
        }
        queue.start(&memory, true, true).unwrap();
        Self { memory, queue, chain: Chain::new(), avail_idx: 0 }
    }

    fn desc_in(&self, table: u64, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let value = u128::from(addr) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
        let at = GuestPhysAddr::new(table + 16 * u64::from(index));
        self.memory.write(at, &value.to_le_bytes()).unwrap();
    }

    fn desc(&self, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        self.desc_in(DESC, index, addr, len, flags, next);
    }

    fn offer(&mut self, head: u16) {
        let slot = u64::from(self.avail_idx % SIZE);
        self.memory.write_u16(GuestPhysAddr::new(AVAIL + 4 + 2 * slot), head).unwrap();
        self.avail_idx = self.avail_idx.wrapping_add(1);
        self.set_avail(self.avail_idx);
    }

    fn set_avail(&self, idx: u16) {
        self.memory.write_u16(GuestPhysAddr::new(AVAIL + 2), idx).unwrap();
    }

    fn take(&mut self) -> Result<bool, RingError> {
        self.queue.next_or_arm(&self.memory, &mut self.chain)
    }

    fn refusal(&mut self, head: u16) -> RingError {
        self.offer(head);
        self.take().unwrap_err()
    }
}

#[test]
fn a_chain_is_split_into_its_parts_and_consumed_across_segments() {
    let mut rig = Rig::new();
    rig.desc(5, DATA, 3, NEXT, 2);
    rig.desc(2, DATA + 0x100, 5, NEXT, 7);
    rig.desc(7, DATA + 0x200, 2, NEXT | WRITE, 0);
    rig.desc(0, DATA + 0x300, 4, WRITE, 0);
    rig.memory.write(GuestPhysAddr::new(DATA), b"abc").unwrap();
    rig.memory.write(GuestPhysAddr::new(DATA + 0x100), b"defgh").unwrap();
    rig.offer(5);
    assert_eq!(rig.take(), Ok(true));
    assert_eq!((rig.chain.head(), rig.chain.readable_len(), rig.chain.writable_len()), (5, 8, 6));
    let mut buf = [0; 4];
    rig.chain.read_exact(&rig.memory, &mut buf).unwrap();
    assert_eq!(&buf, b"abcd");
    assert_eq!(rig.chain.readable(), [GuestSegment { addr: GuestPhysAddr::new(DATA + 0x101), len: 4 }]);
    rig.chain.skip_readable(2);
    assert_eq!(rig.chain.read_exact(&rig.memory, &mut buf), Err(ReadError::Short));
    assert_eq!(rig.chain.read_some(&rig.memory, &mut buf), Ok(2));
    assert_eq!(&buf[..2], b"gh");
    assert_eq!(rig.chain.writable_addr(3), Some(GuestPhysAddr::new(DATA + 0x301)));
    assert_eq!(rig.chain.take_last_byte(), Some(GuestPhysAddr::new(DATA + 0x303)));
    assert_eq!(rig.chain.write_some(&rig.memory, b"123456"), Ok(5));
    assert_eq!(rig.chain.written(), 5);
    assert_eq!(rig.memory.bytes(GuestPhysAddr::new(DATA + 0x300), 4), b"345\0");
    assert_eq!(rig.take(), Ok(false));
}

#[test]
fn an_indirect_table_may_follow_direct_descriptors_and_be_longer_than_the_queue() {
    let mut rig = Rig::new();
    rig.desc(0, DATA, 16, NEXT, 1);
    rig.desc(1, TABLE, 20 * 16, INDIRECT | WRITE, 0);
    for index in 0..20 {
        let flags = WRITE | if index < 19 { NEXT } else { 0 };
        rig.desc_in(TABLE, index, DATA + 0x100 * u64::from(index), 1, flags, index + 1);
    }
    rig.offer(0);
    assert_eq!(rig.take(), Ok(true));
    assert_eq!((rig.chain.readable().len(), rig.chain.writable().len()), (1, 20));
}

#[test]
fn backward_links_in_an_indirect_table_are_followed() {
    let mut rig = Rig::new();
    rig.desc(0, TABLE, 20 * 16, INDIRECT, 0);
    rig.desc_in(TABLE, 0, DATA, 1, NEXT, 19);
    rig.desc_in(TABLE, 19, DATA + 1, 2, NEXT, 3);
    rig.desc_in(TABLE, 3, DATA + 2, 4, 0, 0);
    rig.offer(0);
    assert_eq!(rig.take(), Ok(true));
    let lens: Vec<u32> = rig.chain.readable().iter().map(|segment| segment.len).collect();
    assert_eq!(lens, [1, 2, 4]);
}

#[test]
fn bad_heads_links_and_loops_are_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.refusal(SIZE), RingError::HeadOutOfRange(SIZE));
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, NEXT, SIZE);
    assert_eq!(rig.refusal(0), RingError::NextOutOfRange(SIZE));
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, NEXT, 1);
    rig.desc(1, DATA, 1, NEXT, 0);
    assert_eq!(rig.refusal(0), RingError::ChainTooLong(8));
    let mut rig = Rig::new();
    rig.desc(0, TABLE, 64, INDIRECT, 0);
    for index in 0..4 {
        rig.desc_in(TABLE, index, DATA, 1, NEXT, (index + 1) % 4);
    }
    assert_eq!(rig.refusal(0), RingError::ChainTooLong(4));
}

#[test]
fn bad_indirect_tables_are_refused() {
    let refusal = |addr, len, flags| {
        let mut rig = Rig::new();
        rig.desc(3, addr, len, flags, 0);
        rig.desc_in(TABLE, 0, TABLE, 16, INDIRECT, 0);
        rig.refusal(3)
    };
    assert_eq!(refusal(TABLE, 16, INDIRECT), RingError::IndirectNested(0));
    assert_eq!(refusal(TABLE, 16, INDIRECT | NEXT), RingError::IndirectNested(3));
    for len in [0, 8, 24, 257 * 16, u32::MAX] {
        assert_eq!(refusal(TABLE, len, INDIRECT), RingError::IndirectSize(len));
    }
    for addr in [0, RAM_BASE + RAM as u64 - 8, u64::MAX - 7] {
        assert_eq!(refusal(addr, 16, INDIRECT), RingError::IndirectOutsideRam(addr));
    }
    let mut rig = Rig::new();
    rig.queue.has_indirect = false;
    rig.desc(3, TABLE, 16, INDIRECT, 0);
    assert_eq!(rig.refusal(3), RingError::IndirectNotNegotiated(3));
}

#[test]
fn bad_buffers_are_refused() {
    let mut rig = Rig::new();
    rig.desc(0, DATA, 0, 0, 0);
    assert_eq!(rig.refusal(0), RingError::EmptyBuffer(0));
    for (addr, len) in [(0, 1), (RAM_BASE + RAM as u64 - 1, 2), (u64::MAX, 2), (DATA, u32::MAX)] {
        let mut rig = Rig::new();
        rig.desc(0, addr, len, 0, 0);
        assert_eq!(rig.refusal(0), RingError::BufferOutsideRam(addr));
    }
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, NEXT | WRITE, 1);
    rig.desc(1, DATA, 1, 0, 0);
    assert_eq!(rig.refusal(0), RingError::ReadableAfterWritable(1));
}

#[test]
fn a_chain_of_4_gib_is_refused() {
    let mut chain = Chain::new();
    let segment = GuestSegment { addr: GuestPhysAddr::new(0), len: 1 << 31 };
    chain.append(segment, false, 0).unwrap();
    assert_eq!(chain.finish_load(), Ok(()));
    chain.append(segment, true, 1).unwrap();
    assert_eq!(chain.finish_load(), Err(RingError::TotalTooLong(1 << 32)));
}

#[test]
fn an_available_index_beyond_the_queue_or_backwards_is_refused() {
    let mut rig = Rig::new();
    rig.set_avail(SIZE + 1);
    assert_eq!(rig.take(), Err(RingError::AvailJump(SIZE + 1)));
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, 0, 0);
    rig.offer(0);
    assert_eq!(rig.take(), Ok(true));
    rig.set_avail(0);
    assert_eq!(rig.take(), Err(RingError::AvailJump(0)));
    // A chain in flight still counts: 8 more would be 9.
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, 0, 0);
    rig.offer(0);
    assert_eq!(rig.take(), Ok(true));
    rig.set_avail(9);
    assert_eq!(rig.take(), Err(RingError::AvailJump(9)));
}

#[test]
fn indices_wrap() {
    let mut rig = Rig::new();
    rig.desc(0, DATA, 1, WRITE, 0);
    for round in 0..0x1_0010_u32 {
        rig.offer(0);
        assert_eq!(rig.take(), Ok(true));
        rig.queue.push(&rig.memory, 0, 1).unwrap();
        rig.queue.publish(&rig.memory).unwrap();
        assert_eq!(rig.memory.read_u16(GuestPhysAddr::new(USED + 2)), Ok((round + 1) as u16));
        assert_eq!(rig.take(), Ok(false));
    }
}

#[test]
fn a_rewound_chain_is_taken_again() {
    let mut rig = Rig::new();
    for head in 0..2 {
        rig.desc(head, DATA, 1, WRITE, 0);
        rig.offer(head);
    }
    let checkpoint = rig.queue.checkpoint();
    assert_eq!(rig.take(), Ok(true));
    rig.queue.push(&rig.memory, 0, 1).unwrap();
    assert_eq!(rig.take(), Ok(true));
    rig.queue.rewind(checkpoint);
    assert_eq!(rig.queue.publish(&rig.memory), Ok(false), "nothing to show");
    assert_eq!(rig.take(), Ok(true));
    assert_eq!(rig.chain.head(), 0);
}

#[test]
fn the_hot_path_makes_few_memory_accesses() {
    let mut rig = Rig::new();
    rig.desc(0, TABLE, 48, INDIRECT, 0);
    rig.desc_in(TABLE, 0, DATA, 16, NEXT, 1);
    rig.desc_in(TABLE, 1, DATA + 0x1000, 4096, NEXT | WRITE, 2);
    rig.desc_in(TABLE, 2, DATA + 0x100, 1, WRITE, 0);
    assert_eq!(rig.take(), Ok(false));
    rig.offer(0);
    rig.memory.take_accesses();
    assert_eq!(rig.take(), Ok(true));
    assert_eq!(rig.memory.take_accesses(), 4, "available index, entry, descriptor, indirect table");
    rig.queue.push(&rig.memory, 0, 4097).unwrap();
    assert_eq!(rig.take(), Ok(false));
    assert!(rig.queue.publish(&rig.memory).unwrap());
    assert_eq!(rig.memory.take_accesses(), 5, "used entry, avail_event, available index, used index, used_event");
}
