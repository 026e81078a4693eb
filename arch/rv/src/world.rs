//! The world switch: from the monitor into a guest and back.
//!
//! One trap vector serves both worlds. While a guest runs, `sscratch` holds the address of its [`GuestContext`];
//! while the monitor runs it holds 0, so the first two instructions of the vector tell the cases apart.
//!
//! An exit has two lengths. The *short* one, for environment calls, saves only what the C calling convention lets a
//! callee destroy, asks the context's [`FastExit`] function, and on [`RESUME`] goes straight back: no scheduler, no
//! callee-saved registers. The *full* one also saves the rest and returns from [`run_guest`] to the per-hart loop.
//!
//! Where double traps are on (Ssdbltrp), an exit leaves `sstatus.SDT` set, and another trap would be a double trap. Guarded accesses, the
//! only ones of the monitor that may trap, clear it first.
//!
//! A trap of the monitor itself is handled on the hart's *emergency stack*: while `tp` is not 0 it points to a word
//! that holds the top of one, 16-byte aligned. Such traps do not nest. The word behind it is 0 until the hart dies of one: then
//! it is the address of its registers ([`host_trap`]).
//!
//! Interrupts are never enabled in HS-mode (`sstatus.SIE` = 0); with V = 1 they are taken regardless, so a guest
//! is always interruptible and the monitor never is.
//
// UNSAFETY: switching all registers can only be written in assembly; its contract with Rust is `run_guest`.
#![expect(unsafe_code)]

use crate::{
    csr,
    fields::{self, henvcfg, hstateen0, hstatus, interrupt, sstatus},
    host_trap,
};
use core::{arch::global_asm, mem::offset_of};
use rv_frame::{CalleeSaved, CallerSaved};

/// What a [`FastExit`] returns to go straight back into the guest.
pub const RESUME: usize = 0;
/// What a [`FastExit`] returns to end the run with a full exit.
pub const FULL_EXIT: usize = 1;

/// Looks at an environment call of the guest before the callee-saved registers are stored. The guest's `a0` to
/// `a7`, `t0` to `t6`, `ra`, `gp`, `sp`, `tp` are in the context, and `sepc` still in its CSR.
pub type FastExit = extern "C" fn(context: &mut GuestContext) -> usize;

/// Register state of a virtual hart that the world switch moves.
#[derive(Debug)]
#[repr(C)]
pub struct GuestContext {
    /// General registers; index 0 is unused.
    pub x: [u64; 32],
    /// Program counter (valid after a full exit).
    pub pc: u64,
    /// `sstatus` to run with: SPP is the guest's privilege, FS/VS say whether its FP/vector state is loaded.
    pub sstatus: u64,
    /// `hstatus` to run with.
    pub hstatus: u64,
    hs_sp: u64,
    hs_tp: u64,
    fast_exit: FastExit,
    /// Exits that the [`FastExit`] finished.
    pub fast_exits: u64,
}

impl GuestContext {
    /// A hart as the SBI leaves it after HSM start: in VS-mode at `pc`, interrupts off, `a0` = hart id, `a1` = opaque.
    #[must_use]
    pub fn new(pc: u64, hart_id: u64, opaque: u64, fast_exit: FastExit) -> Self {
        let mut x = [0; 32];
        x[10] = hart_id;
        x[11] = opaque;
        Self {
            x,
            pc,
            sstatus: sstatus::SPP | sstatus::SPIE | sstatus::UXL_64,
            hstatus: hstatus::SPV | hstatus::SPVP | hstatus::VSXL_64,
            hs_sp: 0,
            hs_tp: 0,
            fast_exit,
            fast_exits: 0,
        }
    }
}

/// Loads or stores of general registers, each at its place in the [`GuestContext`] at the base register.
macro_rules! move_registers {
    ($operation:literal, $base:literal, $($number:literal)*) => {
        concat!($($operation, " x", $number, ", {x} + 8*", $number, "(", $base, ")\n"),*)
    };
}

/// Of what a function of the C calling convention may change, and of `sp`, `gp` and `tp`; without `a0`, which holds the context.
macro_rules! move_short {
    ($operation:literal, $base:literal) => {
        move_registers!($operation, $base, 1 2 3 4 5 6 7 11 12 13 14 15 16 17 28 29 30 31)
    };
}

/// Of what such a function puts back: `s0` to `s11`.
macro_rules! move_rest {
    ($operation:literal, $base:literal) => {
        move_registers!($operation, $base, 8 9 18 19 20 21 22 23 24 25 26 27)
    };
}

/// Where `tp` points, at this offset, is the top of the hart's emergency stack.
pub const EMERGENCY_STACK_OFFSET: usize = 0;
/// And at this one the address of what is left of the trap that the hart dies of, 0 until then.
pub const TRAP_OFFSET: usize = EMERGENCY_STACK_OFFSET + 8;

global_asm!(
    r#"
    .section .text.world, "ax"
    .balign 64
    .globl trap_vector
trap_vector:
    csrrw a0, sscratch, a0
    beqz a0, 8f
    "#,
    move_short!("sd", "a0"),
    r#"
    csrrw t0, sscratch, zero
    sd t0, {a0}(a0)
    ld sp, {hs_sp}(a0)
    ld tp, {hs_tp}(a0)
    csrr a1, scause
    li t1, {ecall}
    bne a1, t1, 2f
    ld t0, {fast_exit}(a0)
    jalr t0
    bnez a0, 2f
    ld a0, {own}(sp)
1:  csrw sscratch, a0
    "#,
    move_short!("ld", "a0"),
    r#"
    ld a0, {a0}(a0)
    sret
2:  ld a1, {own}(sp)
    "#,
    move_rest!("sd", "a1"),
    r#"
    csrr t0, sepc
    csrr t1, sstatus
    csrr a0, scause
    sd t0, {pc}(a1)
    sd t1, {sstatus}(a1)
    "#,
    rv_frame::restore_callee_saved!("sp"),
    r#"
    addi sp, sp, {kept}
    ret

    .globl world_run_guest
world_run_guest:
    addi sp, sp, -{kept}
    sd a0, {own}(sp)
    "#,
    rv_frame::save_callee_saved!("sp"),
    r#"
    sd sp, {hs_sp}(a0)
    sd tp, {hs_tp}(a0)
    ld t0, {pc}(a0)
    ld t1, {sstatus}(a0)
    ld t2, {hstatus}(a0)
    csrw sepc, t0
    csrw sstatus, t1
    csrw hstatus, t2
    "#,
    move_rest!("ld", "a0"),
    r#"
    j 1b

    # A trap taken in HS-mode: only guarded accesses may do that. a0 was 0 after the swap, sscratch holds HS's a0.
    # It is handled on the hart's emergency stack: the stack in use may be what is wrong.
8:  mv a0, sp
    beqz tp, 9f
    ld a0, {emergency_stack}(tp)
9:  addi a0, a0, -{frame}
    sd sp, {saved}(a0)
    mv sp, a0
    csrrw a0, sscratch, zero
    "#,
    rv_frame::save_caller_saved!("sp"),
    r#"
    csrr a0, sepc
    call {host_trap}
    beqz a0, 7f
    csrw sepc, a0
    "#,
    rv_frame::restore_caller_saved!("sp"),
    r#"
    ld sp, {saved}(sp)
    sret

    # No guarded access: all registers are kept. The call has put the callee-saved ones back.
7:  addi sp, sp, -{kept}
    "#,
    rv_frame::save_callee_saved!("sp"),
    r#"
    mv a0, sp
    call {host_trap_died}
    "#,
    x = const offset_of!(GuestContext, x),
    a0 = const offset_of!(GuestContext, x) + 8 * 10,
    pc = const offset_of!(GuestContext, pc),
    sstatus = const offset_of!(GuestContext, sstatus),
    hstatus = const offset_of!(GuestContext, hstatus),
    hs_sp = const offset_of!(GuestContext, hs_sp),
    hs_tp = const offset_of!(GuestContext, hs_tp),
    fast_exit = const offset_of!(GuestContext, fast_exit),
    own = const offset_of!(CalleeSaved, own),
    emergency_stack = const EMERGENCY_STACK_OFFSET,
    kept = const size_of::<CalleeSaved>(),
    saved = const size_of::<CallerSaved>(),
    // With the stack pointer, and aligned.
    frame = const size_of::<CallerSaved>() + 16,
    ecall = const crate::cause::ECALL_FROM_VS,
    host_trap = sym host_trap::resume_at,
    host_trap_died = sym host_trap::died,
);

unsafe extern "C" {
    fn trap_vector();
    fn world_run_guest(context: *mut GuestContext) -> u64;
}

/// Installs the trap vector on this hart.
pub fn install_trap_vector() {
    // SAFETY: `trap_vector` is 64-byte aligned code for direct mode, and sscratch = 0 says "the monitor runs".
    unsafe {
        csr::sscratch::write(0);
        csr::stvec::write(trap_vector as *const () as u64);
    }
}

/// Runs the guest until an exit that its [`FastExit`] does not finish; returns `scause`.
///
/// # Safety
/// 1. The hart's VS and H CSRs (`hgatp`, `vsatp`, ...) belong to this guest ([`VsState::load`] was called).
/// 2. [`install_trap_vector`] has run on this hart, and `tp` holds what the monitor expects there.
#[inline]
pub unsafe fn run_guest(context: &mut GuestContext) -> u64 {
    // SAFETY: `context` is exclusively ours for the call; the assembly keeps the C calling convention.
    unsafe { world_run_guest(context) }
}

/// The VS-level CSRs of a virtual hart that is not running, and what it may use.
#[derive(Clone, Debug)]
pub struct VsState {
    vsstatus: u64,
    vsie: u64,
    vstvec: u64,
    vsscratch: u64,
    vsepc: u64,
    vscause: u64,
    vstval: u64,
    vsatp: u64,
    vstimecmp: u64,
    senvcfg: u64,
    scounteren: u64,
    sstateen0: u64,
    vsiselect: u64,
    /// `hvictl`: 9 << 16 | 1 while an interrupt file in software interrupts.
    pub hvictl: u64,
    /// Interrupts that the monitor asserts (`hvip`): VSSI and VSEI, and VSTI where Sstc is absent.
    pub hvip: u64,
}

/// Supervisor-level registers of a virtual hart by the names that its guest has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the manual's names")]
pub struct Supervisor {
    pub sstatus: u64,
    pub sie: u64,
    pub stvec: u64,
    pub scounteren: u64,
    pub senvcfg: u64,
    pub sscratch: u64,
    pub sepc: u64,
    pub scause: u64,
    pub stval: u64,
    pub sip: u64,
    pub stimecmp: u64,
    pub satp: u64,
}

/// What of the optional state a machine's harts have; decides which CSRs may be touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HartFeatures {
    /// Sstc: `stimecmp` and `vstimecmp`.
    pub sstc: bool,
    /// Ssaia: `vsiselect` and guest interrupt files.
    pub aia: bool,
    /// Smstateen / Ssstateen: `hstateen0` and `sstateen0`.
    pub stateen: bool,
    /// Svpbmt.
    pub svpbmt: bool,
    /// Zicbom or Zicboz.
    pub cache_blocks: bool,
    /// V.
    pub vector: bool,
}

impl VsState {
    /// State of a virtual hart after reset or HSM start.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            vsstatus: sstatus::UXL_64,
            vsie: 0,
            vstvec: 0,
            vsscratch: 0,
            vsepc: 0,
            vscause: 0,
            vstval: 0,
            vsatp: 0,
            vstimecmp: u64::MAX,
            senvcfg: 0,
            // Cycle, time and instret are readable in VU-mode, as SBI firmware leaves a hart: Linux without a PMU
            // driver never writes this register.
            scounteren: 7,
            sstateen0: 0,
            vsiselect: 0,
            hvictl: 0,
            hvip: 0,
        }
    }

    /// The guest's next timer deadline in ticks of `time`.
    #[must_use]
    pub const fn timer_deadline(&self) -> u64 {
        self.vstimecmp
    }

    /// Sets the deadline of a virtual hart that is not loaded.
    pub const fn set_timer_deadline(&mut self, ticks: u64) {
        self.vstimecmp = ticks;
    }

    /// The registers that a debugger sees, of a virtual hart that is not loaded.
    #[must_use]
    pub const fn supervisor(&self) -> Supervisor {
        Supervisor {
            sstatus: self.vsstatus,
            sie: self.vsie,
            stvec: self.vstvec,
            scounteren: self.scounteren,
            senvcfg: self.senvcfg,
            sscratch: self.vsscratch,
            sepc: self.vsepc,
            scause: self.vscause,
            stval: self.vstval,
            sip: (self.hvip & (interrupt::VSSI | interrupt::VSTI | interrupt::VSEI)) >> 1,
            stimecmp: self.vstimecmp,
            satp: self.vsatp,
        }
    }

    /// Sets what a debugger may change, of a virtual hart that is not loaded: what the guest itself could write. `sip` stays.
    pub const fn set_supervisor(&mut self, registers: &Supervisor) {
        self.vsstatus = registers.sstatus;
        self.vsie = registers.sie;
        self.vstvec = registers.stvec;
        self.scounteren = registers.scounteren;
        self.senvcfg = registers.senvcfg;
        self.vsscratch = registers.sscratch;
        self.vsepc = registers.sepc;
        self.vscause = registers.scause;
        self.vstval = registers.stval;
        self.vstimecmp = registers.stimecmp;
        self.vsatp = registers.satp;
    }

    /// The interrupts that the guest has enabled, in `hvip` positions.
    #[must_use]
    pub const fn enabled_interrupts(&self) -> u64 {
        interrupt::enabled_by(self.vsie)
    }

    /// Takes the state from this hart's CSRs.
    #[inline]
    pub fn save(&mut self, features: HartFeatures) {
        self.vsstatus = csr::vsstatus::read();
        self.vsie = csr::vsie::read();
        self.vstvec = csr::vstvec::read();
        self.vsscratch = csr::vsscratch::read();
        self.vsepc = csr::vsepc::read();
        self.vscause = csr::vscause::read();
        self.vstval = csr::vstval::read();
        self.vsatp = csr::vsatp::read();
        self.senvcfg = csr::senvcfg::read();
        self.scounteren = csr::scounteren::read();
        // VSSIP may have been cleared by the guest itself; the alias is the truth while it runs.
        self.hvip = csr::hvip::read();
        if features.sstc {
            // The comparator must fall silent: a pending VSTIP would end every WFI of the hart.
            // SAFETY: vstimecmp acts on the guest that is being unloaded, whose deadline is kept here.
            self.vstimecmp = unsafe { csr::vstimecmp::swap(u64::MAX) };
        }
        if features.aia {
            self.vsiselect = csr::vsiselect::read();
            self.hvictl = csr::hvictl::read();
        }
        if features.stateen {
            self.sstateen0 = csr::sstateen0::read();
        }
    }

    /// Puts the state into this hart's CSRs.
    ///
    /// # Safety
    /// The hart must be about to run this guest, under its `hgatp`.
    #[inline]
    pub unsafe fn load(&self, features: HartFeatures) {
        // SAFETY: VS-level CSRs act on V=1 only; the caller runs this guest next.
        unsafe {
            csr::vsstatus::write(self.vsstatus);
            csr::vsie::write(self.vsie);
            csr::vstvec::write(self.vstvec);
            csr::vsscratch::write(self.vsscratch);
            csr::vsepc::write(self.vsepc);
            csr::vscause::write(self.vscause);
            csr::vstval::write(self.vstval);
            csr::vsatp::write(self.vsatp);
            csr::senvcfg::write(self.senvcfg);
            csr::scounteren::write(self.scounteren);
            csr::hvip::write(self.hvip);
            if features.sstc {
                csr::vstimecmp::write(self.vstimecmp);
            }
            if features.aia {
                csr::vsiselect::write(self.vsiselect);
                csr::hvictl::write(self.hvictl);
            }
            if features.stateen {
                csr::sstateen0::write(self.sstateen0);
            }
        }
    }
}

impl Default for VsState {
    fn default() -> Self {
        Self::new()
    }
}

/// A trap that a guest's kernel cannot take: it is in another one still (Ssdbltrp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoubleTrap;

/// Redirects the virtual hart whose VS CSRs are loaded to its own trap handler, as hardware would for an exception
/// with `cause` and `tval`.
///
/// # Errors
/// [`DoubleTrap`]: nothing has changed.
pub fn inject_exception(context: &mut GuestContext, cause: u64, tval: u64) -> Result<(), DoubleTrap> {
    let old = csr::vsstatus::read();
    if old & sstatus::SDT != 0 {
        return Err(DoubleTrap);
    }
    let mut status = old & !(sstatus::SPP | sstatus::SPIE | sstatus::SIE);
    status |= context.sstatus & sstatus::SPP;
    if old & sstatus::SIE != 0 {
        status |= sstatus::SPIE;
    }
    // SAFETY: only VS-level CSRs of the guest that is loaded are written, with what the ISA prescribes for a trap
    // into VS-mode (SPP, SPIE, SIE, SDT where double traps are on; vsepc, vscause, vstval).
    unsafe {
        csr::vsstatus::write(status | sstatus::SDT);
        csr::vsepc::write(context.pc);
        csr::vscause::write(cause);
        csr::vstval::write(tval);
    }
    context.pc = csr::vstvec::read() & !3;
    context.sstatus |= sstatus::SPP;
    Ok(())
}

/// Sets up the hypervisor CSRs of this hart that are the same for every guest.
///
/// # Safety
/// Runs in HS-mode with the trap vector installed; `features` describe this hart.
pub unsafe fn init_hart(features: HartFeatures) {
    let mut env = 0;
    if features.sstc {
        env |= henvcfg::STCE;
    }
    if features.svpbmt {
        env |= henvcfg::PBMTE;
    }
    if features.cache_blocks {
        env |= henvcfg::CBZE | henvcfg::CBCFE | henvcfg::CBIE_FLUSH;
    }
    // SAFETY: delegation and environment bits concern V=1 only; ADUE stays 0 (see `fields::henvcfg::ADUE`).
    unsafe {
        csr::sstatus::clear(sstatus::SIE | sstatus::SUM | sstatus::MXR | sstatus::SDT);
        csr::hedeleg::write(fields::HEDELEG);
        csr::hideleg::write(fields::HIDELEG);
        csr::henvcfg::write(env);
        csr::hcounteren::write(7);
        csr::htimedelta::write(0);
        csr::hvip::write(0);
        csr::hgatp::write(0);
        if features.stateen {
            csr::hstateen0::write(hstateen0::for_guests(features.aia));
        }
    }
}
