//! Fake pages, guests and disks. Fresh pages hold poison, and reads fill them only when they end: whoever looks too
//! early, or at what nobody wrote, sees it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, btree_map::Entry};
use std::vec;
use std::vec::Vec;

use addr::{GuestPhysAddr, MachineAddr, Mfn, NodeId};

use crate::*;

pub const POISON: u8 = 0xee;
pub const RAM: u64 = 0x8000_0000;
/// Pages belong to so many nodes in turn, whatever is preferred.
pub const NODES: u8 = 3;

/// Machine pages.
pub struct Pages {
    pages: RefCell<BTreeMap<u64, Vec<u8>>>,
    /// Guest pages that map a page, and whether the storage still has it.
    mapped: RefCell<BTreeMap<u64, (usize, bool)>>,
    next: RefCell<u64>,
    pub limit: RefCell<usize>,
    /// Pages asked for so far.
    pub asked: Cell<usize>,
    /// Which of them are refused.
    pub refused: RefCell<core::ops::Range<usize>>,
}

impl Pages {
    pub fn new(limit: usize) -> Self {
        Self {
            pages: RefCell::default(),
            mapped: RefCell::default(),
            next: RefCell::new(1),
            limit: RefCell::new(limit),
            asked: Cell::new(0),
            refused: RefCell::default(),
        }
    }

    pub fn live(&self) -> usize {
        self.pages.borrow().len()
    }

    fn with(&self, at: MachineAddr, len: u64, f: impl FnOnce(&mut [u8])) {
        let start = at.page_offset() as usize;
        assert!(start as u64 + len <= BLOCK, "inside one page");
        let mut pages = self.pages.borrow_mut();
        let page = pages.get_mut(&at.mfn().raw()).expect("page is allocated");
        f(&mut page[start..start + len as usize]);
    }

    fn map(&self, page: Mfn) {
        assert!(self.pages.borrow().contains_key(&page.raw()), "page is allocated");
        self.mapped.borrow_mut().entry(page.raw()).or_insert((0, true)).0 += 1;
    }

    fn unmap(&self, page: Mfn) {
        let mut mapped = self.mapped.borrow_mut();
        let (count, is_held) = mapped.get_mut(&page.raw()).expect("it is mapped");
        *count -= 1;
        if *count == 0 {
            if !*is_held {
                self.pages.borrow_mut().remove(&page.raw());
            }
            mapped.remove(&page.raw());
        }
    }

    fn read(&self, at: MachineAddr, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.with(at, len, |page| bytes.extend_from_slice(page));
        bytes
    }

    fn write(&self, at: MachineAddr, bytes: &[u8]) {
        assert!(!self.is_mapped(at.mfn()), "nobody writes to what guests map");
        self.with(at, bytes.len() as u64, |page| page.copy_from_slice(bytes));
    }
}

impl PageStore for Pages {
    fn alloc(&self, _node: NodeId) -> Option<Mfn> {
        let number = self.asked.replace(self.asked.get() + 1);
        if self.live() >= *self.limit.borrow() || self.refused.borrow().contains(&number) {
            return None;
        }
        let number = self.next.replace_with(|next| *next + 1);
        self.pages.borrow_mut().insert(number, vec![POISON; BLOCK as usize]);
        Some(Mfn::new(number))
    }

    fn free(&self, page: Mfn) {
        if let Some((_, is_held)) = self.mapped.borrow_mut().get_mut(&page.raw()) {
            assert!(core::mem::take(is_held), "freed once");
            return;
        }
        assert!(self.pages.borrow_mut().remove(&page.raw()).is_some(), "freed once");
    }

    fn is_mapped(&self, page: Mfn) -> bool {
        self.mapped.borrow().contains_key(&page.raw())
    }

    fn node_of(&self, page: Mfn) -> NodeId {
        NodeId((page.raw() % u64::from(NODES)) as u8)
    }

    fn zero(&self, at: MachineAddr, len: u64) {
        assert!(!self.is_mapped(at.mfn()), "nobody writes to what guests map");
        self.with(at, len, |page| page.fill(0));
    }

    fn copy(&self, dst: MachineAddr, src: MachineAddr, len: u64) {
        let bytes = self.read(src, len);
        self.write(dst, &bytes);
    }
}

/// A guest's memory.
pub struct Guest<'a> {
    pages: &'a Pages,
    ram: RefCell<Vec<u8>>,
    /// Pages that stand for its own, by the offset of these.
    mapped: RefCell<BTreeMap<u64, Mfn>>,
    /// Nothing can be mapped.
    pub refuses: bool,
    /// The pages that it takes when something is copied to them first, if it does not have them all from the beginning.
    pub taken: Option<RefCell<BTreeMap<u64, Mfn>>>,
}

impl<'a> Guest<'a> {
    pub fn new(pages: &'a Pages, bytes: usize) -> Self {
        Self { pages, ram: RefCell::new(vec![0; bytes]), mapped: RefCell::default(), refuses: false, taken: None }
    }

    fn range(&self, addr: GuestPhysAddr, len: u64) -> Result<core::ops::Range<usize>, BadGuestMemory> {
        let start = addr.raw().checked_sub(RAM).ok_or(BadGuestMemory)?;
        let end = start.checked_add(len).ok_or(BadGuestMemory)?;
        if end > self.ram.borrow().len() as u64 { Err(BadGuestMemory) } else { Ok(start as usize..end as usize) }
    }
}

impl Guest<'_> {
    /// Breaks the sharing of all pages that `range` touches.
    fn take(&self, range: &core::ops::Range<usize>) {
        let first = range.start as u64 / BLOCK * BLOCK;
        for at in (first..range.end as u64).step_by(BLOCK as usize) {
            let Some(page) = self.mapped.borrow_mut().remove(&at) else { continue };
            let bytes = self.pages.read(page.addr(), BLOCK);
            self.ram.borrow_mut()[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            self.pages.unmap(page);
        }
    }

    /// Takes the pages of the range that it does not have yet.
    fn populate(&self, range: &core::ops::Range<usize>) -> Result<(), BadGuestMemory> {
        let Some(taken) = &self.taken else { return Ok(()) };
        let mut taken = taken.borrow_mut();
        for at in (range.start as u64 / BLOCK..).take_while(|at| at * BLOCK < range.end as u64) {
            if let Entry::Vacant(place) = taken.entry(at) {
                place.insert(self.pages.alloc(NodeId(0)).ok_or(BadGuestMemory)?);
            }
        }
        Ok(())
    }

    /// Gives back what it has taken.
    pub fn give_back(&mut self) {
        let taken = self.taken.take().unwrap_or_default().into_inner();
        taken.into_values().for_each(|page| self.pages.free(page));
    }

    pub fn put(&self, range: core::ops::Range<usize>, bytes: &[u8]) {
        self.take(&range);
        self.ram.borrow_mut()[range].copy_from_slice(bytes);
    }

    pub fn see(&self, range: core::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = self.ram.borrow()[range.clone()].to_vec();
        let first = range.start as u64 / BLOCK * BLOCK;
        for (at, page) in self.mapped.borrow().range(first..range.end as u64) {
            let start = (*at).max(range.start as u64);
            let end = (at + BLOCK).min(range.end as u64);
            let part = self.pages.read(MachineAddr::new(page.addr().raw() + start - at), end - start);
            bytes[start as usize - range.start..end as usize - range.start].copy_from_slice(&part);
        }
        bytes
    }

    /// Pages that are not its own.
    pub fn mapped(&self) -> usize {
        self.mapped.borrow().len()
    }
}

impl GuestCopy for Guest<'_> {
    fn copy_from_machine(&self, dst: GuestPhysAddr, src: MachineAddr, len: u64) -> Result<(), BadGuestMemory> {
        let range = self.range(dst, len)?;
        self.populate(&range)?;
        self.put(range, &self.pages.read(src, len));
        Ok(())
    }

    fn copy_to_machine(&self, dst: MachineAddr, src: GuestPhysAddr, len: u64) -> Result<(), BadGuestMemory> {
        let range = self.range(src, len)?;
        self.populate(&range)?;
        self.pages.write(dst, &self.see(range));
        Ok(())
    }

    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        let range = self.range(dst, data.len() as u64)?;
        self.populate(&range)?;
        self.put(range, data);
        Ok(())
    }

    fn map(&self, dst: GuestPhysAddr, page: Mfn) -> bool {
        assert_eq!(dst.page_offset(), 0, "a whole page");
        let Ok(range) = self.range(dst, BLOCK) else { return false };
        if self.refuses {
            return false;
        }
        self.pages.map(page);
        let old = self.mapped.borrow_mut().insert(range.start as u64, page);
        old.into_iter().for_each(|page| self.pages.unmap(page));
        true
    }
}

/// The machine's disk.
pub struct FakeDisk {
    pub data: Vec<u8>,
    pub started: Vec<Started>,
    /// Operations that it takes at a time.
    pub slots: usize,
    pub is_broken: bool,
    /// Sectors that cannot be read or written.
    pub bad: Vec<u64>,
    pub reads: usize,
}

/// An operation that has not ended.
pub struct Started {
    pub token: IoToken,
    pub sector: u64,
    pub pieces: Vec<Piece>,
    pub kind: Kind,
}

impl Started {
    pub fn sectors(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>() / SECTOR
    }

    fn overlaps(&self, sector: u64, sectors: u64) -> bool {
        self.sector < sector + sectors && sector < self.sector + self.sectors()
    }
}

impl FakeDisk {
    /// Every sector has its own pattern.
    pub fn new(sectors: u64) -> Self {
        Self { data: fresh(0, sectors), started: Vec::new(), slots: 64, is_broken: false, bad: Vec::new(), reads: 0 }
    }

    fn start(&mut self, kind: Kind, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        let started = Started { token, sector, pieces: pieces.to_vec(), kind };
        assert!(pieces.iter().all(|piece| piece.bytes > 0 && u64::from(piece.bytes).is_multiple_of(SECTOR)));
        assert!((sector + started.sectors()) * SECTOR <= self.data.len() as u64, "inside the disk");
        if kind != Kind::Flush {
            let conflict = |other: &&Started| {
                other.kind != Kind::Flush
                    && (kind == Kind::Write || other.kind == Kind::Write)
                    && other.overlaps(sector, started.sectors())
            };
            assert!(self.started.iter().find(conflict).is_none(), "no overlapping operations");
        }
        if self.is_broken {
            return Err(IoRefused::Failed);
        }
        if self.started.len() >= self.slots {
            return Err(IoRefused::Busy);
        }
        self.reads += usize::from(kind == Kind::Read);
        self.started.push(started);
        Ok(())
    }

    /// Ends operation `index`, well if it can and may.
    fn end(&mut self, index: usize, may_succeed: bool, pages: &Pages) -> (IoToken, bool) {
        let op = self.started.remove(index);
        let is_bad = self.bad.iter().any(|sector| op.overlaps(*sector, 1));
        let is_ok = may_succeed && !is_bad;
        let mut at = (op.sector * SECTOR) as usize;
        // A failed write may have done a part of its work.
        let pieces = if is_ok { op.pieces.len() } else { op.pieces.len() / 2 };
        for piece in &op.pieces[..pieces] {
            let range = at..at + piece.bytes as usize;
            match op.kind {
                Kind::Read => pages.write(piece.addr, &self.data[range.clone()]),
                _ => self.data[range.clone()].copy_from_slice(&pages.read(piece.addr, piece.bytes.into())),
            }
            at = range.end;
        }
        (op.token, is_ok)
    }
}

impl DiskIo for FakeDisk {
    fn submit_read(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        self.start(Kind::Read, sector, pieces, token)
    }

    fn submit_write(&mut self, sector: u64, pieces: &[Piece], token: IoToken) -> Result<(), IoRefused> {
        self.start(Kind::Write, sector, pieces, token)
    }

    fn submit_flush(&mut self, token: IoToken) -> Result<(), IoRefused> {
        self.start(Kind::Flush, 0, &[], token)
    }
}

/// All of it, with one guest memory for all VMs.
pub struct World<'a> {
    pub pages: &'a Pages,
    pub guest: Guest<'a>,
    pub io: FakeDisk,
    pub disk: SharedDisk,
    pub done: Vec<(u64, Status)>,
}

impl<'a> World<'a> {
    pub fn new(pages: &'a Pages, sectors: u64, partitions: Vec<gpt::Partition>, cache_pages: u64) -> Self {
        Self {
            pages,
            guest: Guest::new(pages, 8 << 20),
            io: FakeDisk::new(sectors),
            disk: SharedDisk::new("vd0", sectors, false, partitions, cache_pages),
            done: Vec::new(),
        }
    }

    /// A private VM of the whole disk.
    pub fn private(&mut self, holder: &str) -> MountId {
        let mode = Mode::CopyOnWrite { limit_pages: u64::MAX };
        self.disk.mount(&MountSpec { holder, partition: None, mode }).unwrap()
    }

    pub fn persistent(&mut self, holder: &str) -> MountId {
        self.disk.mount(&MountSpec { holder, partition: None, mode: Mode::Persistent }).unwrap()
    }

    /// Submits a request whose data is at `RAM + at`, cut into segments of `cut` bytes.
    #[expect(clippy::too_many_arguments, reason = "a shorthand of tests")]
    pub fn submit(
        &mut self,
        mount: MountId,
        tag: u64,
        kind: Kind,
        sector: u64,
        sectors: u64,
        at: u64,
        cut: u64,
    ) -> Outcome {
        let end = sectors * SECTOR;
        let starts = (0..end).step_by(cut as usize);
        let segments: Vec<_> =
            starts.map(|start| (GuestPhysAddr::new(RAM + at + start), (end - start).min(cut) as u32)).collect();
        self.submit_with(mount, tag, kind, sector, sectors, &segments)
    }

    pub fn submit_with(
        &mut self,
        mount: MountId,
        tag: u64,
        kind: Kind,
        sector: u64,
        sectors: u64,
        segments: &Vec<(GuestPhysAddr, u32)>,
    ) -> Outcome {
        let mut ctx = Context { pages: self.pages, io: &mut self.io, node: NodeId(0), budget: BLOCKS_PER_CALL };
        let outcome = self.disk.submit(mount, tag, Request { kind, sector, sectors, segments }, &self.guest, &mut ctx);
        if let Outcome::Done(status) = outcome {
            self.done.push((tag, status));
        }
        outcome
    }

    /// Ends operation `index` and lets ready requests go on.
    pub fn complete(&mut self, index: usize, may_succeed: bool) {
        let (token, is_ok) = self.io.end(index, may_succeed, self.pages);
        let failed = self.disk.on_io_complete(token, is_ok, self.pages);
        assert_eq!(failed.is_some(), !is_ok);
        self.go_on();
    }

    pub fn go_on(&mut self) {
        while let Some(ready) = self.disk.next_ready() {
            let mut ctx = Context { pages: self.pages, io: &mut self.io, node: NodeId(0), budget: BLOCKS_PER_CALL };
            if let Outcome::Done(status) = self.disk.resume(ready, &self.guest, &mut ctx) {
                self.done.push((ready.tag, status));
            }
        }
    }

    /// Ends everything, first come first served.
    pub fn drain(&mut self) {
        self.go_on();
        while !self.io.started.is_empty() {
            self.complete(0, true);
        }
    }

    /// Does one request from start to end.
    pub fn run(&mut self, mount: MountId, kind: Kind, sector: u64, sectors: u64, at: u64) -> Status {
        let tag = 1 << 40;
        self.done.retain(|(done, _)| *done != tag);
        let _ = self.submit(mount, tag, kind, sector, sectors, at, 1 << 30);
        self.drain();
        self.done.iter().find(|(done, _)| *done == tag).expect("it ended").1
    }

    pub fn ram(&self, at: u64, bytes: u64) -> Vec<u8> {
        self.guest.see(at as usize..(at + bytes) as usize)
    }

    pub fn fill(&self, at: u64, bytes: u64, value: u8) {
        self.guest.put(at as usize..(at + bytes) as usize, &vec![value; bytes as usize]);
    }

    /// Cached pages by node.
    pub fn cached(&self) -> Vec<u64> {
        (0..NODES).map(|node| self.disk.cached_pages_on(NodeId(node))).collect()
    }

    /// Gives everything back and checks that nothing is left.
    pub fn end(mut self, mounts: &[MountId]) {
        self.drain();
        assert_eq!(self.cached().iter().sum::<u64>(), self.disk.metrics().cached_pages);
        mounts.iter().for_each(|mount| self.disk.unmount(*mount));
        while self.disk.clean_up(self.pages) {}
        self.fill(0, 8 << 20, 0);
        while self.disk.reclaim(1_000, self.pages) > 0 {}
        assert_eq!(self.pages.live(), 0, "{:?}", self.disk.metrics());
        let metrics = self.disk.metrics();
        assert_eq!((metrics.cached_pages, metrics.private_pages, metrics.staging_pages), (0, 0, 0));
        assert_eq!(self.cached(), [0; NODES as usize]);
    }
}

/// What sectors hold on a fresh disk.
pub fn fresh(sector: u64, sectors: u64) -> Vec<u8> {
    // The pattern repeats after so many bytes.
    static CYCLES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let cycles = CYCLES.get_or_init(|| (0..2 * 229 + SECTOR).map(|at| (at % 229) as u8).collect());
    let mut bytes = Vec::with_capacity((sectors * SECTOR) as usize);
    for sector in sector..sector + sectors {
        let start = (sector * 7 % 229) as usize;
        bytes.extend_from_slice(&cycles[start..start + SECTOR as usize]);
    }
    bytes
}
