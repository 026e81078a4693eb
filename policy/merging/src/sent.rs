//! What was sent lately, and what is to be looked for when: see [`crate::wire`].

use addr::{Mfn, VmId};
use alloc::vec::Vec;
use scarce::Grow;

/// Ranges of pages that are remembered at most; of more, those that were sent last.
pub const MOST_RANGES: usize = 32_768;
/// Rounds after the wire has become quiet, each after twice the time of the one before: 1, 2, 4 and 8 seconds.
pub const LATE_ROUNDS: u32 = 4;
/// Pages sent between two rounds, with fewer of which the wire is quiet: what guests say to each other anyway.
pub const QUIET_PAGES: u64 = 16;

/// Machine pages that follow each other, in one word: a page cache is rarely in one piece, and many of them are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range(u64);

impl Range {
    const PAGES_SHIFT: u32 = 48;
    const MOST_PAGES: u64 = 1023;

    /// So many pages. What is too much for one range is left out.
    #[must_use]
    pub fn new(first: Mfn, pages: u64) -> Self {
        let first = first.raw() & ((1 << Self::PAGES_SHIFT) - 1);
        Self(pages.min(Self::MOST_PAGES) << Self::PAGES_SHIFT | first)
    }

    /// Its first page.
    #[must_use]
    pub const fn first(self) -> Mfn {
        Mfn::new(self.0 & ((1 << Self::PAGES_SHIFT) - 1))
    }

    /// How many.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.0 >> Self::PAGES_SHIFT
    }

    /// Both in one, if `other` follows on this one or overlaps its end.
    fn joined(self, other: Self) -> Option<Self> {
        let ahead = other.first().raw().checked_sub(self.first().raw())?;
        let pages = self.pages().max(ahead + other.pages());
        (ahead <= self.pages() && pages <= Self::MOST_PAGES).then(|| Self::new(self.first(), pages))
    }
}

/// Pages that were sent, the last [`MOST_RANGES`] ranges of them. No memory is taken before something is.
#[derive(Debug, Default)]
pub struct Sent {
    ranges: Vec<Range>,
    /// Where the oldest is, once all places are taken.
    oldest: usize,
    /// Whose they were.
    senders: Vec<VmId>,
}

impl Sent {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new(), oldest: 0, senders: Vec::new() }
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Remembers what a VM has sent. What follows on the last range, or overlaps its end, is added to that.
    pub fn push(&mut self, sender: VmId, range: Range) {
        note_vm(&mut self.senders, sender);
        self.add(range);
    }

    fn add(&mut self, range: Range) {
        let last = if self.oldest == 0 { self.ranges.len() } else { self.oldest }.checked_sub(1);
        if let Some(last) = last.and_then(|last| self.ranges.get_mut(last))
            && let Some(joined) = last.joined(range)
        {
            *last = joined;
            return;
        }
        if self.ranges.len() < MOST_RANGES {
            // Without memory for it the hint is lost.
            if self.ranges.grow(1).is_ok() {
                self.ranges.push(range);
            }
        } else if let Some(place) = self.ranges.get_mut(self.oldest) {
            *place = range;
            self.oldest = (self.oldest + 1) % MOST_RANGES;
        }
    }

    /// The range of this number, those that were sent first in front.
    fn nth(&self, number: usize) -> Option<Range> {
        let early = self.ranges.len() - self.oldest;
        let at = if number < early { self.oldest + number } else { number - early };
        self.ranges.get(at).copied().filter(|_| number < self.ranges.len())
    }

    /// All of it; nothing is remembered afterwards.
    #[must_use]
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }
}

/// One more VM, once. Without memory for it, it is left out.
fn note_vm(vms: &mut Vec<VmId>, vm: VmId) {
    if !vms.contains(&vm) && vms.grow(1).is_ok() {
        vms.push(vm);
    }
}

/// What went over the wire since it was last quiet.
#[derive(Debug, Default)]
pub struct Recent {
    /// All of it, with its senders.
    all: Sent,
    /// What the last round has searched for: once more in the next one, for what its receiver had not stored yet.
    last: Sent,
    /// Who has received, in the last round's time and in all.
    last_receivers: Vec<VmId>,
    receivers: Vec<VmId>,
    /// Rounds since it became quiet.
    quiet: u32,
    /// The next round, of which not all ranges have been looked at.
    gathering: Option<Gathering>,
}

/// A round in the making.
#[derive(Debug)]
struct Gathering {
    fresh: Sent,
    receivers: Vec<VmId>,
    /// The range that comes next: of what is fresh, then of what is gathered.
    at: usize,
    /// Pages of those that have been looked at.
    pages: u64,
    /// What the round is to search for, once all that is fresh has been looked at.
    search: Option<Search>,
}

/// How far a round in the making is.
#[derive(Debug, PartialEq, Eq)]
pub enum Gathered {
    /// There is more to look at.
    More,
    /// It is to search for this.
    All(Search),
    /// There is none: all that was sent has been looked for often enough, and nothing is remembered. Or none was begun.
    Nothing,
}

/// What a round is to search for, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct Search {
    /// What was sent.
    pub ranges: Vec<Range>,
    /// Who may have it twice.
    pub vms: Vec<VmId>,
    /// Seconds until the next round.
    pub next_s: u64,
}

impl Recent {
    /// Nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            all: Sent::new(),
            last: Sent::new(),
            last_receivers: Vec::new(),
            receivers: Vec::new(),
            quiet: 0,
            gathering: None,
        }
    }

    /// Time for a round: this was sent since the one before, and these have received something. [`Recent::gather`] makes it.
    pub fn begin_round(&mut self, fresh: Sent, receivers: Vec<VmId>) {
        self.gathering = Some(Gathering { fresh, receivers, at: 0, pages: 0, search: None });
    }

    /// Whether a round is in the making.
    #[must_use]
    pub const fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// A step towards the round that was begun, over at most so many ranges.
    pub fn gather(&mut self, most: usize) -> Gathered {
        let Some(mut round) = self.gathering.take() else { return Gathered::Nothing };
        for _ in 0..most {
            let Some(search) = &mut round.search else {
                match round.fresh.nth(round.at) {
                    Some(range) => {
                        round.pages += range.pages();
                        self.all.add(range);
                        round.at += 1;
                    }
                    None => match self.judge(&round) {
                        Some(search) => (round.search, round.at) = (Some(search), 0),
                        None => {
                            *self = Self::new();
                            return Gathered::Nothing;
                        }
                    },
                }
                continue;
            };
            let of_last = self.last.ranges.len();
            let next = match self.quiet {
                0 if round.at < of_last => self.last.nth(round.at),
                0 => round.fresh.nth(round.at - of_last),
                _ => self.all.nth(round.at),
            };
            let Some(range) = next.filter(|_| search.ranges.len() < search.ranges.capacity()) else {
                let search = round.search.take();
                if self.quiet == 0 {
                    self.last = round.fresh;
                }
                return search.map_or(Gathered::Nothing, Gathered::All);
            };
            search.ranges.push(range);
            round.at += 1;
        }
        self.gathering = Some(round);
        Gathered::More
    }

    /// All that is fresh has been looked at: where the round is to search, with room for what it is to search for. `None` if there is
    /// to be none.
    fn judge(&mut self, round: &Gathering) -> Option<Search> {
        round.fresh.senders.iter().for_each(|vm| note_vm(&mut self.all.senders, *vm));
        round.receivers.iter().for_each(|vm| note_vm(&mut self.receivers, *vm));
        let (count, vms, next_s) = if round.pages >= QUIET_PAGES {
            self.quiet = 0;
            let mut vms = core::mem::replace(&mut self.last_receivers, round.receivers.clone());
            self.last_receivers.iter().for_each(|vm| note_vm(&mut vms, *vm));
            (self.last.ranges.len() + round.fresh.ranges.len(), vms, 1)
        } else {
            self.quiet += 1;
            if self.quiet > LATE_ROUNDS {
                return None;
            }
            let mut vms = self.receivers.clone();
            self.all.senders.iter().for_each(|vm| note_vm(&mut vms, *vm));
            (self.all.ranges.len(), vms, 1 << self.quiet)
        };
        // Without memory for them nothing is searched for.
        let ranges = scarce::room(count).unwrap_or_default();
        Some(Search { ranges, vms, next_s })
    }

    /// A VM has ended.
    pub fn forget(&mut self, vm: VmId) {
        for vms in [&mut self.all.senders, &mut self.last_receivers, &mut self.receivers] {
            vms.retain(|known| *known != vm);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    const SENDER: VmId = VmId(1);

    fn range(first: u64, pages: u64) -> Range {
        Range::new(Mfn::new(first), pages)
    }

    fn ranges(sent: &Sent) -> Vec<Range> {
        (0..).map_while(|number| sent.nth(number)).collect()
    }

    /// A round, made in steps of so many ranges.
    fn round(recent: &mut Recent, fresh: Sent, receivers: Vec<VmId>, most: usize) -> Option<Search> {
        recent.begin_round(fresh, receivers);
        loop {
            match recent.gather(most) {
                Gathered::More => assert!(recent.is_gathering()),
                Gathered::All(search) => return Some(search),
                Gathered::Nothing => return None,
            }
        }
    }

    #[test]
    fn what_follows_is_one_range() {
        let mut sent = Sent::new();
        assert!(sent.is_empty());
        for (first, pages) in [(10, 2), (11, 4), (12, 1), (16, 1), (17, 1), (18, 1022)] {
            sent.push(SENDER, range(first, pages));
        }
        let all = sent.take();
        assert_eq!(ranges(&all), [range(10, 5), range(16, 2), range(18, 1022)]);
        assert_eq!(all.senders, [SENDER]);
        assert!(sent.is_empty());
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut sent = Sent::new();
        for n in 0..MOST_RANGES as u64 + 3 {
            sent.push(SENDER, range(2 * n, 1));
        }
        // Also in the places that were taken again, neighbours become one.
        sent.push(SENDER, range(2 * (MOST_RANGES as u64 + 2) + 1, 1));
        let all = ranges(&sent);
        assert_eq!(all.len(), MOST_RANGES);
        assert!(all.is_sorted_by_key(|range| range.first()), "those that were sent first are in front");
        assert_eq!(all.first(), Some(&range(6, 1)));
        assert_eq!(all.iter().map(|range| range.pages()).sum::<u64>(), MOST_RANGES as u64 + 1);
    }

    #[test]
    fn while_much_is_sent_the_last_two_rounds_count_and_later_all_at_both_ends() {
        for most in [1, 2, 1_000] {
            two_rounds_then_all(most);
        }
    }

    fn two_rounds_then_all(most: usize) {
        let mut recent = Recent::new();
        let sent = |first| {
            let mut sent = Sent::new();
            sent.push(SENDER, range(first, QUIET_PAGES));
            sent
        };
        let search = |ranges: &[Range], vms: &[u16], next_s| {
            let vms = vms.iter().map(|vm| VmId(*vm)).collect();
            Some(Search { ranges: ranges.to_vec(), vms, next_s })
        };
        let [one, two, three] = [100, 200, 300].map(|first| range(first, QUIET_PAGES));
        assert_eq!(round(&mut recent, sent(100), vec![VmId(2)], most), search(&[one], &[2], 1));
        assert_eq!(round(&mut recent, sent(200), vec![VmId(3)], most), search(&[one, two], &[2, 3], 1));
        assert_eq!(round(&mut recent, sent(300), Vec::new(), most), search(&[two, three], &[3], 1));
        // A little talk does not keep the wire from being quiet, and is not lost.
        let mut talk = Sent::new();
        talk.push(VmId(5), range(900, QUIET_PAGES - 1));
        let all = [one, two, three, range(900, QUIET_PAGES - 1)];
        assert_eq!(round(&mut recent, talk, Vec::new(), most), search(&all, &[2, 3, 1, 5], 2));
        recent.forget(VmId(3));
        for quiet in 2..=LATE_ROUNDS {
            assert_eq!(round(&mut recent, Sent::new(), Vec::new(), most), search(&all, &[2, 1, 5], 1 << quiet));
        }
        assert_eq!(round(&mut recent, Sent::new(), Vec::new(), most), None);
        assert_eq!(
            round(&mut recent, sent(300), Vec::new(), most),
            search(&[three], &[], 1),
            "nothing else is remembered"
        );
    }

    /// However much was sent, a step looks at no more ranges than it may.
    #[test]
    fn a_step_of_gathering_is_bounded() {
        const MOST: usize = 1_000;
        let many = |from: u64| {
            let mut sent = Sent::new();
            (0..MOST_RANGES as u64 + 7).for_each(|n| sent.push(SENDER, range(2 * n + from, 1)));
            sent
        };
        let mut recent = Recent::new();
        round(&mut recent, many(0), vec![VmId(2)], usize::MAX).expect("much was sent");
        recent.begin_round(many(1_000_000), vec![VmId(2)]);
        let mut steps = 0;
        let (mut noted, mut gathered) = (0, 0);
        let search = loop {
            match recent.gather(MOST) {
                Gathered::All(search) => break search,
                Gathered::More => {}
                Gathered::Nothing => panic!("much was sent"),
            }
            steps += 1;
            let state = recent.gathering.as_ref().unwrap();
            let now = (state.at, state.search.as_ref().map_or(0, |search| search.ranges.len()));
            let (was_noted, was_gathered) = (noted, gathered);
            (noted, gathered) = if state.search.is_none() { (now.0, 0) } else { (MOST_RANGES, now.1) };
            assert!(noted - was_noted + gathered - was_gathered <= MOST);
        };
        assert_eq!(search.ranges.len(), 2 * MOST_RANGES);
        assert_eq!(steps, 3 * MOST_RANGES / MOST);
    }
}
