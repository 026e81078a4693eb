//! M-mode firmware: the SBI of the emulated machine, whose nodes, links and pages can be made to fail.
//!
//! It takes OpenSBI's place on QEMU's `virt` machine (`-bios`), with 1 to 64 harts, PLIC or AIA, and starts what the
//! emulator loaded behind it in HS-mode: the monitor, or any kernel. SBI 2.0: BASE, TIME, IPI, RFENCE, HSM, SRST, DBCN, PMU.
//!
//! # Faults
//! It is also the part of the hardware that contains faults. A request in its mailbox (`abi/faults`), or an SBI call, makes
//! nodes, links, node controllers or pages fail: harts stop wherever they are, and every survivor denies itself the lost
//! memory by physical memory protection, so that an access faults as it does on hardware that fails and stops. When all
//! survivors have gone over, they get a supervisor software interrupt (*recovery interrupt*), and the status page says what is
//! left.
//!
//! # Shape
//! What can be decided without a hart is in the library of this package, `containment`. Here, in `bare/`: the entry, the
//! traps, the SBI, and the faults' execution.
//!
//! # Rules
//! - No wait without a bound: a remote fence skips harts that are lost, and gives up on one that does not answer.
//! - M-mode runs with interrupts off and does bounded work; a hart that waits for another serves its own requests meanwhile.
//! - Locks: `bare::injection::STATE` first, then the console's; neither is held while waiting.
//! - Illegal instructions and misaligned accesses go to the supervisor: the emulated harts have `time` and misaligned
//!   accesses, so there is nothing to emulate. Machines without Sstc get their timer through M-mode.
//!
//! What it refuses: machines whose tree it cannot use (it says so on the UART and stops), and faults that `containment`
//! refuses.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod bare;

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("the firmware runs on the emulated machine: build it with `./x build`");
    std::process::exit(2);
}
