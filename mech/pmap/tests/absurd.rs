//! Sizes that no machine has memory for are refused, not died of. Alone in its process: it bounds the address space of that.

use addr::{Gfn, VmId};
use pmap::{Pmap, PmapError};
use rustix::process::{Resource, Rlimit, setrlimit};

/// What this process may have, so that a host which promises memory freely refuses, too.
const BYTES: u64 = 2 << 30;
/// Pages of a TiB.
const TIB: u64 = 1 << 28;

#[test]
fn a_table_of_blocks_that_finds_no_memory_is_refused() {
    setrlimit(Resource::As, Rlimit { current: Some(BYTES), maximum: Some(BYTES) }).unwrap();
    let sized = |pages| Pmap::new(VmId(1), Gfn::new(0x80000), pages).map(|pmap| pmap.pages());
    assert_eq!(sized(TIB), Ok(TIB), "its 4 MiB are there");
    for pages in [1 << 42, 1 << 48, (1 << 52) - 0x80000] {
        assert_eq!(sized(pages), Err(PmapError::OutOfTables), "{pages} pages");
    }
    assert_eq!(sized(u64::MAX), Err(PmapError::BadRange));
    assert_eq!(sized(0), Err(PmapError::BadRange));
}
