//! Stores whose log has the right checksums and says anything.

use std::collections::BTreeMap;

use addr::{GuestPhysAddr, MachineAddr, Mfn};
use storage::{BLOCK, BadGuestMemory, GuestCopy, Kind, Outcome, Request, SECTOR, Status};
use volumes::{Backend, MIN_BLOCKS, Store, Target, VolumeId, testing::store_that_says};

use crate::Input;

/// Memory for finding a store's blocks.
const INDEX_LIMIT: u64 = 256 << 10;
/// Most bytes of one request.
const MOST: usize = 64 << 10;

/// Blocks that were written; others are zero.
type Blocks = BTreeMap<u64, Vec<u8>>;

/// The log's blocks, each with its length, then the use of what they describe.
pub fn volumes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let epoch = u64::from(input.byte());
    let log: Vec<&[u8]> = (0..=input.below(3))
        .map(|_| {
            let count = usize::from(input.u16() % 2048);
            input.bytes(count)
        })
        .collect();
    let mut disks = Disks::new(store_that_says(epoch, &log).into_iter().collect(), input.byte());
    let opened = open(&disks.blocks, 9);
    let Ok(mut store) = opened else { return };
    assert!(store.index_limit() <= INDEX_LIMIT);
    let layers: Vec<_> = store.layers().take(6).collect();
    let mut users = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let name = format!("clone-{number}");
        let (name, from) =
            if layer.is_snapshot { (name.as_str(), Some(layer.name.as_str())) } else { (layer.name.as_str(), None) };
        if let Ok(volume) = store.mount(name, &layer.base, from, "vm") {
            users.push(volume);
        }
    }
    while let (false, Some(last)) = (input.is_empty(), users.len().checked_sub(1)) {
        let volume = users[usize::from(input.byte()).min(last)];
        act(&mut input, &mut store, &mut disks, volume);
    }
    store.sync();
    disks.holds = 0;
    go_on(&mut store, &mut disks);
    assert!(disks.held.is_empty());
    // What was made durable is found again, and nothing else.
    if !store.is_broken() && store.is_quiet() {
        let names: Vec<_> = store.layers().map(|layer| (layer.name, layer.is_snapshot, layer.blocks)).collect();
        let again = scarce::testing::given(|| open(&disks.blocks, 10)).expect("it was written by a store");
        assert_eq!(
            again.layers().map(|layer| (layer.name, layer.is_snapshot, layer.blocks)).collect::<Vec<_>>(),
            names
        );
    }
}

fn open(blocks: &Blocks, nonce: u64) -> Result<Store, volumes::OpenError> {
    Store::open(MIN_BLOCKS, nonce, INDEX_LIMIT, &mut |block, buf| {
        assert!(block < MIN_BLOCKS, "block {block} is read");
        match blocks.get(&block) {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => buf.fill(0),
        }
        true
    })
}

/// One thing that a guest or a client does.
fn act(input: &mut Input<'_>, store: &mut Store, disks: &mut Disks, volume: VolumeId) {
    let sectors = store.sectors(volume);
    let kind = input.pick(&[Kind::Read, Kind::Write, Kind::Flush, Kind::Discard, Kind::WriteZeroes]);
    let (first, count) = (input.register(), u64::from(input.byte()) + 1);
    match input.below(10) {
        0 => {
            let name = format!("snapshot-{}", input.byte());
            let holder =
                store.layers().find(|layer| layer.holder.is_some() && !layer.is_snapshot).map(|layer| layer.name);
            let _ = holder.map(|holder| store.snapshot(&holder, &name, 7));
        }
        1 => {
            let name = store.layers().nth(usize::from(input.below(6))).map(|layer| layer.name);
            let _ = name.map(|name| store.remove(&name, 8));
        }
        2 => store.cancel(volume),
        _ => {
            let count = if kind == Kind::Flush { 0 } else { count.min(MOST as u64 / SECTOR) };
            // Mostly on the disk: what lies behind it must be refused.
            let first = if input.byte() > 7 { first % sectors.max(1) } else { first };
            let segments = [(GuestPhysAddr::new(0), u32::try_from(count * SECTOR).unwrap_or(0))];
            let request = Request {
                kind,
                sector: if kind == Kind::Flush { 0 } else { first },
                sectors: count,
                segments: &segments,
            };
            let is_inside = request.sector.checked_add(count).is_some_and(|end| end <= sectors);
            let outcome = store.submit(volume, 1, &request, &Guest, disks);
            assert!(is_inside || outcome == Outcome::Done(Status::IoError), "{kind:?} at {first}");
        }
    }
    go_on(store, disks);
}

/// Does all that is ready, and ends what the disks hold back, as far as they let it go.
fn go_on(store: &mut Store, disks: &mut Disks) {
    for left in (0..10_000).rev() {
        store.pump(disks);
        while store.clean_up() {}
        while store.next_answer().is_some() {}
        match store.next_ready() {
            Some(ready) => _ = store.resume(ready, &Guest, disks, &mut { u64::MAX }),
            None => match disks.end_some() {
                Some((op, status)) => store.on_done(op, status),
                None => break,
            },
        }
        assert!(left > 0, "work without end");
    }
}

/// A guest that takes everything.
struct Guest;

impl GuestCopy for Guest {
    fn copy_from_machine(&self, _: GuestPhysAddr, _: MachineAddr, _: u64) -> Result<(), BadGuestMemory> {
        Ok(())
    }

    fn copy_to_machine(&self, _: MachineAddr, _: GuestPhysAddr, _: u64) -> Result<(), BadGuestMemory> {
        Ok(())
    }

    fn write(&self, dst: GuestPhysAddr, data: &[u8]) -> Result<(), BadGuestMemory> {
        let is_room = dst.raw().checked_add(data.len() as u64).is_some_and(|end| end <= MOST as u64);
        if is_room { Ok(()) } else { Err(BadGuestMemory) }
    }

    fn map(&self, _: GuestPhysAddr, _: Mfn) -> bool {
        false
    }
}

/// An operation that has not ended: its number, and what it writes where.
type Held = (u64, u64, Vec<u8>);

/// Disks that do some things at once, and others later, in any order. Some fail.
struct Disks {
    blocks: Blocks,
    held: Vec<Held>,
    /// How many they like to hold; 0: they are at once.
    holds: usize,
    /// Changes with every decision.
    mood: u8,
}

impl Disks {
    const fn new(blocks: Blocks, mood: u8) -> Self {
        Self { blocks, held: Vec::new(), holds: (mood & 7) as usize, mood }
    }

    fn next_mood(&mut self) -> u8 {
        self.mood = self.mood.wrapping_mul(5).wrapping_add(3);
        self.mood >> 2
    }

    /// Begins an operation: its end comes at once, or later.
    fn begin(&mut self, op: u64, sector: u64, bytes: Vec<u8>) -> Outcome {
        if self.held.len() < self.holds && self.next_mood() & 3 != 0 {
            self.held.push((op, sector, bytes));
            return Outcome::Pending;
        }
        self.store(sector, &bytes);
        Outcome::Done(Status::Ok)
    }

    /// Ends one of those that are held, if they are too many or the disks like to.
    fn end_some(&mut self) -> Option<(u64, Status)> {
        let mood = usize::from(self.next_mood());
        if self.held.is_empty() || self.held.len() < self.holds && mood & 1 != 0 {
            return None;
        }
        let (op, sector, bytes) = self.held.swap_remove(mood % self.held.len());
        if mood > 60 {
            return Some((op, Status::IoError));
        }
        self.store(sector, &bytes);
        Some((op, Status::Ok))
    }

    fn store(&mut self, sector: u64, bytes: &[u8]) {
        for (sector, data) in (sector..).zip(bytes.chunks(SECTOR as usize)) {
            let at = (sector * SECTOR % BLOCK) as usize;
            let block = self.blocks.entry(sector * SECTOR / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[at..at + data.len()].copy_from_slice(data);
        }
    }
}

impl Backend for Disks {
    fn submit(&mut self, to: Target, op: u64, request: Request<'_>, _: &dyn GuestCopy) -> Outcome {
        let bytes: u64 =
            (0..).map_while(|index| request.segments.segment(index)).map(|(_, bytes)| u64::from(bytes)).sum();
        if matches!(request.kind, Kind::Read | Kind::Write) {
            assert_eq!(bytes, request.sectors * SECTOR, "as much memory as data");
        }
        if to == Target::Store {
            assert!((request.sector + request.sectors) * SECTOR <= MIN_BLOCKS * BLOCK, "outside of the store");
        } else {
            assert!(matches!(request.kind, Kind::Read | Kind::Flush), "the disk below is written");
        }
        // What guests write is not looked at: data blocks stay as they are.
        self.begin(op, request.sector, Vec::new())
    }

    fn write(&mut self, op: u64, sector: u64, bytes: &[u8]) -> Outcome {
        assert!(sector * SECTOR + bytes.len() as u64 <= MIN_BLOCKS * BLOCK, "outside of the store");
        self.begin(op, sector, bytes.to_vec())
    }

    fn flush(&mut self, op: u64) -> Outcome {
        self.begin(op, 0, Vec::new())
    }
}
