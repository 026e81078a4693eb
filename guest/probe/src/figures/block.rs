//! Block reads by a driver as small as can be: what is left is the work below the guest.

use super::{clock::spent, per_operation, report, unable};
use crate::{cpu, layout, tree::Machine, virtio};

/// Bytes of a transfer.
pub const BLOCK_BYTES: u32 = 4096;
/// Bytes of a sector.
pub const SECTOR_BYTES: u32 = 512;
/// Different blocks read; the first round brings them into memory, the second is measured.
const BLOCKS: u64 = 128;
/// The command that asks for the disk's serial number, and its length.
const GET_ID: u64 = 8;
const ID_BYTES: u32 = 20;
/// Instructions of the polling loop, per turn (load, compare and branch).
const POLL: u64 = 4;

/// Reads of 4 KiB that the monitor has in memory, and requests that do less of the same, to tell the parts apart: a
/// notification without a request, a request without the disk's data, a read of one sector.
pub fn read_4k(_: &Machine, _: u64, count: u64) {
    let mut disk = match Disk::open() {
        Ok(disk) => disk,
        Err(why) => return unable("blk_read_4k", why),
    };
    for block in 0..BLOCKS {
        disk.transfer(Direction::Read, block);
    }
    report("blk_notify", per_operation(count, || disk.device.notify(0)), "instructions", count);
    let id = |disk: &mut Disk, _| disk.request(GET_ID, 0, ID_BYTES);
    let sector = |disk: &mut Disk, block| disk.request(Direction::Read as u64, block, SECTOR_BYTES);
    let page = |disk: &mut Disk, block| disk.transfer(Direction::Read, block);
    measure(&mut disk, "blk_get_id", count, id);
    measure(&mut disk, "blk_read_512", count, sector);
    let polls = measure(&mut disk, "blk_read_4k", count, page);
    report("blk_read_polls", polls, "count", count);
}

/// Reports the instructions of a request; the turns of the polling loop.
fn measure(disk: &mut Disk, name: &str, count: u64, request: impl Fn(&mut Disk, u64) -> Transfer) -> u64 {
    let (mut below, mut turns, mut refused) = (0, 0, 0);
    for round in 0..count {
        let done = request(disk, round % BLOCKS);
        below += done.instructions.saturating_sub(done.polls * POLL);
        turns += done.polls;
        refused += u64::from(done.status != 0);
    }
    if refused == 0 {
        report(name, below / count, "instructions", count);
    } else {
        unable(name, "requests were refused");
    }
    turns / count
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
        self.request(direction as u64, block, BLOCK_BYTES)
    }

    /// Writes the first sector of a block.
    pub fn write_sector(&mut self, block: u64) -> Transfer {
        self.request(Direction::Write as u64, block, SECTOR_BYTES)
    }

    /// Reads a block to where the caller wants it.
    pub fn read_to(&mut self, address: u64, block: u64) -> Transfer {
        self.request_at(address, Direction::Read as u64, block, BLOCK_BYTES)
    }

    /// A command for the first bytes of a block.
    fn request(&mut self, command: u64, block: u64, bytes: u32) -> Transfer {
        self.request_at(Self::data(), command, block, bytes)
    }

    fn request_at(&mut self, address: u64, command: u64, block: u64, bytes: u32) -> Transfer {
        let (header, status) = (layout::BUFFERS, layout::BUFFERS + 0x100);
        cpu::store(header, command);
        cpu::store(header + 8, block * u64::from(BLOCK_BYTES) / 512);
        cpu::store8(status, 0xff);
        let writable = command != Direction::Write as u64;
        self.queue.push(
            0,
            &[
                virtio::Buffer { address: header, bytes: 16, writable: false },
                virtio::Buffer { address, bytes, writable },
                virtio::Buffer { address: status, bytes: 1, writable: true },
            ],
        );
        self.requests += 1;
        let wanted = self.requests & 0xffff;
        let used = self.queue.used() + 2;
        let mut polls = 0;
        let begin = spent();
        self.device.notify(0);
        while cpu::load16(used) != wanted {
            polls += 1;
        }
        let instructions = spent() - begin;
        Transfer { status: cpu::load8(status), instructions, polls }
    }
}
