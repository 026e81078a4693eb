//! What the threads of a guest do to its memory.

use addr::NodeId;

use super::STEP_MS;

/// Misses of a thread on each page of its working set, in a step: 400 in a second.
const MISSES: u32 = 2;

/// What a thread does to a page in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The thread's node.
    pub by: NodeId,
    /// The page, from the guest's first one on.
    pub page: u64,
    /// How often it misses on it.
    pub misses: u32,
    /// Whether it writes the page.
    pub is_write: bool,
}

/// What a guest does; it has a thread on each node of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Each thread works on so many pages of its own, and these begin on the node after its own.
    Engineering {
        /// Pages of a thread.
        pages: u64,
    },
    /// All threads read one scene, which begins on node 0, and each writes a few pages of its own, which are with it.
    Raytrace {
        /// Pages of the scene.
        pages: u64,
    },
    /// The threads of nodes 0 and 1 write the same pages by turns.
    PingPong {
        /// How many pages.
        pages: u64,
        /// How long each has its turn.
        turn_ms: u64,
    },
    /// All threads write all pages, all the time.
    Fight {
        /// How many pages.
        pages: u64,
    },
    /// Each thread has pages of its own, which are with it; after each phase it goes on with those of the next thread.
    Phases {
        /// Pages of a thread.
        pages: u64,
        /// How long a phase is.
        phase_ms: u64,
    },
}

/// Pages that a thread of a ray tracer has for itself.
const OWN: u64 = 16;

impl Load {
    /// Pages of the guest.
    #[must_use]
    pub const fn pages(self, nodes: usize) -> u64 {
        match self {
            Self::Engineering { pages } | Self::Phases { pages, .. } => pages * nodes as u64,
            Self::Raytrace { pages } => pages + OWN * nodes as u64,
            Self::PingPong { pages, .. } | Self::Fight { pages } => pages,
        }
    }

    /// Where a page is before anybody moves it.
    #[must_use]
    pub const fn home(self, page: u64, nodes: usize) -> NodeId {
        let node = match self {
            Self::Engineering { pages } => (page / pages + 1) % nodes as u64,
            Self::Phases { pages, .. } => page / pages,
            Self::Raytrace { pages } if page >= pages => (page - pages) / OWN,
            Self::Raytrace { .. } | Self::PingPong { .. } | Self::Fight { .. } => 0,
        };
        NodeId(node as u8)
    }

    /// What happens in the step that begins at `now_ms`.
    pub fn step(self, now_ms: u64, nodes: usize, mut access: impl FnMut(Access)) {
        for node in 0..nodes as u64 {
            let by = NodeId(node as u8);
            let mut all = |pages: std::ops::Range<u64>, is_write: bool| {
                pages.for_each(|page| access(Access { by, page, misses: MISSES, is_write }));
            };
            let next_step = now_ms / STEP_MS;
            match self {
                Self::Engineering { pages } => all(node * pages..(node + 1) * pages, true),
                Self::Phases { pages, phase_ms } => {
                    let first = (node + now_ms / phase_ms) % nodes as u64 * pages;
                    all(first..first + pages, true);
                }
                Self::Raytrace { pages } => {
                    all(0..pages, false);
                    all(pages + node * OWN..pages + (node + 1) * OWN, true);
                }
                Self::PingPong { pages, turn_ms } => {
                    if now_ms / turn_ms % 2 == node {
                        all(0..pages, true);
                    }
                }
                // Not all of them write in the same step: some steps are long enough to look quiet.
                Self::Fight { pages } => all(0..pages, (next_step + node).is_multiple_of(3)),
            }
        }
    }
}
