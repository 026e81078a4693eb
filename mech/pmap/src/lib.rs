//! The truth about a VM's memory: which guest page is backed by what.
#![no_std]
#![forbid(unsafe_code)]
