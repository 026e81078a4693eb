//! The truth about a VM's memory: which guest page is backed by what.
//!
//! A VM's RAM is one range of guest pages. For each the pmap says what backs it; G-stage tables are only a cache of it
//! (crate `gstage`) and can be thrown away at any time. Device pages are not in the pmap.
//!
//! # Key types
//! - [`PageState`], [`Event`], [`step`]: a page's life as one total, pure transition function. Everything that ever happens
//!   to a guest page is a line in it, with the [`Actions`] that make it so: which leaves must go, what is copied, which
//!   reference is dropped.
//! - [`Pmap`]: the table. A 2 MiB block is either of one state (absent, or one private 2 MiB page) or has a table of 512
//!   eight-byte entries in one machine page of the VM's node. So a VM of 256 MiB takes 1 KiB, and 512 KiB at worst.
//! - [`Glance`]: the quick answer for the fault path; [`Pmap::populate_vacant`] goes with it.
//! - [`Pmap::watch`], [`Pmap::migrate`], [`Pmap::replicate`], [`Pmap::collapse_replicas`]: pages find their place; [`Pmap::page_for`]
//!   is the copy of a node.
//! - [`Mapping`]: what a lookup finds: the largest leaf that may be installed, and its [`Rights`].
//!
//! # What it refuses
//! Guest pages outside the RAM, impossible transitions ([`Refused`]), taking away a page that a device is using
//! ([`Refused::Pinned`]). It allocates nothing for guests and picks no node: the caller brings the frames. On an error the
//! pmap is unchanged and the caller's frame comes back.
//!
//! # Locking
//! None inside: a `Pmap` belongs under its VM's memory lock. It takes node locks of `frames` (leaf locks) on the way.
//!
//! # Tests
//! `tests/model.rs` runs random operations against a plain map: what backs what, the back-maps, the counts, and that no
//! page is lost. The slot codec has round-trip tests of its own.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod counts;
mod glance;
mod life;
mod mapping;
mod place;
mod pmap;
mod quick;
mod release;
mod share;
mod slot;

pub use counts::PmapCounts;
pub use glance::Glance;
pub use life::{Actions, Contents, Event, LeafChange, PageState, Refused, Rights, StateKind, step};
pub use mapping::Mapping;
pub use pmap::{Pmap, PmapError, PopulateError};
pub use release::Released;
pub use share::Swap;
