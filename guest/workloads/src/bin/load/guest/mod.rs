//! The program.

mod crew;
mod faults;
mod heap;
mod linux;
mod locks;
mod output;
mod syscalls;

extern crate alloc;

use core::sync::atomic::{AtomicU64, Ordering};

use model_file::hint;
use workloads::{Size, compute, engineering, marks, radix, raytrace, splash, web};

use crew::ThreadCrew;
use linux::{Arguments, Child};
use output::print;

/// What a workload does with its size and threads; an error says what went wrong.
type Outcome = Result<u64, &'static str>;

/// Called by the entry; gives the exit status.
fn main(arguments: Arguments) -> i32 {
    let words = || arguments.words().skip(1);
    let outcome = match words().next() {
        Some("measure") => return measure(&arguments),
        Some("together") => return together(&arguments),
        Some("locks") => return locks::mark(),
        // Started by the workload that starts programs.
        Some("nothing") => return 0,
        Some(name) => run(name, words().nth(1), words().nth(2)),
        None => Err("say a workload, a size and a number of threads"),
    };
    match outcome {
        Ok(result) => {
            print!("result={result:016x}\n");
            0
        }
        Err(reason) => {
            print!("load: {reason}\n");
            1
        }
    }
}

fn run(name: &str, size: Option<&str>, threads: Option<&str>) -> Outcome {
    let size = size.and_then(Size::from_word).ok_or("the size is small or full")?;
    let threads = threads.and_then(|word| word.parse().ok()).filter(|threads| (1..=512).contains(threads));
    let crew = ThreadCrew::new(threads.ok_or("the number of threads is 1 to 512")?);
    if let Some(program) = name.strip_prefix("splash-") {
        let program = splash::find(program).ok_or("there is no such parallel program")?;
        return checked(program_between_marks(program, &crew.pinned(), size), (program.expected)(size));
    }
    match name {
        "compute" => checked(compute::run(&crew, size), compute::expected(size)),
        "radix" => checked(radix::run(&crew, size), radix::expected(size)),
        "raytrace" => checked(raytrace::run(&crew, size), raytrace::expected(size)),
        "shadows" => checked(part_of(&|loaded| raytrace::run_lit(&crew, size, loaded)), raytrace::expected_lit(size)),
        "designs" => {
            checked(part_of(&|loaded| engineering::run_loaded(&crew, size, loaded)), engineering::expected_loaded(size))
        }
        "engineering" => checked(run_processes(size)?, engineering::expected(size)),
        "web" => checked(web::run(&crew, size, &linux::connect)?, web::expected(size)),
        "faults" => faults::run(size),
        "syscalls" => syscalls::run(size),
        _ => Err(
            "no such workload: compute, engineering, designs, raytrace, shadows, radix, web, faults, syscalls, splash-NAME",
        ),
    }
}

/// A program alone, without the making of a process.
fn program_between_marks(program: &splash::Program, crew: &ThreadCrew, size: Size) -> u64 {
    linux::mark::<{ marks::part_begins(0) }>();
    let result = (program.run)(crew, size);
    linux::mark::<{ marks::part_ends(0) }>();
    result
}

/// Work whose one part begins when it says so.
fn part_of(work: &dyn Fn(&dyn Fn()) -> u64) -> u64 {
    let result = work(&linux::mark::<{ marks::part_begins(0) }>);
    linux::mark::<{ marks::part_ends(0) }>();
    result
}

fn checked(result: u64, expected: u64) -> Outcome {
    if result == expected {
        return Ok(result);
    }
    print!("load: the result is {result:016x}, not {expected:016x}\n");
    Err("the result is wrong")
}

/// Runs `engineering`, each circuit in a process of its own.
fn run_processes(size: Size) -> Outcome {
    let count = engineering::processes(size);
    let sum: &AtomicU64 = linux::shared_word().ok_or("no memory to share")?;
    let mut children: [Option<Child>; 16] = [const { None }; 16];
    for (number, child) in (0..count).zip(&mut children) {
        *child = Some(linux::fork(|| {
            // Relaxed: the parent reads it after it has waited for this process.
            sum.fetch_add(engineering::run(size, number), Ordering::Relaxed);
            0
        })?);
    }
    for child in children.into_iter().flatten() {
        if child.wait() != 0 {
            return Err("a process failed");
        }
    }
    Ok(sum.load(Ordering::Relaxed))
}

/// Long enough for the kernel to be done with what it left for after boot. Costs nothing where idle time is skipped.
const SETTLE_NS: usize = 3_000_000_000;

/// Runs a program between the marks.
fn measure(arguments: &Arguments) -> i32 {
    // What the kernel still does in the background after boot (half of the time of a small workload) is not measured.
    linux::sleep(SETTLE_NS);
    // A machine model is on for what is measured alone: what came before takes no longer than it must. A moment later
    // the model has followed.
    linux::mark::<{ hint::ON }>();
    linux::sleep(1_000_000);
    let (status, took) = between_marks(arguments, 2);
    linux::mark::<{ hint::OFF }>();
    say(took);
    status
}

/// Before the moment at which all begin, a machine model is switched on: enough for it to follow, and for all guests to be
/// awake. They wait for the rest of it without sleep.
const LEAD_TICKS: u64 = 10_000;
/// A tick of the clock, at the frequency that most machines have; where it is another, guests look at the clock more often.
const TICK_NS: u64 = 100;
/// A guest that is done keeps quiet for so long: its end is not to take time from those that are still at work.
const QUIET_NS: usize = 60_000_000_000;

/// Runs a program between the marks in several guests of one machine, from the same moment of the machine's clock on. The
/// machine model stays on, for the others.
fn together(arguments: &Arguments) -> i32 {
    let Some(begin) = arguments.words().nth(2).and_then(|word| word.parse::<u64>().ok()) else {
        print!("load: say when to begin, by the machine's clock, and a program\n");
        return 1;
    };
    if linux::ticks() + LEAD_TICKS > begin {
        print!("load: asked to begin at {begin}, but it is {} already\n", linux::ticks());
        return 1;
    }
    while let Some(rest @ 1..) = (begin - LEAD_TICKS).checked_sub(linux::ticks()) {
        linux::sleep((rest * TICK_NS) as usize);
    }
    linux::mark::<{ hint::ON }>();
    while linux::ticks() < begin {}
    let (status, took) = between_marks(arguments, 3);
    linux::sleep(QUIET_NS);
    say(took);
    status
}

/// Runs the program that a word names between the marks; gives its status and its time.
fn between_marks(arguments: &Arguments, word: usize) -> (i32, u64) {
    let began = linux::nanoseconds();
    linux::mark::<{ marks::BEGIN }>();
    let child = linux::fork(|| {
        arguments.execute(word);
        print!("load: the program cannot be started\n");
        127
    });
    let status = child.map_or(126, Child::wait);
    linux::mark::<{ marks::END }>();
    (status, linux::nanoseconds() - began)
}

fn say(took: u64) {
    // Whatever the program wrote last need not have ended its line.
    print!("\nmeasured ns={took}\n");
}
