//! How many merged pages guests have written since: each cost a fault and a copy, and saved nothing.

use addr::VmId;
use alloc::vec::Vec;

/// Counts them. What became a guest's own again may have been shared for other reasons; no more are counted than were merged.
#[derive(Debug, Default)]
pub struct Breaks {
    /// Pages of each VM that have become its own again, when somebody looked last.
    seen: Vec<(VmId, u64)>,
    /// Pages that were merged and are not counted as written yet.
    merged: u64,
    counted: u64,
}

impl Breaks {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { seen: Vec::new(), merged: 0, counted: 0 }
    }

    /// So many pages more are one with others.
    pub const fn merged(&mut self, pages: u64) {
        self.merged = self.merged.saturating_add(pages);
    }

    /// So many pages of a VM have ever become its own again.
    pub fn look(&mut self, vm: VmId, broken: u64) {
        let before = match self.seen.iter_mut().find(|(of, _)| *of == vm) {
            Some((_, seen)) => core::mem::replace(seen, broken),
            None => {
                // What was broken before it was merged with anybody is not merging's.
                self.seen.push((vm, broken));
                broken
            }
        };
        let written = broken.saturating_sub(before).min(self.merged);
        self.merged -= written;
        self.counted += written;
    }

    /// Those since it was asked last.
    #[must_use]
    pub const fn take(&mut self) -> u64 {
        core::mem::replace(&mut self.counted, 0)
    }

    /// The VM is gone.
    pub fn forget(&mut self, vm: VmId) {
        self.seen.retain(|(of, _)| *of != vm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_merged_is_counted_once() {
        let (one, other) = (VmId(1), VmId(2));
        let mut breaks = Breaks::new();
        breaks.look(one, 100);
        assert_eq!(breaks.take(), 0, "before anything was merged");
        breaks.merged(10);
        breaks.look(one, 104);
        breaks.look(other, 50);
        assert_eq!((breaks.take(), breaks.take()), (4, 0));
        breaks.look(other, 53);
        breaks.look(one, 200);
        assert_eq!(breaks.take(), 6, "no more than were merged");
        breaks.merged(1);
        breaks.forget(one);
        // Its next life counts from the beginning.
        breaks.look(one, 3);
        breaks.look(one, 2);
        assert_eq!(breaks.take(), 0);
        breaks.look(one, 4);
        assert_eq!(breaks.take(), 1);
    }
}
