//! Requests, and how far they have come.

use addr::{GuestPhysAddr, MachineAddr};
use slotmap::{Key, KeyData, new_key_type};

use crate::contract::{BLOCK, BadGuestMemory, GuestCopy, SECTOR, SECTORS_PER_BLOCK, Segments};
use crate::overlay::{SectorMask, mask};

/// What a guest wants of its virtual disk.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The command.
    pub kind: Kind,
    /// First sector, of the virtual disk.
    pub sector: u64,
    /// Number of sectors; 0 for a flush only.
    pub sectors: u64,
    /// Where the data goes or comes from: `sectors * SECTOR` bytes. Unused by commands without data.
    pub segments: &'a dyn Segments,
}

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Disk to guest memory.
    Read,
    /// Guest memory to disk.
    Write,
    /// Finished writes become durable.
    Flush,
    /// The content is no longer needed: it is given up where that is cheap.
    Discard,
    /// The sectors shall read as zero.
    WriteZeroes,
}

impl Kind {
    /// Whether it moves data from or to guest memory.
    pub(crate) const fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Well.
    Ok,
    /// The request is nonsense, the disk is read-only, the guest's memory is not there, or the machine's disk failed.
    IoError,
    /// No page for a modified block: to the guest an I/O error, to its owner an event.
    NoSpace,
}

/// What became of a request for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// It is finished.
    Done(Status),
    /// It goes on when [`crate::SharedDisk::next_ready`] names it.
    Pending,
}

/// A pending request that can go on: call [`crate::SharedDisk::resume`] with its guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose it is.
    pub mount: MountId,
    /// Its tag.
    pub tag: u64,
    pub(crate) job: JobId,
}

/// Names a virtual disk on its [`crate::SharedDisk`]. Not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(pub(crate) MountKey);

impl MountId {
    /// As a number, for tables.
    #[must_use]
    pub fn raw(self) -> u64 {
        self.0.data().as_ffi()
    }

    /// The mount of that number, if there is one.
    #[must_use]
    pub fn from_raw(raw: u64) -> Self {
        Self(KeyData::from_ffi(raw).into())
    }
}

new_key_type! {
    /// Names a mount.
    pub(crate) struct MountKey;
    /// Names a pending request.
    pub(crate) struct JobId;
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Job {
    pub mount: MountId,
    pub tag: u64,
    pub kind: Kind,
    /// Next sector, of the machine's disk.
    pub sector: u64,
    /// Sectors to go.
    pub left: u64,
    pub cursor: Cursor,
    /// Operations of the machine's disk that it started and that have not ended.
    pub outstanding: u32,
    /// It cannot succeed any more.
    pub failure: Option<Status>,
    /// A read with others in front of it failed: read what is needed alone, to know whose the error is.
    pub is_narrow: bool,
    /// Block that it keeps in the cache.
    pub pinned: Option<u64>,
    /// Its place among the pending requests, once it has one.
    pub id: Option<JobId>,
    /// Its flush was submitted.
    pub is_flushing: bool,
    /// Times that the cache has made room for a guest's page, without getting any further.
    pub rooms_made: u8,
}

/// What part of a job concerns one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    pub block: u64,
    /// First sector inside the block.
    pub offset: u64,
    /// Sectors.
    pub count: u64,
}

impl Portion {
    /// The part of `left` sectors from `sector` on that lies in the first block.
    pub fn first(sector: u64, left: u64) -> Self {
        let offset = sector % SECTORS_PER_BLOCK;
        Self { block: sector / SECTORS_PER_BLOCK, offset, count: left.min(SECTORS_PER_BLOCK - offset) }
    }

    pub const fn mask(self) -> SectorMask {
        mask(self.offset, self.count)
    }

    pub const fn end(self) -> u64 {
        self.offset + self.count
    }
}

impl Job {
    pub fn advance(&mut self, sectors: u64) {
        self.sector += sectors;
        self.left -= sectors;
        self.rooms_made = 0;
    }
}

/// A position in a scatter-gather list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    segment: usize,
    offset: u32,
}

impl Cursor {
    /// Where the next block of data goes, if that is one page.
    #[inline]
    pub fn whole_page(&mut self, segments: &dyn Segments) -> Option<GuestPhysAddr> {
        let (start, size) = loop {
            let (start, size) = segments.segment(self.segment)?;
            if self.offset < size {
                break (start, size);
            }
            self.segment += 1;
            self.offset = 0;
        };
        let addr = start.checked_add(u64::from(self.offset))?;
        (addr.page_offset() == 0 && u64::from(size - self.offset) >= BLOCK).then_some(addr)
    }

    /// The page of [`Cursor::whole_page`] is done.
    #[inline]
    pub const fn skip_page(&mut self) {
        // It lies in the segment, so this cannot wrap.
        self.offset += BLOCK as u32;
    }

    /// Copies `len` bytes from `src`, inside one page, to the guest.
    #[inline]
    pub fn fill(
        &mut self,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        src: MachineAddr,
        len: u64,
    ) -> Result<(), BadGuestMemory> {
        self.walk(segments, len, |done, addr, part| {
            let src = src.checked_add(done).ok_or(BadGuestMemory)?;
            guest.copy_from_machine(addr, src, part)
        })
    }

    /// Copies `len` bytes from the guest to `dst`, inside one page.
    #[inline]
    pub fn drain(
        &mut self,
        segments: &dyn Segments,
        guest: &dyn GuestCopy,
        dst: MachineAddr,
        len: u64,
    ) -> Result<(), BadGuestMemory> {
        self.walk(segments, len, |done, addr, part| {
            let dst = dst.checked_add(done).ok_or(BadGuestMemory)?;
            guest.copy_to_machine(dst, addr, part)
        })
    }

    /// Zeroes `len` bytes, at most a block, of the guest.
    pub fn zero(&mut self, segments: &dyn Segments, guest: &dyn GuestCopy, len: u64) -> Result<(), BadGuestMemory> {
        static ZEROES: [u8; (SECTORS_PER_BLOCK * SECTOR) as usize] = [0; (SECTORS_PER_BLOCK * SECTOR) as usize];
        self.walk(segments, len, |_, addr, part| guest.write(addr, ZEROES.get(..part as usize).ok_or(BadGuestMemory)?))
    }

    /// Gives the next `len` bytes of the list to `each`, piece by piece. The position stays as it was if that fails.
    #[inline]
    fn walk(
        &mut self,
        segments: &dyn Segments,
        len: u64,
        mut each: impl FnMut(u64, GuestPhysAddr, u64) -> Result<(), BadGuestMemory>,
    ) -> Result<(), BadGuestMemory> {
        let (mut at, mut done) = (*self, 0);
        while done < len {
            // A list that is too short is the guest's mistake.
            let (start, size) = segments.segment(at.segment).ok_or(BadGuestMemory)?;
            let part = u64::from(size.saturating_sub(at.offset)).min(len - done);
            if part > 0 {
                let addr = start.checked_add(u64::from(at.offset)).ok_or(BadGuestMemory)?;
                each(done, addr, part)?;
                done += part;
                // At most `size`.
                at.offset += part as u32;
            }
            if at.offset >= size {
                at.segment += 1;
                at.offset = 0;
            }
        }
        *self = at;
        Ok(())
    }
}
