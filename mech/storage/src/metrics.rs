//! Counters.

/// What a shared disk has done since it was made, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskMetrics {
    /// Blocks that requests found in the cache.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Blocks that somebody else was reading already.
    pub joins: u64,
    /// Blocks served from private pages.
    pub private_reads: u64,
    /// Bytes of reads that were served by mapping a page of the cache, or a private one.
    pub mapped_bytes: u64,
    /// Bytes of reads that were copied because the request or its buffer is not aligned to a page.
    pub unaligned_bytes: u64,
    /// Bytes of reads that were copied because the guest's page could not be replaced.
    pub refused_bytes: u64,
    /// Read operations of the machine's disk.
    pub io_reads: u64,
    /// Blocks that they read, those ahead included.
    pub io_blocks_read: u64,
    /// Write operations of the machine's disk.
    pub io_writes: u64,
    /// Sectors that they wrote.
    pub io_sectors_written: u64,
    /// Flushes of the machine's disk.
    pub io_flushes: u64,
    /// Operations of the machine's disk that failed.
    pub io_errors: u64,
    /// Completions that named no operation.
    pub io_strays: u64,
    /// Pages given back by the clock.
    pub reclaimed: u64,
    /// Requests that failed, for whatever reason.
    pub failed_requests: u64,
    /// Requests that failed because there was no page.
    pub no_space: u64,
    /// Cached blocks now, those being read included.
    pub cached_pages: u64,
    /// Pages of modified blocks of all VMs now.
    pub private_pages: u64,
    /// Pages that hold data on its way to the machine's disk now.
    pub staging_pages: u64,
}
