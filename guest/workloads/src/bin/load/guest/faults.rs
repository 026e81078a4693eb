//! Workload `faults`: what a guest's kernel does about memory. Each part has marks of its own.

use workloads::{Size, marks};

use super::linux;
use super::output::print;
use super::syscalls::part;

/// Bytes of each mapping.
const BYTES: usize = 8 << 20;
const PAGES: u64 = (BYTES / 4096) as u64;
const OUT_OF_MEMORY: &str = "no memory to map";

/// Runs every part.
pub fn run(size: Size) -> Result<u64, &'static str> {
    let rounds = size.pick(4, 32);
    let pages = rounds * PAGES;
    let mut sum = 0;
    part::<{ marks::part_begins(0) }, { marks::part_ends(0) }>("anonymous", pages, || {
        for round in 0..rounds {
            let memory = map(false)?;
            linux::touch(memory, BYTES, round);
            sum += linux::sum(memory, BYTES);
            linux::unmap(memory, BYTES);
        }
        Ok(())
    })?;
    let memory = map(false)?;
    linux::touch(memory, BYTES, 3);
    part::<{ marks::part_begins(1) }, { marks::part_ends(1) }>("copy_on_write", pages, || {
        for round in 0..rounds {
            let child = linux::fork(|| {
                linux::touch(memory, BYTES, round);
                i32::from(linux::sum(memory, BYTES) != round * PAGES)
            });
            if child?.wait() != 0 {
                return Err("a child does not see what it wrote");
            }
        }
        Ok(())
    })?;
    sum += linux::sum(memory, BYTES);
    part::<{ marks::part_begins(2) }, { marks::part_ends(2) }>("protect", pages, || {
        for round in 0..rounds {
            // Each page faults once more when it is written after its right was taken away and given back.
            if !linux::protect(memory, BYTES, false) || !linux::protect(memory, BYTES, true) {
                return Err("rights cannot be changed");
            }
            linux::touch(memory, BYTES, round);
        }
        Ok(())
    })?;
    sum += linux::sum(memory, BYTES);
    linux::unmap(memory, BYTES);
    sum += map_file(rounds, pages)?;
    part::<{ marks::part_begins(5) }, { marks::part_ends(5) }>("huge", pages, || {
        for round in 0..rounds {
            let memory = map(true)?;
            linux::touch(memory, BYTES, round);
            sum += linux::sum(memory, BYTES);
            linux::unmap(memory, BYTES);
        }
        Ok(())
    })?;
    // 0 + 1 + ... of the first and the last part, 3 of the untouched parent, the last round of the third, 5 of the file in each round.
    let expected = PAGES * (rounds * (rounds - 1) + 3 + (rounds - 1) + 5 * rounds);
    if sum == expected {
        return Ok(sum);
    }
    print!("load: the pages sum up to {sum}, not {expected}\n");
    Err("memory does not hold what was written")
}

/// A fresh mapping of 4 KiB pages, or of huge pages as far as the kernel has some.
fn map(huge: bool) -> Result<usize, &'static str> {
    let memory = linux::map(BYTES).ok_or(OUT_OF_MEMORY)?;
    // A kernel without huge pages refuses the advice, and gives small ones.
    linux::advise_huge(memory, BYTES, huge);
    Ok(memory)
}

/// Maps a file whose pages are in memory already: only tables are filled.
fn map_file(rounds: u64, pages: u64) -> Result<u64, &'static str> {
    let file = linux::open(c"/tmp/mapped", linux::CREATE).ok_or("no file can be made in /tmp")?;
    if !linux::resize(file, BYTES) {
        return Err("the file in /tmp cannot be made larger");
    }
    let whole = linux::map_file(file, BYTES).ok_or(OUT_OF_MEMORY)?;
    linux::touch(whole, BYTES, 5);
    linux::unmap(whole, BYTES);
    let mut sum = 0;
    part::<{ marks::part_begins(3) }, { marks::part_ends(3) }>("file", pages, || {
        for _ in 0..rounds {
            let memory = linux::map_file(file, BYTES).ok_or(OUT_OF_MEMORY)?;
            sum += linux::sum(memory, BYTES);
            linux::unmap(memory, BYTES);
        }
        Ok(())
    })?;
    part::<{ marks::part_begins(4) }, { marks::part_ends(4) }>("map_unmap", rounds * 256, || {
        for _ in 0..rounds * 256 {
            let memory = linux::map(BYTES).ok_or(OUT_OF_MEMORY)?;
            linux::unmap(memory, BYTES);
        }
        Ok(())
    })?;
    linux::close(file);
    Ok(sum)
}
