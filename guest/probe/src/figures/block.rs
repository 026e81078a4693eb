//! Block reads by a driver as small as can be: what is left is the work below the guest.

use super::{report, unable};
use crate::{cpu, layout, tree::Machine, virtio};

/// Bytes of a transfer.
pub const BLOCK_BYTES: u32 = 4096;
/// Different blocks read; the first round brings them into memory, the second is measured.
const BLOCKS: u64 = 128;
/// Instructions of the polling loop, per turn (load, compare and branch).
const POLL: u64 = 4;

/// Reads of 4 KiB that the monitor has in memory.
pub fn read_4k(_: &Machine, _: u64, count: u64) {
    let mut disk = match Disk::open() {
        Ok(disk) => disk,
        Err(why) => return unable("blk_read_4k", why),
    };
    for block in 0..BLOCKS {
        disk.transfer(Direction::Read, block);
    }
    let (mut below, mut turns, mut refused) = (0, 0, 0);
    for round in 0..count {
        let done = disk.transfer(Direction::Read, round % BLOCKS);
        below += done.instructions.saturating_sub(done.polls * POLL);
        turns += done.polls;
        refused += u64::from(done.status != 0);
    }
    if refused != 0 {
        return unable("blk_read_4k", "reads were refused");
    }
    report("blk_read_4k", below / count, "instructions", count);
    report("blk_read_polls", turns / count, "count", count);
}

/// Which way data goes. The numbers are the commands of the protocol.
#[derive(Clone, Copy)]
pub enum Direction {
    /// From the disk.
    Read = 0,
    /// To the disk.
    Write = 1,
}

/// A transfer that has ended.
pub struct Transfer {
    /// 0: well.
    pub status: u64,
    /// Instructions from the notification on until it was done.
    instructions: u64,
    /// Turns of the polling loop among them.
    polls: u64,
}

/// The first disk, one request at a time.
pub struct Disk {
    device: virtio::Device,
    queue: virtio::Queue,
    requests: u64,
}

impl Disk {
    /// Takes the disk into use; or why that is impossible.
    pub fn open() -> Result<Self, &'static str> {
        let device = virtio::Device::find(virtio::BLOCK).ok_or("no disk")?;
        let mut queue = virtio::Queue::new(layout::RINGS);
        if device.negotiate(0).is_none() || !device.enable(0, &mut queue) {
            return Err("the disk refuses the driver");
        }
        device.go();
        Ok(Self { device, queue, requests: 0 })
    }

    /// The data of the last read and the next write: [`BLOCK_BYTES`].
    pub const fn data() -> u64 {
        layout::BUFFERS + 0x1000
    }

    /// Reads or writes a block of [`BLOCK_BYTES`].
    pub fn transfer(&mut self, direction: Direction, block: u64) -> Transfer {
        let (header, status) = (layout::BUFFERS, layout::BUFFERS + 0x100);
        cpu::store(header, direction as u64);
        cpu::store(header + 8, block * u64::from(BLOCK_BYTES) / 512);
        cpu::store8(status, 0xff);
        let writable = matches!(direction, Direction::Read);
        self.queue.push(
            0,
            &[
                virtio::Buffer { address: header, bytes: 16, writable: false },
                virtio::Buffer { address: Self::data(), bytes: BLOCK_BYTES, writable },
                virtio::Buffer { address: status, bytes: 1, writable: true },
            ],
        );
        self.requests += 1;
        let wanted = self.requests & 0xffff;
        let used = self.queue.used() + 2;
        let mut polls = 0;
        let begin = cpu::instret();
        self.device.notify(0);
        while cpu::load16(used) != wanted {
            polls += 1;
        }
        let instructions = cpu::instret() - begin;
        Transfer { status: cpu::load8(status), instructions, polls }
    }
}
