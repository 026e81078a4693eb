//! What the monitor does for all VMs: it keeps the list of them, builds them and lets them end, gives their vCPUs to harts, merges
//! equal pages, moves pages to who uses them, and gives memory up when there is none left.

pub mod alarms;
pub mod balance;
pub mod build;
pub mod joining;
pub mod locality;
pub mod mail;
pub mod merging;
pub mod modules;
pub mod reclaim;
pub mod registry;
pub mod reports;
pub mod shortage;
