//! The workloads.

use crate::Load;

const fn load(
    name: &'static str,
    summary: &'static str,
    archive: Option<&'static str>,
    memory_mib: (u32, u32),
    parts: &'static [&'static str],
) -> Load {
    Load { name, summary, archive, memory_mib, parts }
}

/// All workloads.
pub const LOADS: &[Load] = &[
    load(
        "compile",
        "pmake: make -jN of C sources by Debian's gcc (bzip2; Lua)",
        Some("loads-compile/compile.cpio"),
        (512, 768),
        &[],
    ),
    load("compute", "hashing, matrices, sorting and primes: a processor and little memory", None, (128, 128), &[]),
    load(
        "database",
        "decision-support queries to PostgreSQL on a warm cache, one client for each thread",
        Some("loads-database/database.cpio"),
        (768, 768),
        &[],
    ),
    load(
        "engineering",
        "gate-level simulations with large, linked state, several processes at once",
        None,
        (256, 512),
        &[],
    ),
    load("raytrace", "threads trace rays through one scene that all read", None, (128, 256), &[]),
    load("radix", "the parallel radix sort of SPLASH-2", None, (128, 256), &[]),
    load(
        "faults",
        "page faults: first touch, copy on write, rights, files, mappings, huge pages",
        None,
        (128, 128),
        &["anonymous", "copy_on_write", "protect", "file", "map_unmap", "huge"],
    ),
    load(
        "syscalls",
        "system calls, processes, threads, and two that wake each other",
        None,
        (128, 128),
        &[
            "getppid",
            "sched_yield",
            "pipe",
            "open_close",
            "fork",
            "exec",
            "thread",
            "sleep",
            "futex_ping_pong",
            "pipe_ping_pong",
        ],
    ),
    load(
        "web",
        "nginx and clients over the loopback, a worker and a client for each thread",
        Some("loads-web/web.cpio"),
        (192, 256),
        &[],
    ),
];
