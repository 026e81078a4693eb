//! Instructions that trap, and entries of a guest's page tables.

use rv::decode::{CsrAccess, from_htinst, from_instruction};
use rv_pte::{Hgatp, Level, Pte, Satp};
use vcpu::trap::{CsrRequest, Privilege, Trapped, virtual_instruction};

use crate::Input;

/// Words of 64 bits.
pub fn instructions(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        let (raw, value) = (input.u64(), input.u64());
        for access in [from_htinst(raw), from_instruction(raw as u32)].into_iter().flatten() {
            assert!(access.width_log2 <= 3 && access.register < 32 && matches!(access.length, 2 | 4));
            let shown = access.extend(value);
            let bits = 8 << access.width_log2;
            assert_eq!((shown ^ value) << (64 - bits), 0, "what was loaded is not what is shown");
        }
        csr(raw, value);
        table(raw);
    }
}

fn csr(raw: u64, value: u64) {
    let Some(access) = CsrAccess::decode(raw) else { return };
    assert!(access.csr < 1 << 12 && access.rd < 32);
    let written = access.apply(value, raw);
    assert!(access.is_write() || access.apply(value, 0) == value, "{written:#x}");
    for privilege in [Privilege::User, Privilege::Supervisor] {
        match CsrRequest::decode(access, privilege) {
            Some(CsrRequest::Counter(counter)) => assert!(counter < 32 && !access.is_write()),
            Some(_) => assert_eq!(privilege, Privilege::Supervisor),
            None => {}
        }
    }
    // Waits are no accesses.
    assert_eq!(virtual_instruction(raw), Trapped::Csr(access));
}

fn table(raw: u64) {
    for level in (0..5).filter_map(Level::new) {
        let _ = Pte::from_raw(raw).decode(level);
    }
    if let Ok(Some(root)) = Satp::decode(raw) {
        assert_eq!(root.encode(), Ok(raw));
    }
    if let Ok(Some(root)) = Hgatp::decode(raw) {
        assert!(root.encode().is_ok());
    }
}
