//! Workload `syscalls`: what a guest's kernel does when it is asked. Each part has marks of its own.

use core::sync::atomic::{AtomicU32, Ordering};

use workloads::{Crew, Size, marks};

use super::Arguments;
use super::crew::ThreadCrew;
use super::linux;
use super::output::print;

/// Runs `work` between its marks and prints how long it took.
pub fn part<const BEGIN: u16, const END: u16>(
    name: &str,
    count: u64,
    work: impl FnOnce() -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    let began = linux::nanoseconds();
    linux::mark::<BEGIN>();
    let outcome = work();
    linux::mark::<END>();
    print!("part name={name} count={count} ns={}\n", linux::nanoseconds() - began);
    outcome
}

macro_rules! part {
    ($index:literal, $name:literal, $count:expr, $work:expr) => {
        part::<{ marks::part_begins($index) }, { marks::part_ends($index) }>($name, $count, || repeat($count, $work))?
    };
}

/// Runs every part; gives the number of calls.
pub fn run(size: Size) -> Result<u64, &'static str> {
    let times = size.pick(1, 10);
    let parent = linux::parent();
    part!(0, "getppid", times * 20_000, || succeed(linux::parent() == parent, "the parent changed"));
    part!(1, "sched_yield", times * 10_000, || {
        linux::give_way();
        Ok(())
    });
    let pipe = linux::pipe().ok_or("no pipe can be made")?;
    part!(2, "pipe", times * 5_000, || through(pipe));
    part!(3, "open_close", times * 5_000, || {
        linux::open(c"/dev/null", 0).map(linux::close).ok_or("/dev/null cannot be opened")
    });
    part!(4, "fork", times * 200, || succeed(linux::fork(|| 0)?.wait() == 0, "a child failed"));
    part!(5, "exec", times * 100, || succeed(linux::fork(start)?.wait() == 0, "a program failed"));
    part!(6, "thread", times * 500, || {
        ThreadCrew::new(2).each(&|_| ());
        Ok(())
    });
    part!(7, "sleep", times * 200, || {
        linux::sleep(50_000);
        Ok(())
    });
    let count = times * 2_000;
    part::<{ marks::part_begins(8) }, { marks::part_ends(8) }>("futex_ping_pong", count, || ping_pong(count as u32))?;
    part::<{ marks::part_begins(9) }, { marks::part_ends(9) }>("pipe_ping_pong", count, || pipe_ping_pong(count))?;
    Ok(times)
}

fn repeat(count: u64, act: impl Fn() -> Result<(), &'static str>) -> Result<(), &'static str> {
    (0..count).try_for_each(|_| act())
}

fn succeed(well: bool, reason: &'static str) -> Result<(), &'static str> {
    if well { Ok(()) } else { Err(reason) }
}

fn start() -> i32 {
    Arguments::execute_words(&[c"/bin/load", c"nothing"]);
    127
}

/// One byte through a pipe, within a process.
fn through((from, to): (usize, usize)) -> Result<(), &'static str> {
    let mut byte = [0];
    succeed(linux::write(to, &[7]) && linux::read(from, &mut byte) && byte == [7], "the pipe lost a byte")
}

/// Two threads that wake each other in turn.
fn ping_pong(count: u32) -> Result<(), &'static str> {
    let (crew, turn) = (ThreadCrew::new(2), AtomicU32::new(0));
    crew.each(&|thread| {
        for round in 0..count {
            let mine = 2 * round + thread as u32;
            loop {
                let now = turn.load(Ordering::Acquire);
                if now == mine {
                    break;
                }
                crew.sleep_while(&turn, now);
            }
            turn.store(mine + 1, Ordering::Release);
            crew.wake_all(&turn);
        }
    });
    succeed(turn.load(Ordering::Acquire) == 2 * count, "a turn was lost")
}

/// Two processes that send a byte to and fro.
fn pipe_ping_pong(count: u64) -> Result<(), &'static str> {
    let there = linux::pipe().ok_or("no pipe can be made")?;
    let back = linux::pipe().ok_or("no pipe can be made")?;
    let child = linux::fork(|| {
        let mut byte = [0];
        let well = (0..count).all(|_| linux::read(there.0, &mut byte) && linux::write(back.1, &byte));
        i32::from(!well)
    })?;
    let mut byte = [0];
    let well = (0..count).all(|round| {
        let sent = [round as u8];
        linux::write(there.1, &sent) && linux::read(back.0, &mut byte) && byte == sent
    });
    succeed(child.wait() == 0 && well, "the pipes lost a byte")
}
