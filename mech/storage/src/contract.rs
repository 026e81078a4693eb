//! What the storage needs of the world, and what it calls things.

use alloc::vec::Vec;

use addr::{BASE_PAGE, GuestPhysAddr, MachineAddr, Mfn, NodeId};
use scarce::NoMemory;

/// Bytes of a sector, the unit of requests.
pub const SECTOR: u64 = 512;
/// Bytes of a block, the unit of caching: one page.
pub const BLOCK: u64 = BASE_PAGE;
/// Sectors in a block.
pub const SECTORS_PER_BLOCK: u64 = BLOCK / SECTOR;
/// What one call should do at most: on the slowest machine that we model, mapping or copying so many blocks takes half a millisecond.
pub const BLOCKS_PER_CALL: u64 = 64;
/// Most blocks of one operation of the machine's disk: 128 KiB.
pub const MAX_OP_BLOCKS: usize = 32;

/// Where machine pages come from, and access to their contents.
pub trait PageStore {
    /// A page, preferably of `node`. Its contents are arbitrary.
    fn alloc(&self, node: NodeId) -> Option<Mfn>;

    /// Gives a page of [`PageStore::alloc`] back. If guests map it, they keep it, and it is free when the last of them lets
    /// go of it.
    fn free(&self, page: Mfn);

    /// Whether a guest maps the page, or a TLB may still know that one did. Such a page is not written any more.
    fn is_mapped(&self, page: Mfn) -> bool;

    /// Whether hardly any memory is left, not even for what finds pages. Then modified blocks go only where others are
    /// already.
    fn is_short(&self) -> bool {
        false
    }

    /// There is no page for a modified block: others give some up. `false` if they have nothing. Bounded, but it may take long.
    fn relieve(&self) -> bool {
        false
    }

    /// The node that a page of [`PageStore::alloc`] belongs to: not always the preferred one.
    fn node_of(&self, page: Mfn) -> NodeId;

    /// Zeroes `len` bytes inside one page.
    fn zero(&self, at: MachineAddr, len: u64);

    /// Copies `len` bytes from inside one page to inside another.
    fn copy(&self, dst: MachineAddr, src: MachineAddr, len: u64);
}

/// The memory of the guest whose request is served.
pub trait GuestCopy {
    /// Copies from a machine page into guest memory.
    ///
    /// # Errors
    /// [`BadGuestMemory`] when the guest has no such memory.
    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), BadGuestMemory>;

    /// Copies guest memory into a machine page.
    ///
    /// # Errors
    /// [`BadGuestMemory`] when the guest has no such memory.
    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), BadGuestMemory>;

    /// Copies `data` into guest memory.
    ///
    /// # Errors
    /// [`BadGuestMemory`] when the guest has no such memory.
    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory>;

    /// Lets the machine page stand for the guest page at `dst`, until the guest writes to it. `false`: it cannot, and
    /// nothing has changed.
    fn map(&self, dst: GuestPhysAddr, page: Mfn) -> bool;
}

/// A request names memory that the guest does not have, or that it has never used while the machine has no page left for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadGuestMemory;

/// The driver of one machine disk. Operations end by [`crate::SharedDisk::on_io_complete`], in any order, never from
/// inside these calls.
pub trait DiskIo {
    /// Reads from `sector` on into `pieces`.
    ///
    /// # Errors
    /// [`IoRefused`]; nothing was started then.
    fn submit_read(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused>;

    /// Writes `pieces` from `sector` on. One page may be named several times.
    ///
    /// # Errors
    /// [`IoRefused`]; nothing was started then.
    fn submit_write(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused>;

    /// Makes all ended writes durable.
    ///
    /// # Errors
    /// [`IoRefused`]; nothing was started then.
    fn submit_flush(&mut self, token: IoToken) -> Result<(), IoRefused>;
}

/// A contiguous piece of machine memory, inside one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub addr: MachineAddr,
    /// Length: a multiple of [`SECTOR`], not 0.
    pub bytes: u32,
}

/// Names an operation of a machine disk. Unique for long: a late or doubled completion finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoToken(pub u64);

/// An operation of a machine disk that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedIo {
    /// The first sector concerned.
    pub sector: u64,
    /// Whether it was to be written. A flush is nobody's sector, and counts as a write of the first.
    pub is_write: bool,
}

/// Why the driver did not start an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoRefused {
    /// Its queue is full; there will be room when an operation ends.
    Busy,
    /// The disk is broken.
    Failed,
}

/// Everything that a call may use besides guest memory.
pub struct Context<'a> {
    /// Machine pages.
    pub pages: &'a dyn PageStore,
    /// The machine disk's driver.
    pub io: &'a mut dyn DiskIo,
    /// Where fresh pages should be: the node of the requesting vCPU.
    pub node: NodeId,
    /// Blocks that may still be mapped or copied, see [`BLOCKS_PER_CALL`]. A call counts them down, and with none left its request
    /// comes back for more. The last step may take some more than there are, at most an operation's.
    pub budget: u64,
}

/// A guest's scatter-gather list.
pub trait Segments {
    /// Address and length of segment `index`; `None` past the end.
    fn segment(&self, index: usize) -> Option<(GuestPhysAddr, u32)>;
}

impl dyn Segments + '_ {
    /// A copy, for a request that outlives its driver's list.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[track_caller]
    pub fn to_list(&self) -> Result<Vec<(GuestPhysAddr, u32)>, NoMemory> {
        let all = || (0..).map_while(|index| self.segment(index));
        let mut list = scarce::room(all().count())?;
        list.extend(all());
        Ok(list)
    }
}

impl Segments for [(GuestPhysAddr, u32)] {
    fn segment(&self, index: usize) -> Option<(GuestPhysAddr, u32)> {
        self.get(index).copied()
    }
}

impl<const N: usize> Segments for [(GuestPhysAddr, u32); N] {
    fn segment(&self, index: usize) -> Option<(GuestPhysAddr, u32)> {
        self.get(index).copied()
    }
}

impl Segments for Vec<(GuestPhysAddr, u32)> {
    fn segment(&self, index: usize) -> Option<(GuestPhysAddr, u32)> {
        self.get(index).copied()
    }
}
