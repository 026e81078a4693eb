//! What several harts do to one memory, and several memories to one page.

mod backlog;
mod check;
mod door;
mod faults;
mod jobs;
mod life;
mod machine;
mod merging;
mod moves;
mod random;
mod tlb;
mod world;
