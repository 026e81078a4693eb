//! The standard questions to the planner.

use addr::PAGES_PER_LARGE;

use super::{By, Load, Numa, PlacementReport};

/// Pages of a thread, or of a scene.
const PAGES: u64 = 256;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementScenario {
    /// Each thread has memory of its own, on the wrong node.
    Engineering,
    /// The same, in blocks of 2 MiB.
    EngineeringBlocks,
    /// One scene that all threads read.
    Raytrace,
    /// The same, in blocks of 2 MiB.
    RaytraceBlocks,
    /// Two nodes write the same pages by turns that are longer than an interval of the counters.
    PingPong,
    /// All nodes write the same pages.
    Fight,
    /// Threads change their memory every ten seconds.
    Phases,
    /// A VM of each of the first kinds, and one that makes pages follow it.
    Mixed,
}

impl PlacementScenario {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Engineering,
        Self::EngineeringBlocks,
        Self::Raytrace,
        Self::RaytraceBlocks,
        Self::PingPong,
        Self::Fight,
        Self::Phases,
        Self::Mixed,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engineering => "engineering",
            Self::EngineeringBlocks => "engineering-blocks",
            Self::Raytrace => "raytrace",
            Self::RaytraceBlocks => "raytrace-blocks",
            Self::PingPong => "ping-pong",
            Self::Fight => "fight",
            Self::Phases => "phases",
            Self::Mixed => "mixed",
        }
    }

    fn loads(self) -> Vec<(Load, bool)> {
        let engineering = Load::Engineering { pages: PAGES };
        let raytrace = Load::Raytrace { pages: PAGES };
        let ping_pong = Load::PingPong { pages: PAGES, turn_ms: 300 };
        match self {
            Self::Engineering => vec![(engineering, false)],
            Self::EngineeringBlocks => vec![(Load::Engineering { pages: PAGES_PER_LARGE }, true)],
            Self::Raytrace => vec![(raytrace, false)],
            Self::RaytraceBlocks => vec![(Load::Raytrace { pages: PAGES_PER_LARGE }, true)],
            Self::PingPong => vec![(ping_pong, false)],
            Self::Fight => vec![(Load::Fight { pages: PAGES }, false)],
            Self::Phases => vec![(Load::Phases { pages: PAGES, phase_ms: 10_000 }, false)],
            Self::Mixed => vec![(engineering, false), (raytrace, false), (ping_pong, false)],
        }
    }

    /// Answers the question on a machine of `nodes` nodes (1 to 64) in `ms` milliseconds. A node has room for all its pages and copies.
    #[must_use]
    pub fn measure(self, nodes: usize, ms: u64, by: By) -> PlacementReport {
        // The planner of the monitor counts for eight nodes.
        if nodes <= placement::NODES {
            self.measure_on::<{ placement::NODES }>(nodes, ms, by)
        } else {
            self.measure_on::<64>(nodes, ms, by)
        }
    }

    fn measure_on<const N: usize>(self, nodes: usize, ms: u64, by: By) -> PlacementReport {
        let nodes = nodes.clamp(1, N);
        let pages = self.loads().iter().map(|(load, _)| load.pages(nodes)).sum::<u64>();
        let mut machine = Numa::<N>::new(nodes, pages + 8 * PAGES_PER_LARGE, by);
        for (load, is_large) in self.loads() {
            let has_started = machine.start(load, is_large);
            debug_assert!(has_started, "there is memory for all pages of all guests on each node");
        }
        machine.run(ms);
        machine.report()
    }
}
