//! Messages between harts that are moved meanwhile: none may be lost, come twice, or leave its interrupt behind.
//!
//! Tokens go round the harts, each by an identity of its own, and carry a number. Whoever gets one works for a while and passes it on. Every
//! other hart waits for interrupts in between, the rest look. Where there are no interrupt files one token goes round by IPIs.

use crate::{console::println, cpu, entry, imsic, sbi, tree::Machine};
use core::sync::atomic::{AtomicU64, Ordering};

/// The tokens' identities, in all words of a file.
const IDENTITIES: [u32; 5] = [9, 63, 64, 150, 255];
const TOKENS: usize = IDENTITIES.len();
const TICKS_PER_MS: u64 = 10_000;
/// Looks in a row at which an interrupt is pending and no message is.
const PATIENCE: u32 = 1_000;

/// How often each token has been passed on.
static PASSED: [AtomicU64; TOKENS] = [const { AtomicU64::new(0) }; TOKENS];
static HARTS: AtomicU64 = AtomicU64::new(0);
/// Tokens that there are: 1 where they go by IPIs.
static IN_USE: AtomicU64 = AtomicU64::new(0);
static READY: AtomicU64 = AtomicU64::new(0);
/// After so many passes a token is told of.
static TOLD_EVERY: AtomicU64 = AtomicU64::new(0);

/// Passes tokens for ever; says `MESSAGES token passes` whenever one has been passed another `count` times.
pub fn message_moves(machine: &Machine, _: u64, count: u64) {
    HARTS.store(machine.harts, Ordering::SeqCst);
    IN_USE.store(if machine.has_imsic { TOKENS as u64 } else { 1 }, Ordering::SeqCst);
    TOLD_EVERY.store(count.max(1), Ordering::SeqCst);
    for other in 1..machine.harts {
        entry::start_hart(other, pass_tokens);
    }
    pass_tokens()
}

extern "C" fn pass_tokens() -> ! {
    let (hart, has_files) = (cpu::this_hart() as u64, IN_USE.load(Ordering::SeqCst) > 1);
    let interrupt = if has_files { cpu::EXTERNAL } else { cpu::SOFTWARE };
    if has_files {
        imsic::enable_all(&IDENTITIES);
    }
    // Interrupts stay off: what is pending is looked at.
    cpu::set_sie(interrupt);
    READY.fetch_add(1, Ordering::SeqCst);
    if hart == 0 {
        while READY.load(Ordering::SeqCst) < HARTS.load(Ordering::SeqCst) {
            core::hint::spin_loop();
        }
        (0..IN_USE.load(Ordering::SeqCst) as usize).for_each(|token| send(token, 0));
    }
    let (mut idle_looks, mut told) = (0, [0; TOKENS]);
    loop {
        // One hart tells: others would write into its lines.
        if hart == 0 {
            tell(&mut told);
        }
        if hart % 2 == 1 {
            cpu::wfi();
        }
        if cpu::sip() & interrupt == 0 {
            core::hint::spin_loop();
            continue;
        }
        idle_looks = match take(has_files) {
            Some(token) => {
                pass_on(hart, token);
                0
            }
            None => idle_looks + 1,
        };
        if idle_looks > PATIENCE {
            fail(hart, "an interrupt is pending for ever without a message");
        }
    }
}

fn tell(told: &mut [u64; TOKENS]) {
    let every = TOLD_EVERY.load(Ordering::SeqCst);
    for (token, (told, passed)) in told.iter_mut().zip(&PASSED).enumerate() {
        if passed.load(Ordering::SeqCst) >= *told + every {
            *told += every;
            println!("MESSAGES {token} {told}");
        }
    }
}

/// The token that has come.
fn take(has_files: bool) -> Option<usize> {
    if !has_files {
        cpu::acknowledge(1);
        return Some(0);
    }
    let identity = (imsic::claim() >> 16) as u32;
    IDENTITIES.iter().position(|known| *known == identity)
}

fn pass_on(hart: u64, token: usize) {
    let (passed, harts) = (&PASSED[token], HARTS.load(Ordering::SeqCst));
    let number = passed.load(Ordering::SeqCst);
    if number % harts != hart {
        fail(hart, "a message came twice");
    }
    let until = cpu::time() + (1 + hart % 4) * TICKS_PER_MS / 2;
    while cpu::time() < until {
        core::hint::spin_loop();
    }
    if passed.compare_exchange(number, number + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        fail(hart, "a message came to two harts");
    }
    send(token, (number + 1) % harts);
}

fn send(token: usize, to: u64) {
    // The number first.
    cpu::fence();
    if IN_USE.load(Ordering::SeqCst) > 1 {
        imsic::send(to, IDENTITIES[token]);
    } else {
        sbi::send_ipi(1, to);
    }
}

fn fail(hart: u64, why: &str) -> ! {
    println!("MESSAGES FAILED: hart {hart}: {why}");
    sbi::shutdown(true)
}
