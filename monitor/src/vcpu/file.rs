//! The owner's part of a vCPU's interrupt file ([`crate::vm::file`]): the content moves between a guest file of the hart and
//! software when the vCPU comes to a hart or leaves it. A guest's own stores are kept out by unmapping the page first.

use super::Vcpu;
use crate::{
    hart::{Hart, HartTools},
    machine::irq,
    vm::{file::GUEST_IDS, memory::file_gfn},
};
use ::vcpu::trap::CsrRequest;
use platform::{ImsicFile, ImsicState, Register};
use rv::{
    csr,
    decode::{CsrAccess, CsrOperand},
    fields::hstatus,
};

/// The vCPU has come to `hart`: gives it a guest file if there is one; its number, or 0.
pub fn settle(vcpu: &Vcpu, hart: &Hart, tools: &mut HartTools) -> u8 {
    if !vcpu.vm.has_imsic() {
        return 0;
    }
    let Some(number) = tools.take_file() else { return 0 };
    let Some(page) = irq::guest_file_page(hart.hart_id, number) else {
        tools.release_file(number);
        return 0;
    };
    {
        let mut file = vcpu.shared.file.lock();
        let fill = |software: &ImsicFile| with_file(number, || write_hardware(software.state()));
        file.settle((hart.cpu, number), ImsicFile::new(GUEST_IDS), fill);
    }
    // If the page cannot be mapped, stores keep trapping and are forwarded: slower, not wrong.
    let _ = vcpu.vm.memory().map_registers(file_gfn(vcpu.index), page);
    number
}

/// The vCPU leaves its hart: takes the content of guest file `number`, which is in no TLB, into software. Runs on the file's hart.
pub fn evacuate(vcpu: &Vcpu, number: u8) {
    let mut file = vcpu.shared.file.lock();
    file.evacuate(|| {
        let state = with_file(number, || {
            let state = read_hardware();
            write_hardware(&ImsicState::default());
            state
        });
        ImsicFile::from_state(GUEST_IDS, state)
    });
}

/// Guest files of this hart that want to interrupt, as a mask.
#[inline]
#[must_use]
pub fn pending_files() -> u64 {
    csr::hgeip::read()
}

/// Emulates `stopei` and `sireg` on the software file. `false`: there is none, or no such register.
pub fn emulate_csr(vcpu: &mut Vcpu, request: CsrRequest, access: CsrAccess) -> bool {
    // While a file of the hart stands in, the one in software is empty, and whatever traps is not for it.
    if !vcpu.vm.has_imsic() || vcpu.file != 0 {
        return false;
    }
    let operand = match access.operand {
        CsrOperand::Register(0) => 0,
        CsrOperand::Register(register) => vcpu.context.x[usize::from(register)],
        CsrOperand::Immediate(value) => u64::from(value),
    };
    let Some(old) = access_software(vcpu, request, access, operand) else { return false };
    if access.rd != 0 {
        vcpu.context.x[usize::from(access.rd)] = old;
    }
    vcpu.refresh_external();
    true
}

fn access_software(vcpu: &Vcpu, request: CsrRequest, access: CsrAccess, operand: u64) -> Option<u64> {
    let mut file = vcpu.shared.file.lock();
    match request {
        CsrRequest::ClaimMessage => Some(file.software_mut().claim()),
        CsrRequest::TopMessage => Some(file.software().topei()),
        CsrRequest::FileRegister => {
            let register = Register::decode(csr::vsiselect::read()).ok()?;
            let old = file.software_mut().read(register);
            if access.is_write() {
                file.software_mut().write(register, access.apply(old, operand));
            }
            Some(old)
        }
        CsrRequest::Counter(_) => None,
    }
}

fn write_hardware(state: &ImsicState) {
    write_register(Register::Eidelivery, 0);
    for (word, bits) in (0..).zip(state.eip) {
        write_register(Register::Eip(word), bits);
    }
    for (word, bits) in (0..).zip(state.eie) {
        write_register(Register::Eie(word), bits);
    }
    write_register(Register::Eithreshold, state.eithreshold);
    write_register(Register::Eidelivery, state.eidelivery);
}

fn read_hardware() -> ImsicState {
    let mut state = ImsicState {
        eidelivery: read_register(Register::Eidelivery),
        eithreshold: read_register(Register::Eithreshold),
        ..ImsicState::default()
    };
    for (word, bits) in (0..).zip(&mut state.eip) {
        *bits = read_register(Register::Eip(word));
    }
    for (word, bits) in (0..).zip(&mut state.eie) {
        *bits = read_register(Register::Eie(word));
    }
    state
}

/// Runs `work` with guest file `number` behind `vsireg`; what was selected before comes back.
#[expect(unsafe_code)]
fn with_file<R>(number: u8, work: impl FnOnce() -> R) -> R {
    // UNSAFETY and SAFETY: VGEIN and vsiselect act on VS-mode and on vsireg only; both are restored, and no guest runs
    // in between.
    unsafe {
        let (status, select) = (csr::hstatus::read(), csr::vsiselect::read());
        csr::hstatus::write(hstatus::with_file(status, number));
        let result = work();
        csr::vsiselect::write(select);
        csr::hstatus::write(status);
        result
    }
}

#[expect(unsafe_code)]
fn write_register(register: Register, value: u64) {
    // UNSAFETY and SAFETY: called inside `with_file`; the registers belong to the selected guest file.
    unsafe {
        csr::vsiselect::write(register.select());
        csr::vsireg::write(value);
    }
}

#[expect(unsafe_code)]
fn read_register(register: Register) -> u64 {
    // UNSAFETY and SAFETY: as for `write_register`.
    unsafe { csr::vsiselect::write(register.select()) };
    csr::vsireg::read()
}
