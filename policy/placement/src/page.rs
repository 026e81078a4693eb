//! One page.

use addr::NodeId;

use crate::{History, Misses, NODES, NodeBits, Switches, Thresholds};

/// What is known of a page that `by` misses on often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFacts<const N: usize = NODES> {
    /// The node that misses.
    pub by: NodeId,
    /// Where the page is (of a replicated one: the copy that was missed on).
    pub home: NodeId,
    /// Misses of each node since the counters began.
    pub misses: Misses<N>,
    /// What it is.
    pub backing: Backing,
    /// Whether it is written.
    pub writes: Writes,
    /// Whether a device uses it.
    pub is_pinned: bool,
    /// Whether a vCPU of its VM changed nodes so lately that misses tell of where it was.
    pub is_unsettled: bool,
    /// How often it was tried.
    pub history: History,
    /// Whether its VM has anything left for pages that were tried before ([`crate::Budget`]).
    pub may_retry: bool,
}

/// What backs a guest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A page of the VM's own.
    Private,
    /// A page that other VMs or the disk cache have, too: nobody writes it, so any node may have a copy.
    Shared,
    /// The same, and one leaf of 2 MiB stands for its block and 511 like it.
    SharedBlock,
    /// Copies of a page: bit `n` for node `n`, the first copy's node not included.
    Replicated {
        /// The nodes.
        nodes: NodeBits,
    },
}

/// What is known of writes to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Nobody has looked.
    Unknown,
    /// None since somebody looked.
    None,
    /// Some.
    Seen,
}

/// What to do with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proposal {
    /// Nothing.
    Leave(Reason),
    /// Move it.
    Migrate {
        /// Where to.
        to: NodeId,
        /// Why.
        reason: Reason,
    },
    /// Find out whether it is written, and ask again then.
    Watch,
    /// Make a copy.
    Replicate {
        /// For whom.
        on: NodeId,
        /// Why.
        reason: Reason,
    },
    /// One copy is enough.
    Collapse(Reason),
}

/// Why, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// One node uses it.
    OneUser,
    /// Several nodes read it.
    Readers,
    /// It is where it is used.
    Local,
    /// Too few misses.
    Cold,
    /// Several nodes use it and some write it.
    WriteShared,
    /// It is in a block that other VMs have, too, and one leaf stands for all of it: copies are of the whole block.
    Shared,
    /// A device uses it.
    Pinned,
    /// It was tried too often.
    Tried,
    /// A vCPU has just changed nodes.
    Unsettled,
    /// The VM is not to have it.
    SwitchedOff,
    /// A fact that makes no sense.
    BadFacts,
}

/// What to do with a page at tick `now`.
#[must_use]
#[inline(always)]
pub fn decide<const N: usize>(facts: &PageFacts<N>, now: u16, switches: Switches, thresholds: &Thresholds) -> Proposal {
    use Proposal::{Collapse, Leave, Migrate, Replicate, Watch};
    let by = facts.by;
    if by.index() >= N || facts.home.index() >= N {
        return Leave(Reason::BadFacts);
    }
    if let Backing::Replicated { .. } = facts.backing
        && !switches.replicate
    {
        return Collapse(Reason::SwitchedOff);
    }
    if by == facts.home {
        return Leave(Reason::Local);
    }
    if facts.misses[by.index()] < thresholds.hot {
        return Leave(Reason::Cold);
    }
    if facts.is_pinned {
        return Leave(Reason::Pinned);
    }
    if facts.is_unsettled {
        return Leave(Reason::Unsettled);
    }
    // Of copies there can be as many as there are nodes: the first one was the try.
    if matches!(facts.backing, Backing::Private) && !facts.history.lets(facts.may_retry, now, thresholds) {
        return Leave(Reason::Tried);
    }
    let uses = |node: NodeId| facts.misses[node.index()] > thresholds.sharing;
    // Mostly it is the page's own node, if any other.
    let is_used_elsewhere = uses(facts.home) || users(&facts.misses, thresholds) > usize::from(uses(by));
    match facts.backing {
        Backing::SharedBlock => Leave(Reason::Shared),
        Backing::Shared if !switches.replicate => Leave(Reason::SwitchedOff),
        // Its row is not the VM's alone: tries are counted in what the VM may spend, all of them.
        Backing::Shared if !facts.may_retry => Leave(Reason::Tried),
        Backing::Shared => Replicate { on: by, reason: Reason::Readers },
        Backing::Replicated { nodes } if nodes & 1 << by.index() != 0 => Leave(Reason::Local),
        Backing::Replicated { .. } => Replicate { on: by, reason: Reason::Readers },
        Backing::Private if !is_used_elsewhere && switches.migrate => Migrate { to: by, reason: Reason::OneUser },
        Backing::Private if !is_used_elsewhere || !switches.replicate => Leave(Reason::SwitchedOff),
        Backing::Private => match facts.writes {
            Writes::Unknown => Watch,
            Writes::None => Replicate { on: by, reason: Reason::Readers },
            Writes::Seen => Leave(Reason::WriteShared),
        },
    }
}

/// How many nodes use it. Eight nodes take no loop: this is asked of every hot page.
#[inline(always)]
fn users<const N: usize>(misses: &Misses<N>, thresholds: &Thresholds) -> usize {
    let uses = |misses: &u32| usize::from(*misses > thresholds.sharing);
    let (eights, rest) = misses.as_chunks::<8>();
    let of_eight = |[a, b, c, d, e, f, g, h]: &[u32; 8]| {
        uses(a) + uses(b) + uses(c) + uses(d) + uses(e) + uses(f) + uses(g) + uses(h)
    };
    eights.iter().map(of_eight).sum::<usize>() + rest.iter().map(uses).sum::<usize>()
}

/// The node that uses a page almost alone, by what few misses there may be, and its misses.
#[must_use]
pub fn sole_user<const N: usize>(misses: &Misses<N>, thresholds: &Thresholds) -> Option<(NodeId, u32)> {
    let total: u64 = misses.iter().map(|misses| u64::from(*misses)).sum();
    let (node, most) = misses.iter().copied().enumerate().max_by_key(|(_, misses)| *misses)?;
    let is_alone = most > 0 && u64::from(most) * 1000 >= total * u64::from(thresholds.dominant_permille);
    is_alone.then_some((NodeId(node as u8), most))
}

/// The nodes, of so many, that are to have copies, too, when a page is replicated for one that asked: those that are about to ask.
/// Bit `n` is for node `n`.
#[must_use]
#[inline]
pub fn other_readers<const N: usize>(facts: &PageFacts<N>, thresholds: &Thresholds, nodes: usize) -> NodeBits {
    let have = match facts.backing {
        Backing::Replicated { nodes } => nodes,
        Backing::Private | Backing::Shared | Backing::SharedBlock => 0,
    };
    let read_it = facts.misses.iter().take(nodes).enumerate().filter(|(_, misses)| **misses >= thresholds.hot / 2);
    let readers = read_it.fold(0, |bits, (node, _)| bits | 1 << node);
    readers & !(have | 1 << facts.by.index() | 1 << facts.home.index())
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Thresholds = Thresholds::for_misses();

    fn hot(by: u8, misses: &[u32]) -> PageFacts {
        let mut counts = [0; NODES];
        counts[..misses.len()].copy_from_slice(misses);
        PageFacts {
            by: NodeId(by),
            home: NodeId(0),
            misses: counts,
            backing: Backing::Private,
            writes: Writes::Unknown,
            is_pinned: false,
            is_unsettled: false,
            history: History::default(),
            may_retry: true,
        }
    }

    fn ask(facts: &PageFacts) -> Proposal {
        decide(facts, 1000, Switches::BOTH, &T)
    }

    #[test]
    fn a_page_of_one_user_goes_to_it() {
        let migrate = Proposal::Migrate { to: NodeId(2), reason: Reason::OneUser };
        assert_eq!(ask(&hot(2, &[8, 0, 32])), migrate);
        assert_eq!(ask(&PageFacts { writes: Writes::Seen, ..hot(2, &[0, 0, 500]) }), migrate, "writes do not matter");
        assert_eq!(ask(&hot(2, &[0, 0, 31])), Proposal::Leave(Reason::Cold));
        assert_eq!(ask(&hot(0, &[900])), Proposal::Leave(Reason::Local));
    }

    #[test]
    fn a_page_of_several_is_watched_then_replicated_or_left() {
        let facts = hot(1, &[9, 32]);
        assert_eq!(ask(&facts), Proposal::Watch);
        let replicate = Proposal::Replicate { on: NodeId(1), reason: Reason::Readers };
        assert_eq!(ask(&PageFacts { writes: Writes::None, ..facts }), replicate);
        assert_eq!(ask(&PageFacts { writes: Writes::Seen, ..facts }), Proposal::Leave(Reason::WriteShared));
        let copies = Backing::Replicated { nodes: 0b100 };
        assert_eq!(ask(&PageFacts { backing: copies, ..facts }), replicate);
        let there = Backing::Replicated { nodes: 0b10 };
        assert_eq!(ask(&PageFacts { backing: there, ..facts }), Proposal::Leave(Reason::Local));
    }

    #[test]
    fn copies_are_for_all_who_will_ask_soon() {
        let readers = |facts: PageFacts| other_readers(&facts, &T, 5);
        let facts = hot(2, &[500, 15, 32, 16, 99]);
        assert_eq!(readers(facts), 0b1_1000, "not where it is, nor who hardly reads it");
        assert_eq!(readers(PageFacts { backing: Backing::Replicated { nodes: 0b1_0000 }, ..facts }), 0b1000);
        assert_eq!(readers(hot(1, &[0, 32])), 0);
    }

    #[test]
    fn one_user_is_alone() {
        assert_eq!(sole_user(&hot(0, &[8, 0, 144, 8]).misses, &T), Some((NodeId(2), 144)));
        assert_eq!(sole_user(&hot(0, &[8, 0, 143, 8]).misses, &T), None);
        assert_eq!(sole_user(&hot(0, &[0, 3]).misses, &T), Some((NodeId(1), 3)));
        assert_eq!(sole_user(&hot(0, &[9, 9]).misses, &T), None);
        assert_eq!(sole_user(&[0; NODES], &T), None);
    }

    #[test]
    fn what_speaks_against_it_is_named() {
        let facts = hot(1, &[0, 500]);
        let leave = |facts: PageFacts, reason| assert_eq!(ask(&facts), Proposal::Leave(reason));
        leave(PageFacts { is_pinned: true, ..facts }, Reason::Pinned);
        leave(PageFacts { is_unsettled: true, ..facts }, Reason::Unsettled);
        leave(PageFacts { backing: Backing::SharedBlock, ..facts }, Reason::Shared);
        leave(PageFacts { history: History { tries: T.max_tries, last: 999 }, ..facts }, Reason::Tried);
        let once = History { tries: 1, last: 999 };
        leave(PageFacts { history: once, may_retry: false, ..facts }, Reason::Tried);
        assert_eq!(
            ask(&PageFacts { history: once, ..facts }),
            Proposal::Migrate { to: NodeId(1), reason: Reason::OneUser }
        );
        let later = History { tries: 1, last: 1000 - T.patience_ticks };
        let patient = PageFacts { history: later, may_retry: false, ..facts };
        assert_eq!(ask(&patient), ask(&facts), "it was left alone long enough");
        let twice = History { tries: 2, ..later };
        leave(PageFacts { history: twice, may_retry: false, ..facts }, Reason::Tried);
        let fresh = PageFacts { may_retry: false, ..facts };
        assert_eq!(ask(&fresh), ask(&facts), "a first try needs no budget");
        leave(PageFacts { by: NodeId(200), ..facts }, Reason::BadFacts);
        leave(PageFacts { home: NodeId(8), ..facts }, Reason::BadFacts);
    }

    #[test]
    fn a_shared_page_has_copies_as_far_as_the_budget_goes() {
        let facts = PageFacts { backing: Backing::Shared, ..hot(2, &[0, 0, 32]) };
        let replicate = Proposal::Replicate { on: NodeId(2), reason: Reason::Readers };
        assert_eq!(ask(&facts), replicate, "one user is enough: the others keep theirs");
        assert_eq!(ask(&PageFacts { history: History { tries: 9, last: 999 }, ..facts }), replicate, "others' tries");
        assert_eq!(ask(&PageFacts { may_retry: false, ..facts }), Proposal::Leave(Reason::Tried));
        assert_eq!(ask(&PageFacts { by: NodeId(0), ..facts }), Proposal::Leave(Reason::Local));
        let only_migrate = Switches { migrate: true, replicate: false };
        assert_eq!(decide(&facts, 0, only_migrate, &T), Proposal::Leave(Reason::SwitchedOff));
    }

    #[test]
    fn a_vm_has_what_it_asks_for() {
        let only = |migrate, replicate| Switches { migrate, replicate };
        let (one, several) = (hot(1, &[0, 500]), hot(1, &[500, 500]));
        let off = Proposal::Leave(Reason::SwitchedOff);
        assert_eq!(decide(&one, 0, only(false, true), &T), off);
        assert_eq!(decide(&several, 0, only(true, false), &T), off);
        assert_eq!(decide(&several, 0, only(false, true), &T), Proposal::Watch);
        assert_eq!(decide(&one, 0, Switches::NEITHER, &T), off);
        let copies = PageFacts { backing: Backing::Replicated { nodes: 2 }, ..several };
        assert_eq!(decide(&copies, 0, only(true, false), &T), Proposal::Collapse(Reason::SwitchedOff));
    }
}
