//! The workloads.

use crate::Load;

/// Linux gives systems of less than 512 MiB no transparent huge pages. A guest that had less would be compared with a machine
/// whose kernel uses them.
const USUAL_MIB: u32 = 640;

const fn load(
    name: &'static str,
    summary: &'static str,
    archive: Option<&'static str>,
    memory_mib: (u32, u32),
    parts: &'static [&'static str],
) -> Load {
    Load { name, summary, archive, memory_mib, parts }
}

/// A parallel program of the kind of SPLASH-2, its threads pinned. SPLASHOS runs it, too.
const fn splash(name: &'static str, summary: &'static str) -> Load {
    load(name, summary, None, (USUAL_MIB, USUAL_MIB), &["program"])
}

/// All workloads.
pub const LOADS: &[Load] = &[
    load(
        "compile",
        "pmake: make -jN of C sources by Debian's gcc (bzip2; Lua)",
        Some("loads-compile/compile.cpio"),
        (USUAL_MIB, 1024),
        &[],
    ),
    load(
        "compute",
        "hashing, matrices, sorting and primes: a processor and little memory",
        None,
        (USUAL_MIB, USUAL_MIB),
        &[],
    ),
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
        (USUAL_MIB, USUAL_MIB),
        &[],
    ),
    load(
        "designs",
        "gate-level simulations by threads of one program, whose first thread has loaded all of them",
        None,
        (USUAL_MIB, USUAL_MIB),
        &["simulate"],
    ),
    load(
        "shadows",
        "threads light a scene that one of them has made by rays in all directions",
        None,
        (USUAL_MIB, USUAL_MIB),
        &["light"],
    ),
    load("raytrace", "threads trace rays through one scene that all read", None, (USUAL_MIB, USUAL_MIB), &[]),
    load("radix", "the parallel radix sort of SPLASH-2", None, (USUAL_MIB, USUAL_MIB), &[]),
    load(
        "faults",
        "page faults: first touch, copy on write, rights, files, mappings, huge pages",
        None,
        (USUAL_MIB, USUAL_MIB),
        &["anonymous", "copy_on_write", "protect", "file", "map_unmap", "huge"],
    ),
    load(
        "syscalls",
        "system calls, processes, threads, and two that wake each other",
        None,
        (USUAL_MIB, USUAL_MIB),
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
        (USUAL_MIB, USUAL_MIB),
        &[],
    ),
    splash("splash-radix", "a parallel radix sort whose threads make their own keys"),
    splash("splash-fft", "a Fourier transform in six steps"),
    splash("splash-lu", "LU factorization by blocks"),
    splash("splash-ocean", "relaxation of a grid"),
    splash("splash-barnes", "the N-body problem by Barnes and Hut"),
    splash("splash-water", "molecular dynamics, all pairs"),
    splash("splash-raytrace", "rays through one scene"),
];
