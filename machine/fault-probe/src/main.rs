//! A bare program that lives through hardware faults and tells what they look like.
//!
//! It runs on the fault firmware, on all harts; those with odd ids run their accesses as a guest, in VS-mode behind two stages
//! of translation. Each node has a copy of the program, its stacks and its tables in its own memory, as a monitor has that
//! wants to survive the others. All harts read, write and execute a page of every node, and keep interrupting and fencing
//! each other, until the machine's epoch changes. Then each survivor checks, and says in one line,
//!
//! - what it saw first: an access fault (cause, `stval`, `htval`, GVA), or the recovery interrupt;
//! - that exactly what the status page says is lost cannot be loaded, stored or executed, neither in HS-mode nor in a guest,
//!   and everything else can, with contents kept;
//! - that interrupts and remote fences to all harts, lost ones included, still come back.
//!
//! `SURVIVOR hart=3 node=1 mode=guest epoch=1 reach=0xb first=load cause=5 ...` ends with `ok`, or a line says `FAILED` and
//! why. Then it goes on until the next fault. The host ends the machine. `docs/abi/faults.md` is what is checked.
//!
//! No locks: a hart writes only its own words. What it refuses: firmware without faults, and machines whose nodes have
//! less than 64 MiB.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the fault probe runs on the emulated machine: build it with `./x build`");
    std::process::exit(2);
}
