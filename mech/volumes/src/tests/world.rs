//! A disk with a volatile cache, a guest, and both together.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use addr::{GuestPhysAddr, MachineAddr, Mfn};
use storage::{BLOCK, BadGuestMemory, GuestCopy, Kind, Outcome, Request, SECTOR, Status};

use crate::*;

pub const BASE_SECTORS: u64 = 323;
pub const STORE_BLOCKS: u64 = MIN_BLOCKS;

/// All guests' memory; a request's data is at the place that its segments name.
pub type Ram = Rc<RefCell<Vec<u8>>>;

pub struct Guest(pub Ram);

impl GuestCopy for Guest {
    fn copy_from_machine(&self, _: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), BadGuestMemory> {
        unreachable!("the fake disks copy themselves")
    }

    fn copy_to_machine(&self, _: MachineAddr, _: GuestPhysAddr, _: u64) -> Result<(), BadGuestMemory> {
        unreachable!("the fake disks copy themselves")
    }

    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        let at = dst.raw() as usize;
        self.0.borrow_mut().get_mut(at..at + data.len()).ok_or(BadGuestMemory)?.copy_from_slice(data);
        Ok(())
    }

    fn map(&self, _: GuestPhysAddr, _: Mfn) -> bool {
        false
    }
}

/// An operation under way.
#[derive(Clone, Debug)]
struct Started {
    op: u64,
    to: Target,
    kind: Kind,
    sector: u64,
    sectors: u64,
    data: Vec<u8>,
    segments: Vec<(GuestPhysAddr, u32)>,
}

/// The base disk, on which each sector shows its number, and the store's.
pub struct Disks {
    pub ram: Ram,
    /// What the platters hold.
    pub durable: Vec<u8>,
    /// Sectors written since, in order.
    volatile: Vec<(u64, Vec<u8>)>,
    /// What reads see.
    seen: BTreeMap<u64, Vec<u8>>,
    started: Vec<Started>,
    /// Sectors of the store that cannot be written.
    pub bad: Vec<u64>,
    /// Operations end inside the call.
    pub is_instant: bool,
    /// Flushes under way, and how many of `volatile` each makes durable.
    flushing: BTreeMap<u64, usize>,
    pub base_reads: usize,
}

impl Disks {
    pub fn new(durable: Vec<u8>) -> Self {
        Self {
            ram: Rc::new(RefCell::new(vec![0; 4 << 20])),
            durable,
            volatile: Vec::new(),
            seen: BTreeMap::new(),
            started: Vec::new(),
            bad: Vec::new(),
            is_instant: false,
            flushing: BTreeMap::new(),
            base_reads: 0,
        }
    }

    pub fn under_way(&self) -> usize {
        self.started.len()
    }

    fn sector(&self, sector: u64) -> Vec<u8> {
        let at = (sector * SECTOR) as usize;
        self.seen.get(&sector).cloned().unwrap_or_else(|| self.durable[at..at + SECTOR as usize].to_vec())
    }

    fn start(&mut self, started: Started) -> Outcome {
        if started.kind == Kind::Flush {
            self.flushing.insert(started.op, self.volatile.len());
        }
        self.base_reads += usize::from(matches!(started.to, Target::Base(_)));
        self.started.push(started);
        if !self.is_instant {
            return Outcome::Pending;
        }
        let last = self.started.len() - 1;
        Outcome::Done(self.end(last).1)
    }

    /// Ends an operation that overlaps no earlier one: the `wish`th or the first after it that may.
    pub fn end_some(&mut self, wish: usize) -> (u64, Status) {
        let count = self.started.len();
        let may = |index: usize| {
            let this = &self.started[index];
            this.kind == Kind::Flush
                || !self.started[..index].iter().any(|earlier| {
                    earlier.kind != Kind::Flush
                        && earlier.to == this.to
                        && (earlier.kind != Kind::Read || this.kind != Kind::Read)
                        && earlier.sector < this.sector + this.sectors
                        && this.sector < earlier.sector + earlier.sectors
                })
        };
        let index = (0..count).map(|step| (wish + step) % count).find(|index| may(*index)).expect("the first may");
        self.end(index)
    }

    fn end(&mut self, index: usize) -> (u64, Status) {
        let this = self.started.remove(index);
        let sectors = this.sector..this.sector + this.sectors;
        match this.kind {
            Kind::Flush => {
                let count = self.flushing.remove(&this.op).expect("it was started").min(self.volatile.len());
                for (sector, data) in self.volatile.drain(..count) {
                    let at = (sector * SECTOR) as usize;
                    self.durable[at..at + SECTOR as usize].copy_from_slice(&data);
                }
                self.flushing.values_mut().for_each(|other| *other = other.saturating_sub(count));
            }
            Kind::Read => {
                let bytes: Vec<u8> = match this.to {
                    Target::Base(_) => sectors.flat_map(base_sector).collect(),
                    Target::Store => sectors.flat_map(|sector| self.sector(sector)).collect(),
                };
                let mut rest = &bytes[..];
                for (at, len) in &this.segments {
                    let (part, after) = rest.split_at(*len as usize);
                    self.ram.borrow_mut()[at.raw() as usize..][..part.len()].copy_from_slice(part);
                    rest = after;
                }
                assert!(rest.is_empty(), "as much room as data");
            }
            _ => {
                assert_eq!(this.to, Target::Store, "nobody writes to the base");
                for (sector, data) in sectors.zip(this.data.chunks(SECTOR as usize)) {
                    if self.bad.contains(&sector) {
                        return (this.op, Status::IoError);
                    }
                    self.volatile.push((sector, data.to_vec()));
                    self.seen.insert(sector, data.to_vec());
                }
            }
        }
        (this.op, Status::Ok)
    }

    /// Sectors that may or may not be there when the power goes now: not flushed, or of writes under way.
    pub fn at_risk(&self) -> usize {
        let writes = self.started.iter().filter(|started| !matches!(started.kind, Kind::Read | Kind::Flush));
        self.volatile.len() + writes.map(|started| started.sectors as usize).sum::<usize>()
    }

    /// The same disks, to be left by a crash while these go on.
    pub fn twin(&self) -> Self {
        Self {
            ram: Rc::default(),
            durable: self.durable.clone(),
            volatile: self.volatile.clone(),
            seen: BTreeMap::new(),
            started: self.started.clone(),
            bad: Vec::new(),
            is_instant: false,
            flushing: BTreeMap::new(),
            base_reads: 0,
        }
    }

    /// What is left when the power goes: of what was not flushed, and of what is under way, a part that `keeps` chooses.
    pub fn crash(mut self, keeps: &mut dyn FnMut() -> bool) -> Vec<u8> {
        let started = core::mem::take(&mut self.started);
        let writes = started.into_iter().filter(|started| !matches!(started.kind, Kind::Read | Kind::Flush));
        let under_way = writes.flat_map(|this| {
            let chunks: Vec<_> = this.data.chunks(SECTOR as usize).map(<[u8]>::to_vec).collect();
            (this.sector..).zip(chunks)
        });
        let all: Vec<_> = self.volatile.drain(..).chain(under_way).collect();
        for (sector, data) in all {
            if keeps() {
                let at = (sector * SECTOR) as usize;
                self.durable[at..at + SECTOR as usize].copy_from_slice(&data);
            }
        }
        self.durable
    }
}

impl Backend for Disks {
    fn submit(&mut self, to: Target, op: u64, request: Request<'_>, _guest: &dyn GuestCopy) -> Outcome {
        let segments: Vec<_> = (0..).map_while(|index| request.segments.segment(index)).collect();
        let mut data = Vec::new();
        match request.kind {
            Kind::Write => {
                let ram = self.ram.borrow();
                segments.iter().for_each(|(at, len)| data.extend(&ram[at.raw() as usize..][..*len as usize]));
                assert_eq!(data.len() as u64, request.sectors * SECTOR);
            }
            Kind::WriteZeroes => data.resize((request.sectors * SECTOR) as usize, 0),
            _ => {}
        }
        let Request { kind, sector, sectors, .. } = request;
        if to == Target::Store {
            assert!((sector + sectors) * SECTOR <= self.durable.len() as u64, "inside the partition");
        }
        self.start(Started { op, to, kind, sector, sectors, data, segments })
    }

    fn write(&mut self, op: u64, sector: u64, bytes: &[u8]) -> Outcome {
        assert!(!bytes.is_empty() && (bytes.len() as u64).is_multiple_of(BLOCK));
        let (to, kind, sectors) = (Target::Store, Kind::Write, bytes.len() as u64 / SECTOR);
        self.start(Started { op, to, kind, sector, sectors, data: bytes.to_vec(), segments: vec![] })
    }

    fn flush(&mut self, op: u64) -> Outcome {
        let (to, kind) = (Target::Store, Kind::Flush);
        self.start(Started { op, to, kind, sector: 0, sectors: 0, data: vec![], segments: vec![] })
    }
}

/// A sector whose first word is `value`, and so are all others.
pub fn filled(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(SECTOR as usize / 8)
}

pub fn value_of(bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert_eq!(bytes, filled(value), "a torn sector");
    value
}

pub fn base_value(sector: u64) -> u64 {
    1 << 40 | sector
}

fn base_sector(sector: u64) -> Vec<u8> {
    filled(base_value(sector))
}

pub fn base() -> Base {
    Base { disk: "debian".to_string(), partition: Some("root".to_string()), sectors: BASE_SECTORS }
}

pub fn open(durable: &[u8], nonce: u64) -> Result<Store, OpenError> {
    open_within(durable, nonce, u64::MAX)
}

/// With a bound for the memory of the index.
pub fn open_within(durable: &[u8], nonce: u64, index_limit: u64) -> Result<Store, OpenError> {
    let blocks = durable.len() as u64 / BLOCK;
    Store::open(blocks, nonce, index_limit, &mut |block, buf| {
        let at = (block * BLOCK) as usize;
        buf.copy_from_slice(&durable[at..at + buf.len()]);
        true
    })
}

/// A store and its disks.
pub struct World {
    pub store: Store,
    pub disks: Disks,
    pub done: Vec<(u64, Status)>,
    pub answers: Vec<Answer>,
}

impl World {
    pub fn new() -> Self {
        Self::on(vec![0; (STORE_BLOCKS * BLOCK) as usize], 1)
    }

    pub fn on(durable: Vec<u8>, nonce: u64) -> Self {
        let store = open(&durable, nonce).unwrap();
        Self { store, disks: Disks::new(durable), done: vec![], answers: vec![] }
    }

    pub fn volume(&mut self, name: &str, from: Option<&str>) -> VolumeId {
        self.store.mount(name, &base(), from, name).unwrap()
    }

    #[expect(clippy::too_many_arguments, reason = "a shorthand of tests")]
    /// Submits a request with its data at `at`, cut into segments.
    pub fn submit(&mut self, volume: VolumeId, tag: u64, kind: Kind, sector: u64, sectors: u64, at: u64, cut: u64) {
        let guest = Guest(self.disks.ram.clone());
        let bytes = sectors * SECTOR;
        let pieces = (0..bytes).step_by(cut as usize);
        let segments: Vec<_> =
            pieces.map(|start| (GuestPhysAddr::new(at + start), (bytes - start).min(cut) as u32)).collect();
        let request = Request { kind, sector, sectors, segments: &segments };
        if let Outcome::Done(status) = self.store.submit(volume, tag, &request, &guest, &mut self.disks) {
            self.done.push((tag, status));
        }
        self.go_on();
    }

    /// Does all that needs no operation to end.
    pub fn go_on(&mut self) {
        let guest = Guest(self.disks.ram.clone());
        self.store.pump(&mut self.disks);
        while self.store.has_ready() || self.store.has_garbage() {
            while let Some(ready) = self.store.next_ready() {
                if let Outcome::Done(status) = self.store.resume(ready, &guest, &mut self.disks, &mut { u64::MAX }) {
                    assert!(!ready.is_cancelled);
                    self.done.push((ready.tag, status));
                }
                self.store.pump(&mut self.disks);
            }
            while self.store.clean_up() {}
        }
        while let Some(answer) = self.store.next_answer() {
            self.answers.push(answer);
        }
    }

    pub fn end_one(&mut self, wish: usize) {
        let (op, status) = self.disks.end_some(wish);
        self.store.on_done(op, status);
        self.go_on();
    }

    pub fn drain(&mut self) {
        self.go_on();
        while self.disks.under_way() > 0 {
            self.end_one(0);
        }
    }

    /// One request from start to end.
    pub fn run(&mut self, volume: VolumeId, kind: Kind, sector: u64, sectors: u64) -> Status {
        const TAG: u64 = 1 << 50;
        self.submit(volume, TAG, kind, sector, sectors, 0, 1_000);
        self.drain();
        let at = self.done.iter().position(|(tag, _)| *tag == TAG).expect("it ended");
        self.done.remove(at).1
    }

    pub fn write(&mut self, volume: VolumeId, sector: u64, sectors: u64, value: u64) -> Status {
        let bytes: Vec<_> = (0..sectors).flat_map(|_| filled(value)).collect();
        self.disks.ram.borrow_mut()[..bytes.len()].copy_from_slice(&bytes);
        self.run(volume, Kind::Write, sector, sectors)
    }

    pub fn read(&mut self, volume: VolumeId, sector: u64, sectors: u64) -> Vec<u64> {
        assert_eq!(self.run(volume, Kind::Read, sector, sectors), Status::Ok);
        let ram = self.disks.ram.borrow();
        ram[..(sectors * SECTOR) as usize].chunks(SECTOR as usize).map(value_of).collect()
    }

    pub fn flush(&mut self, volume: VolumeId) -> Status {
        self.run(volume, Kind::Flush, 0, 0)
    }

    /// All that is durable, in a new store.
    pub fn reopen(self, nonce: u64) -> Self {
        Self::on(self.disks.crash(&mut || false), nonce)
    }
}
