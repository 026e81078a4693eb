//! Block reads by a driver as small as can be: what is left is the work below the guest.

use super::{report, unable};
use crate::{cpu, layout, tree::Machine, virtio};

const BLOCK_BYTES: u32 = 4096;
/// Different blocks read; the first round brings them into memory, the second is measured.
const BLOCKS: u64 = 128;
/// Instructions of the polling loop, per turn (load, compare and branch).
const POLL: u64 = 4;

/// Reads of 4 KiB that the monitor has in memory.
pub fn read_4k(_: &Machine, _: u64, count: u64) {
    let Some(device) = virtio::Device::find(virtio::BLOCK) else { return unable("blk_read_4k", "no disk") };
    let mut queue = virtio::Queue::new(layout::RINGS);
    if device.negotiate(0).is_none() || !device.enable(0, &mut queue) {
        return unable("blk_read_4k", "the disk refuses the driver");
    }
    device.go();
    let mut reads = 0;
    for block in 0..BLOCKS {
        read(device, &mut queue, block, reads);
        reads += 1;
    }
    let (mut below, mut turns) = (0, 0);
    for round in 0..count {
        let (instructions, polls) = read(device, &mut queue, round % BLOCKS, reads);
        reads += 1;
        below += instructions.saturating_sub(polls * POLL);
        turns += polls;
    }
    report("blk_read_4k", below / count, "instructions", count);
    report("blk_read_polls", turns / count, "count", count);
}

/// One read: instructions from the notification on until it is done, and turns of the polling loop among them.
fn read(device: virtio::Device, queue: &mut virtio::Queue, block: u64, done: u64) -> (u64, u64) {
    let header = layout::BUFFERS;
    let (data, status) = (layout::BUFFERS + 0x1000, layout::BUFFERS + 0x100);
    cpu::store(header, 0);
    cpu::store(header + 8, block * u64::from(BLOCK_BYTES) / 512);
    cpu::store8(status, 0xff);
    queue.push(
        0,
        &[
            virtio::Buffer { address: header, bytes: 16, writable: false },
            virtio::Buffer { address: data, bytes: BLOCK_BYTES, writable: true },
            virtio::Buffer { address: status, bytes: 1, writable: true },
        ],
    );
    let wanted = (done + 1) & 0xffff;
    let used = queue.used() + 2;
    let mut polls = 0;
    let begin = cpu::instret();
    device.notify(0);
    while cpu::load16(used) != wanted {
        polls += 1;
    }
    let spent = cpu::instret() - begin;
    if cpu::load8(status) != 0 {
        crate::console::println!("FIGURE blk_read_4k impossible: status {}", cpu::load8(status));
    }
    (spent, polls)
}
