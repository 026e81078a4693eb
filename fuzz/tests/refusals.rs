//! Memory that is not to be had: everything here that asks for some, and may be refused, is refused once. Nobody panics, and what was
//! promised holds.
//!
//! The allocator of this program watches those who do not ask. Each of them must be small: the monitor's heap keeps a reserve for them,
//! and no more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;

use addr::{Gfn, Mfn, VmId};
use control::Exchange;
use fuzz::{TARGETS, Target};
use merging::sent::{Gathered, Range, Recent, Sent};
use merging::wire::{Receiver, Round};
use pmap::{Pmap, PmapError};
use scarce::testing::{Sites, each_refusal, given, is_asking};
use subnet::{FrameRefused, MIN_FRAME, PortKind, PortSpec, QueueLimits, Subnet};

/// Largest piece of memory that is taken without asking: the smallest piece of the heap's reserve has room for three.
const MOST_UNASKED: usize = 36 << 10;
/// Pieces that the targets themselves take: memory of guests and disks.
const OF_TARGETS: [usize; 4] = [7 * 0x4000, 320 << 10, 64 << 10, 48 << 10];

struct Watching;

thread_local! {
    /// While a target runs: the largest piece that was not asked for.
    static LARGEST: Cell<Option<usize>> = const { Cell::new(None) };
}

fn note(bytes: usize) {
    if !is_asking() && !OF_TARGETS.contains(&bytes) {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().map(|before| before.max(bytes))));
    }
}

// UNSAFETY: a global allocator. SAFETY: all of it is the system's; it is only watched.
#[expect(unsafe_code)]
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller has promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller has promised.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as the caller has promised.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("it has a corpus").map(|file| file.expect("read").path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("it can be read")).collect()
}

#[test]
fn targets_may_be_refused() {
    let mut sites = Sites::new();
    for target in &TARGETS {
        for input in corpus(target) {
            sites.append(&mut each_refusal(|| (target.run)(&input)));
        }
    }
    for file in ["dev/virtio/src/net/receive.rs", "mech/volumes/src/job.rs"] {
        assert!(sites.iter().any(|(of, ..)| *of == file), "nobody in {file} was refused");
    }
}

/// All these sites were refused once each.
fn assert_sites(sites: &Sites, count: usize, folder: &str) {
    assert_eq!(sites.len(), count, "{sites:?}");
    assert!(sites.iter().all(|(file, ..)| file.starts_with(folder)), "{sites:?}");
}

/// A guest's memory that finds no room for its map, and one that does.
#[test]
fn a_map_may_be_refused() {
    let mut refused = 0;
    let sites = each_refusal(|| match Pmap::new(VmId(1), Gfn::new(512), 1 << 20) {
        Ok(map) => assert_eq!(map.pages(), 1 << 20),
        Err(error) => {
            assert_eq!(error, PmapError::OutOfTables);
            refused += 1;
        }
    });
    assert_eq!(refused, 1);
    assert_sites(&sites, 1, "mech/pmap/");
}

/// A frame that finds no room costs its subnet nothing.
#[test]
fn a_frame_may_be_refused() {
    let sites = each_refusal(|| {
        let mut subnet: Subnet<()> = Subnet::new(100);
        let spec = PortSpec { kind: PortKind::Uplink, limits: QueueLimits::default(), cookie: 0 };
        subnet.attach(&spec).expect("the first port");
        let allocator = subnet.allocator();
        match allocator.copy_of(&[7; MIN_FRAME]) {
            Ok(frame) => drop(frame),
            Err(error) => assert_eq!(error, FrameRefused::NoMemory),
        }
        assert_eq!(allocator.used_bytes(), 0);
        assert!(given(|| allocator.copy_of(&[7; MIN_FRAME])).is_ok());
    });
    assert_sites(&sites, 1, "mech/subnet/");
}

/// A client is not heard before there is memory to answer it, and is then.
#[test]
fn a_conversation_may_be_refused() {
    let mut heard = Vec::new();
    let sites = each_refusal(|| {
        let mut exchange = Exchange::default();
        let mut is_read = [false; 2];
        for is_read in &mut is_read {
            exchange.receive(|_| {
                *is_read = true;
                0
            });
        }
        heard.push(is_read);
    });
    assert_eq!(heard, [[false, true], [true, true]]);
    assert_sites(&sites, 1, "abi/control/");
}

/// What is found no room for is not looked for: merging finds less, and goes on.
#[test]
fn hints_may_be_refused() {
    let range = |first: u64| Range::new(Mfn::new(first), 40);
    let mut found = Vec::new();
    let sites = each_refusal(|| {
        let mut recent = Recent::new();
        for _ in 0..3 {
            let mut sent = Sent::new();
            for number in 0..9 {
                sent.push(VmId(number), range(1_000 * u64::from(number)));
            }
            recent.begin_round(sent, vec![VmId(3), VmId(7)]);
            let Gathered::All(search) = recent.gather(usize::MAX) else { continue };
            let receiver = |vm: &VmId| Receiver { vm: *vm, base: Gfn::new(0), pages: 8 };
            let mut round = Round::new(search.ranges, search.vms.iter().map(receiver).collect());
            while !round.prepare(usize::MAX) {}
            while let Some(page) = round.next_to_index() {
                round.indexed(page, page.raw());
            }
            found.push(round.find(1_001));
            while round.next_to_search().is_some() {}
        }
    });
    assert!(found.contains(&None) && found.ends_with(&[Some(Mfn::new(1_001)); 3]), "{found:?}");
    assert_sites(&sites, 4, "policy/merging/");
}

/// Machine files are read on the host, where memory is not scarce.
#[test]
fn who_does_not_ask_takes_little() {
    for target in TARGETS.iter().filter(|target| target.name != "machine-file") {
        for input in corpus(target) {
            LARGEST.set(Some(0));
            (target.run)(&input);
            let largest = LARGEST.take().unwrap_or_default();
            // Frames are the target's own.
            let most = if matches!(target.name, "net" | "offload") { 64 << 10 } else { MOST_UNASKED };
            assert!(largest <= most, "{}: {largest} bytes without asking", target.name);
        }
    }
}
