//! Program `load`: runs workloads in a guest. A static Linux program without a C library, so that it is small, runs with
//! any kernel, and does nothing that was not asked for.
//!
//! ```text
//! load measure PROGRAM [ARGUMENT...]  runs a program between the marks of the region of interest, prints its time
//! load NAME SIZE THREADS              a workload: compute, engineering, raytrace, radix, faults, syscalls;
//!                                     web is the clients' half: a server listens at port 80 of 127.0.0.1
//! ```
//!
//! A workload prints `result=X` and succeeds, or says what is wrong and fails.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this program runs inside a Linux guest: build it with `./x build`");
    std::process::exit(2);
}

#[cfg(target_os = "none")]
mod guest;
