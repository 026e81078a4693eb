//! What the monitor does for all VMs: it keeps the list of them, builds them and lets them end, gives their vCPUs to harts, merges
//! equal pages, moves pages to who uses them, keeps
//! what VMs are promised of memory, gives memory up when there is none left, and tells of its own end.

pub mod alarms;
pub mod balance;
pub mod build;
pub mod cells;
pub mod crash;
pub mod joining;
pub mod locality;
pub mod mail;
pub mod merging;
pub mod modules;
pub mod promises;
pub mod reclaim;
pub mod registry;
pub mod reports;
pub mod shortage;
