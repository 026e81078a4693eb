//! What the placement policy wants to know of a VM's memory, in the policy's words.

use super::GuestRam;
use addr::{Gfn, Mfn, NodeId, PageSize};
use frames::PageInfo;
use guest_memory::Tries;
use placement::{Backing, Found, History, Samples, Thresholds};

/// A page as the policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// How much one state covers.
    pub size: PageSize,
    /// What backs it.
    pub backing: Backing,
    /// Whether a device uses it.
    pub is_pinned: bool,
    /// How often it was tried.
    pub history: History,
}

/// A page's tries with one more at `tick`.
#[inline(always)]
pub fn one_more(tick: u16, thresholds: &Thresholds) -> impl Fn(Tries) -> Tries {
    move |(tries, last)| {
        let history = History { tries, last }.tried(tick, thresholds);
        (history.tries, history.last)
    }
}

/// What the policy asks of a VM's memory.
pub trait Facts {
    /// What is at `gfn`, if `page` is (a copy of) it; `row` is that page's.
    fn facts(&self, gfn: Gfn, page: Mfn, row: &PageInfo) -> Option<Located>;

    /// What is to be known of `gfn`, if it is backed by the shared page `page` and harts of `node` see that very page.
    fn shared_facts(&self, gfn: Gfn, page: Mfn, node: NodeId) -> Option<Backing>;

    /// One look at the pages of the round: who has used them since the last one. Returns how many faults brought leaves back meanwhile.
    fn look_at(&self, samples: &mut Samples) -> u64;

    /// Begins a round.
    fn begin_samples(&self, samples: &mut Samples);
}

impl Facts for GuestRam {
    #[inline(always)]
    fn facts(&self, gfn: Gfn, page: Mfn, row: &PageInfo) -> Option<Located> {
        let guest_memory::Located { size, backing, is_pinned, tries: (tries, last) } = self.locate(gfn, page, row)?;
        let backing = match backing {
            guest_memory::Backing::Private => Backing::Private,
            guest_memory::Backing::Shared => Backing::Shared,
            guest_memory::Backing::Replicated { nodes } => Backing::Replicated { nodes: nodes.into() },
        };
        Some(Located { size, backing, is_pinned, history: History { tries, last } })
    }

    fn shared_facts(&self, gfn: Gfn, page: Mfn, node: NodeId) -> Option<Backing> {
        Some(match self.shared_leaf(gfn, page, node)? {
            PageSize::Large => Backing::SharedBlock,
            PageSize::Base => Backing::Shared,
        })
    }

    fn look_at(&self, samples: &mut Samples) -> u64 {
        let mut faults = 0;
        self.sample(|leaves| {
            samples.look(|sample| {
                let is_same = policys(leaves.find(sample.gfn))
                    == Found::Page { gfn: sample.gfn, page: sample.page, size: sample.size };
                if is_same {
                    let users = leaves.users(sample.gfn);
                    sample.note(users.into());
                    faults += u64::from(users.count_ones());
                    leaves.take(sample.gfn, sample.size);
                }
                is_same
            });
        });
        faults
    }

    fn begin_samples(&self, samples: &mut Samples) {
        self.sample(|leaves| {
            samples.begin(|gfn| {
                let found = policys(leaves.find(gfn));
                if let Found::Page { gfn, size, .. } = found {
                    leaves.take(gfn, size);
                }
                found
            });
        });
    }
}

const fn policys(found: guest_memory::Found) -> Found {
    match found {
        guest_memory::Found::Page { gfn, page, size } => Found::Page { gfn, page, size },
        guest_memory::Found::Nothing { pages } => Found::Nothing { pages },
    }
}
