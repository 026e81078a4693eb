//! The hierarchy against a slow simulator: one flat list of lines with time stamps, no directory.

use machine_model::{Access, CacheShape, Config, Hierarchy, Outcome, Shared, Source};
use model_file::at;
use proptest::prelude::*;

/// A tiny machine, so that short traces evict.
fn tiny() -> Config {
    Config {
        l1i: CacheShape { bytes: 256, ways: 2 },
        l1d: CacheShape { bytes: 256, ways: 2 },
        l2: CacheShape { bytes: 1024, ways: 4 },
        line_bytes: 64,
        hot_misses: 3,
        hot_queue: 2,
        ..Config::flash(4, 2, 8192)
    }
}

fn hierarchy() -> Hierarchy {
    Hierarchy::new(tiny(), Shared::private(&tiny()).unwrap()).unwrap()
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Code,
    Data,
    Second,
}

struct Held {
    hart: usize,
    level: Level,
    line: u64,
    used: u64,
    writable: bool,
}

struct Reference {
    config: Config,
    held: Vec<Held>,
    now: u64,
}

impl Reference {
    fn find(&mut self, hart: usize, level: Level, line: u64) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.hart == hart && held.level == level && held.line == line)
    }

    fn put(&mut self, hart: usize, level: Level, line: u64) {
        let now = self.now;
        if let Some(held) = self.find(hart, level, line) {
            held.used = now;
            return;
        }
        let shape = if level == Level::Second { self.config.l2 } else { self.config.l1d };
        let sets = shape.sets(self.config.line_bytes);
        let in_set = |held: &&Held| held.hart == hart && held.level == level && held.line % sets == line % sets;
        if self.held.iter().filter(in_set).count() as u64 == shape.ways {
            let victim = self.held.iter().filter(in_set).min_by_key(|held| held.used).expect("a full set").line;
            let whole = level == Level::Second;
            self.held.retain(|held| held.hart != hart || held.line != victim || !(whole || held.level == level));
        }
        self.held.push(Held { hart, level, line, used: now, writable: false });
    }

    fn access(&mut self, hart: usize, access: Access, addr: u64) -> Outcome {
        self.now += 1;
        let Some(home) = self.config.home_of(addr) else {
            return Outcome { source: Source::Device, stall_ps: 0, invalidated: 0 };
        };
        let line = addr / self.config.line_bytes;
        let level = if access == Access::Fetch { Level::Code } else { Level::Data };
        let in_first = self.find(hart, level, line).is_some();
        let in_second = self.find(hart, Level::Second, line).is_some();
        let writable = self.find(hart, Level::Second, line).is_some_and(|held| held.writable);
        let is_store = access == Access::Store;
        let elsewhere = self.held.iter().any(|held| held.hart != hart && held.line == line && held.writable);
        if !in_first {
            self.put(hart, Level::Second, line);
        }
        self.put(hart, level, line);
        let node = self.config.node_of(hart);
        let far = self.config.latency(node, home);
        let (source, stall_ps) = match (in_first, in_second) {
            (_, true) if is_store && !writable => (Source::Upgrade, far),
            (true, _) => (Source::L1, 0),
            (_, true) => (Source::L2, self.config.l2_hit_ps),
            _ => {
                let extra = if elsewhere { self.config.owned_extra_ps } else { 0 };
                (if node == home { Source::Local } else { Source::Remote }, far + extra)
            }
        };
        let others = |held: &&Held| held.hart != hart && held.line == line && held.level == Level::Second;
        let invalidated = if is_store { self.held.iter().filter(others).count() as u32 } else { 0 };
        if is_store {
            self.held.retain(|held| held.hart == hart || held.line != line);
        }
        if is_store || !in_second {
            self.held.iter_mut().filter(|held| held.line == line).for_each(|held| held.writable = false);
        }
        if is_store {
            self.find(hart, Level::Second, line).expect("just put").writable = true;
        }
        Outcome { source, stall_ps, invalidated }
    }
}

fn steps() -> impl Strategy<Value = Vec<(usize, Access, u64)>> {
    let access = prop_oneof![Just(Access::Fetch), Just(Access::Load), Just(Access::Store)];
    // A little past the end of RAM, so that devices occur; some traces crowd a few lines, to share and evict.
    let addr = prop_oneof![0x8000_0000u64..0x8000_4100, 0x8000_0000u64..0x8000_0200, 0x8000_1f00u64..0x8000_2100];
    prop::collection::vec((0usize..4, access, addr), 1..600)
}

proptest! {
    #[test]
    fn every_outcome_is_the_references(steps in steps()) {
        let mut model = hierarchy();
        let mut reference = Reference { config: tiny(), held: vec![], now: 0 };
        let mut misses = std::collections::BTreeMap::<(u64, usize), u32>::new();
        for (at, (hart, access, addr)) in steps.into_iter().enumerate() {
            let (found, want) = (model.access(hart, access, addr), reference.access(hart, access, addr));
            prop_assert_eq!(found, want, "step {}: hart {} {:?} {:#x}", at, hart, access, addr);
            if matches!(want.source, Source::Local | Source::Remote) {
                *misses.entry((addr & !4095, tiny().node_of(hart))).or_default() += 1;
            }
        }
        for ((page, node), count) in misses {
            prop_assert_eq!(model.shared().misses((page - 0x8000_0000) / 4096, node), count);
        }
    }
}

#[test]
fn a_remote_page_becomes_hot_once_and_a_full_queue_drops() {
    let mut model = hierarchy();
    let shared = *model.shared();
    let page = |number: u64| 0x8000_2000 + number * 4096;
    for line in 0..8 {
        model.access(0, Access::Load, page(0) + line * 64);
        model.access(2, Access::Load, page(1) + line * 64);
    }
    let entry = shared.header().queue_at(0);
    assert_eq!((shared.get(at::PRODUCER), shared.get(entry), shared.get(entry + 8)), (1, 2, 0));
    // Node 1 missed on its own memory, and a page is reported once. The queue has room for two.
    for (hart, start) in [(0, page(1)), (2, 0x8000_0000), (2, 0x8000_1000)] {
        for line in 8..16 {
            model.access(hart, Access::Load, start + line * 64);
        }
    }
    assert_eq!((shared.get(at::PRODUCER), shared.get(at::DROPPED)), (2, 2));
    shared.set(at::CONSUMER, 2);
    shared.reset_pages();
    assert_eq!(shared.misses(2, 0), 0);
    shared.set(at::HOT_THRESHOLD, 1);
    model.access(0, Access::Load, page(0) + 32 * 64);
    assert_eq!((shared.get(at::PRODUCER), shared.get(entry)), (3, 2));
}
