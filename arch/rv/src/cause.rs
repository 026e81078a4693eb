//! `scause` values (Privileged Architecture, tables "Supervisor cause register values" with the H extension).

/// Set in `scause` for interrupts.
pub const INTERRUPT: u64 = 1 << 63;

/// Supervisor software interrupt (an IPI to this hart's HS-mode).
pub const SUPERVISOR_SOFTWARE: u64 = INTERRUPT | 1;
/// Supervisor timer interrupt.
pub const SUPERVISOR_TIMER: u64 = INTERRUPT | 5;
/// Supervisor external interrupt.
pub const SUPERVISOR_EXTERNAL: u64 = INTERRUPT | 9;
/// Supervisor guest external interrupt: a guest interrupt file named in `hgeie` has something pending.
pub const SUPERVISOR_GUEST_EXTERNAL: u64 = INTERRUPT | 12;

/// Instruction address misaligned.
pub const INSTRUCTION_MISALIGNED: u64 = 0;
/// Instruction access fault.
pub const INSTRUCTION_ACCESS_FAULT: u64 = 1;
/// Illegal instruction.
pub const ILLEGAL_INSTRUCTION: u64 = 2;
/// Breakpoint.
pub const BREAKPOINT: u64 = 3;
/// Load address misaligned.
pub const LOAD_MISALIGNED: u64 = 4;
/// Load access fault.
pub const LOAD_ACCESS_FAULT: u64 = 5;
/// Store/AMO address misaligned.
pub const STORE_MISALIGNED: u64 = 6;
/// Store/AMO access fault.
pub const STORE_ACCESS_FAULT: u64 = 7;
/// Environment call from U-mode or VU-mode.
pub const ECALL_FROM_U: u64 = 8;
/// Environment call from VS-mode.
pub const ECALL_FROM_VS: u64 = 10;
/// Instruction page fault.
pub const INSTRUCTION_PAGE_FAULT: u64 = 12;
/// Load page fault.
pub const LOAD_PAGE_FAULT: u64 = 13;
/// Store/AMO page fault.
pub const STORE_PAGE_FAULT: u64 = 15;
/// Double trap (Ssdbltrp): the firmware hands on one of VS-mode.
pub const DOUBLE_TRAP: u64 = 16;
/// Instruction guest-page fault.
pub const INSTRUCTION_GUEST_PAGE_FAULT: u64 = 20;
/// Load guest-page fault.
pub const LOAD_GUEST_PAGE_FAULT: u64 = 21;
/// Virtual instruction.
pub const VIRTUAL_INSTRUCTION: u64 = 22;
/// Store/AMO guest-page fault.
pub const STORE_GUEST_PAGE_FAULT: u64 = 23;
