//! The firmware's own extension (`abi/faults`): the status page's address, faults, the write firewall.

use faults::sbi::{INJECT, STATUS_ADDRESS, WRITE_FIREWALL};
use faults::{Fault, NodeSet, Refusal, STATUS_AT};
use rustsbi::SbiRet;

use crate::bare::{csr, injection};

/// Answers a call.
pub fn call(function: u64, [a0, a1, a2]: [u64; 3]) -> SbiRet {
    let own = csr::this_hart();
    match function {
        STATUS_ADDRESS => SbiRet::success(STATUS_AT as usize),
        INJECT => match Fault::decode(a0, a1, a2).and_then(|fault| injection::inject(own, fault)) {
            Ok(epoch) => SbiRet::success(epoch as usize),
            Err(refusal) => refused(refusal),
        },
        WRITE_FIREWALL => match injection::set_firewall(own, NodeSet(a0)) {
            Ok(()) => SbiRet::success(0),
            Err(refusal) => refused(refusal),
        },
        _ => SbiRet::not_supported(),
    }
}

fn refused(refusal: Refusal) -> SbiRet {
    SbiRet { value: refusal as usize, ..SbiRet::invalid_param() }
}
