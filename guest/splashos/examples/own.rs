//! A program of one's own on SPLASHOS: the threads count primes.
//!
//! ```sh
//! cargo run -p splashos --example own                                                       # on the host
//! cargo build -p splashos --example own --profile monitor --target riscv64gc-unknown-none-elf  # for a VM
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]

use splashos::{Crew, Mutex, Outcome, Vcpus, println, program};

program!(run);

fn run() -> Outcome {
    let (crew, found) = (Vcpus::all(), Mutex::new(0));
    let has_divisor = |number: u32| (2..).take_while(|by| by * by <= number).any(|by| number.is_multiple_of(by));
    crew.each(&|thread| {
        let mine = (2..100_000).skip(thread).step_by(crew.threads());
        let count = mine.filter(|number| !has_divisor(*number)).count();
        *found.lock() += count;
    });
    println!("{} threads found {} primes", crew.threads(), *found.lock());
    if *found.lock() == 9592 { Ok(()) } else { Err("there are 9592 primes below 100000") }
}
