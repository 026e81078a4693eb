//! Going through all refusals of something that a test can do again and again.

use core::cell::{Cell, RefCell};
use core::panic::Location;
use std::collections::BTreeSet;

use crate::Refusals;

/// Places in the source that were refused memory: file, line and column.
pub type Sites = BTreeSet<(&'static str, u32, u32)>;

std::thread_local! {
    static REFUSALS: Refusals = const { Refusals::new() };
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
    static IS_GIVING: Cell<bool> = const { Cell::new(false) };
    static SITES: RefCell<Sites> = const { RefCell::new(Sites::new()) };
}

/// Most refusals of one scenario: one that asks for ever is a mistake of the test.
const MOST: u64 = 100_000;

/// Whether the calling thread takes memory that it may be refused: for allocators that watch who does not.
#[must_use]
pub fn is_asking() -> bool {
    IS_ASKING.get()
}

/// Runs `scenario` once for each allocation in it that may be refused, and refuses that one; the last time none. Returns where that was,
/// and prints it: `./x refusals` reads that.
///
/// # Panics
/// If it does not come to an end.
pub fn each_refusal(mut scenario: impl FnMut()) -> Sites {
    SITES.take();
    for first in 0..MOST {
        REFUSALS.with(|refusals| refusals.arm(first, 1));
        scenario();
        let asked = REFUSALS.with(Refusals::asked);
        REFUSALS.with(|refusals| refusals.arm(0, 0));
        if asked <= first {
            let sites = SITES.take();
            sites.iter().for_each(|(file, line, column)| std::println!("refused: {file}:{line}:{column}"));
            return sites;
        }
    }
    panic!("{MOST} allocations and no end");
}

/// Runs `act`, in which nothing is refused, nor counted: what a scenario looks at afterwards.
pub fn given<T>(act: impl FnOnce() -> T) -> T {
    let before = IS_GIVING.replace(true);
    let done = act();
    IS_GIVING.set(before);
    done
}

#[track_caller]
pub(crate) fn asks(reserve: impl FnOnce() -> bool) -> bool {
    if !IS_GIVING.get() && REFUSALS.with(Refusals::refuses) {
        let place = Location::caller();
        SITES.with_borrow_mut(|sites| sites.insert((place.file(), place.line(), place.column())));
        return false;
    }
    IS_ASKING.set(true);
    let is_given = reserve();
    IS_ASKING.set(false);
    is_given
}
