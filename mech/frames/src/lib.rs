//! Machine memory by the page: the memmap, the frame allocator and what waits for a shootdown.
#![no_std]
#![forbid(unsafe_code)]
