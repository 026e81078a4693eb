use alloc::{rc::Rc, vec, vec::Vec};
use core::cell::RefCell;

use model_file::VERSION;

use super::*;

/// Memory in place of the device's.
#[derive(Clone, Debug)]
struct Memory(Rc<RefCell<Vec<u32>>>);

impl Registers for Memory {
    fn bytes(&self) -> usize {
        self.0.borrow().len() * 4
    }

    fn read(&self, offset: usize) -> u32 {
        self.0.borrow()[offset / 4]
    }

    fn write(&self, offset: usize, value: u32) {
        self.0.borrow_mut()[offset / 4] = value;
    }
}

impl Memory {
    /// A device of two nodes of 1 MiB and a queue of 4.
    fn good() -> (Self, Header) {
        let node = |at: u64| Node { base: 0x8000_0000 + (at << 20), bytes: 1 << 20, harts: 1 };
        let header = Header::new(&[node(0), node(1)], 4, 5000, |_, _| 1).expect("it is good");
        let memory = Self(Rc::new(RefCell::new(vec![0; header.file_bytes() as usize / 4])));
        for (word, bytes) in header.encode().as_chunks::<4>().0.iter().enumerate() {
            memory.write(word * 4, u32::from_le_bytes(*bytes));
        }
        (memory, header)
    }

    fn put(&self, offset: u64, value: u64) {
        self.write(offset as usize, value as u32);
        self.write(offset as usize + 4, (value >> 32) as u32);
    }

    fn get(&self, offset: u64) -> u64 {
        u64::from(self.read(offset as usize)) | u64::from(self.read(offset as usize + 4)) << 32
    }

    /// Queues a hot page, as the model does.
    fn queue(&self, header: &Header, page: u64, node: u64) {
        let index = self.get(at::PRODUCER);
        self.put(header.queue_at(index), page);
        self.put(header.queue_at(index) + 8, node);
        self.put(at::PRODUCER, index.wrapping_add(1));
    }
}

const PLACE: Place = Place::Pci { bus: 0, device: 1, function: 0 };

fn counters() -> (MissCounters<Memory>, Memory, Header) {
    let (memory, header) = Memory::good();
    (MissCounters::new(memory.clone(), PLACE).expect("it is good"), memory, header)
}

fn taken(counters: &mut MissCounters<Memory>) -> Vec<(u64, usize)> {
    let mut room = [MissedPage::default(); 3];
    let mut all = Vec::new();
    while let found @ 1.. = counters.take_hot(&mut room) {
        all.extend(room[..found].iter().map(|hot| (hot.page.raw(), hot.by)));
    }
    all
}

#[test]
fn counts_are_those_of_the_page() {
    let (counters, memory, header) = counters();
    memory.write(header.misses_at(257, 1).expect("it is there") as usize, 7);
    assert_eq!((counters.pages(), counters.nodes().len(), counters.is_on()), (512, 2, false));
    let misses = |at, pages| {
        let mut sums = [0; MAX_NODES];
        counters.add_misses(MachineAddr::new(at), pages, &mut sums).then_some(sums)
    };
    assert_eq!(misses(0x8010_1fff, 1), Some([0, 7, 0, 0, 0, 0, 0, 0]));
    assert_eq!(misses(0x8010_2000, 1), Some([0; MAX_NODES]));
    assert_eq!(misses(0x8020_0000, 1), None);
    assert_eq!(misses(0x7fff_ffff, 1), None);
    memory.write(header.misses_at(258, 0).expect("it is there") as usize, 5);
    memory.write(header.misses_at(259, 1).expect("it is there") as usize, u32::MAX);
    assert_eq!(misses(0x8010_1000, 2), Some([5, 7, 0, 0, 0, 0, 0, 0]), "several pages together");
    assert_eq!(misses(0x8010_1000, 3), Some([5, u32::MAX, 0, 0, 0, 0, 0, 0]), "they do not wrap");
    assert!(misses(0x8010_1000, 255).is_some());
    assert_eq!(misses(0x8010_1000, 0), Some([0; MAX_NODES]), "no page has missed nothing");
    for pages in [256, u64::MAX] {
        assert_eq!(misses(0x8010_1000, pages), None, "{pages} pages are not there");
    }
    memory.put(at::IS_ON, 1);
    assert!(counters.is_on());
}

#[test]
fn hot_pages_come_in_order_and_once() {
    let (memory, header) = Memory::good();
    memory.queue(&header, 1, 1);
    let mut counters = MissCounters::new(memory.clone(), PLACE).expect("it is good");
    assert_eq!(taken(&mut counters), [], "what came before is left out");
    memory.queue(&header, 2, 1);
    memory.queue(&header, 300, 0);
    assert_eq!(taken(&mut counters), [(0x8000_2000, 1), (0x8012_c000, 0)]);
    assert_eq!((taken(&mut counters), memory.get(at::CONSUMER)), (vec![], 3));
    memory.queue(&header, 4, 1);
    counters.forget_hot();
    memory.queue(&header, 5, 0);
    assert_eq!(taken(&mut counters), [(0x8000_5000, 0)], "what is forgotten does not come");
}

#[test]
fn a_queue_that_went_round_gives_what_is_left() {
    let (mut counters, memory, header) = counters();
    (0..7).for_each(|page| memory.queue(&header, page, 1));
    assert_eq!(taken(&mut counters), [3, 4, 5, 6].map(|page| (0x8000_0000 + page * 4096, 1)));
}

#[test]
fn nonsense_in_the_queue_is_passed_over() {
    let (mut counters, memory, header) = counters();
    for (page, node) in [(512, 0), (u64::MAX, 0), (1, 2), (1, u64::MAX), (5, 0)] {
        memory.queue(&header, page, node);
    }
    assert_eq!(taken(&mut counters), [(0x8000_5000, 0)]);
    for producer in [u64::MAX, 1 << 40, 0] {
        memory.put(at::PRODUCER, producer);
        assert!(taken(&mut counters).len() <= 4, "at most one round for producer {producer}");
    }
}

#[test]
fn the_number_wraps() {
    let (memory, header) = Memory::good();
    memory.put(at::PRODUCER, u64::MAX);
    let mut counters = MissCounters::new(memory.clone(), PLACE).expect("it is good");
    memory.queue(&header, 1, 1);
    memory.queue(&header, 2, 1);
    assert_eq!(taken(&mut counters).len(), 2);
}

#[test]
fn requests_are_written_where_the_model_looks() {
    let (mut counters, memory, _) = counters();
    counters.set_threshold(64);
    counters.reset();
    assert_eq!((memory.get(at::HOT_THRESHOLD), memory.get(at::REQUEST)), (64, Request::ResetPages as u64));
}

#[test]
fn other_memory_is_refused() {
    let refused = |memory: Memory| MissCounters::new(memory, PLACE).map(drop).expect_err("it is wrong");
    let empty = |bytes: usize| Memory(Rc::new(RefCell::new(vec![0; bytes / 4])));
    assert_eq!(refused(empty(256)), CountersError::TooSmall { bytes: 256 });
    assert_eq!(refused(empty(1 << 20)), CountersError::Layout(LayoutError::Magic { found: 0 }));
    let (memory, _) = Memory::good();
    memory.put(8, VERSION + 1);
    assert_eq!(refused(memory), CountersError::Layout(LayoutError::Version { found: VERSION + 1 }));
    let (memory, header) = Memory::good();
    memory.0.borrow_mut().truncate(header.file_bytes() as usize / 8);
    assert!(matches!(refused(memory), CountersError::Layout(LayoutError::Short { .. })));
}

#[test]
fn no_header_makes_it_panic() {
    // Every word of the header set to something large or odd, one after the other.
    for word in 0..HEADER_BYTES as u64 / 8 {
        for value in [0, 1, 9, 65, 1 << 26, 1 << 31, 1 << 52, u64::MAX] {
            let (memory, _) = Memory::good();
            memory.put(word * 8, value);
            if let Ok(mut counters) = MissCounters::new(memory.clone(), PLACE) {
                let room = &mut [MissedPage::default(); 2];
                let _ = (
                    counters.add_misses(MachineAddr::new(0x8010_0000), 3, &mut [0; MAX_NODES]),
                    counters.take_hot(room),
                );
                memory.put(at::PRODUCER, 3);
                let _ = taken(&mut counters);
            }
        }
    }
}
