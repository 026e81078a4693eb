//! The project's parallel programs on SPLASHOS. The command line says which:
//!
//! ```text
//! program=NAME,NAME   which of them, one after the other (all)
//! size=small|full     how much (small)
//! threads=N           on how many vCPUs (all)
//! program=none stay=1 nothing: the VM waits until somebody ends it
//! ```
//! Prints `SPLASH name=NAME result=X ns=N` for each, and last `WORKLOAD done ...` as the lab's Linux guests do. A wrong result ends
//! the VM with that reason.
#![cfg_attr(target_os = "none", no_std, no_main)]

use model_file::hint;
use splashos::{Condition, Crew, Mutex, Outcome, Vcpus, argument, mark, now_ns, println, program};
use workloads::splash::PROGRAMS;
use workloads::{Size, marks};

program!(run);

fn run() -> Outcome {
    let size = argument("size").map_or(Some(Size::Small), Size::from_word).ok_or("the size is small or full")?;
    let crew = match argument("threads").map(str::parse::<usize>) {
        None => Vcpus::all(),
        Some(threads) => threads.ok().and_then(Vcpus::first).ok_or("there are not so many vCPUs")?,
    };
    let wanted = argument("program").unwrap_or("all");
    let is_wanted = |name: &str| wanted == "all" || wanted.split(',').any(|word| word == name);
    let unknown = |word: &str| word != "all" && word != "none" && PROGRAMS.iter().all(|program| program.name != word);
    if wanted.split(',').any(unknown) {
        return Err("there is no such program");
    }
    let mut last = 0;
    for program in PROGRAMS.iter().filter(|program| is_wanted(program.name)) {
        mark::<{ hint::ON }>();
        wait_ns(1_000_000);
        mark::<{ marks::BEGIN }>();
        mark::<{ marks::part_begins(0) }>();
        let began = now_ns();
        last = (program.run)(&crew, size);
        let took = now_ns() - began;
        mark::<{ marks::part_ends(0) }>();
        mark::<{ marks::END }>();
        mark::<{ hint::OFF }>();
        println!("SPLASH name={} result={last:016x} ns={took}", program.name);
        if last != (program.expected)(size) {
            println!("expected {:016x}", (program.expected)(size));
            return Err("the result is wrong");
        }
    }
    if wanted == "none" && argument("stay").is_some() {
        println!("SPLASH stays");
        let never = Mutex::new(());
        let mut guard = never.lock();
        loop {
            guard = Condition::new().wait(guard);
        }
    }
    println!("WORKLOAD done name={wanted} threads={} result={last:016x}", crew.threads());
    Ok(())
}

/// A moment, for a machine model that was switched on to follow.
fn wait_ns(nanoseconds: u64) {
    let begin = now_ns();
    while now_ns() - begin < nanoseconds {
        core::hint::spin_loop();
    }
}
