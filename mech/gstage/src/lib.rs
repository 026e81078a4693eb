//! G-stage tables: a cache of the pmap, one per VM and node.
#![no_std]
#![forbid(unsafe_code)]
