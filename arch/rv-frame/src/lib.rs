//! How a hart's registers are saved and restored by assembly, for all programs that have trap vectors.
//!
//! A macro is text for `global_asm!`: one instruction for each register, at the offsets of [`CallerSaved`] or [`CalleeSaved`] from
//! the base register that it is given.
//!
//! # Locking
//! None.
//!
//! # Tests
//! The macros' offsets are checked against the structures' on the host.
#![no_std]
#![forbid(unsafe_code)]

/// The registers that a function of the C calling convention may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CallerSaved {
    /// Return address.
    pub ra: u64,
    /// `t0` to `t2`.
    pub t0_to_t2: [u64; 3],
    /// `a0` to `a7`.
    pub arguments: [u64; 8],
    /// `t3` to `t6`.
    pub t3_to_t6: [u64; 4],
}

/// The registers that a function of the C calling convention puts back, behind a word that is its user's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CalleeSaved {
    /// Whatever its user keeps there. The macros leave it alone.
    pub own: u64,
    /// Return address.
    pub ra: u64,
    /// `s0` to `s11`.
    pub s: [u64; 12],
}

const _: () = assert!(size_of::<CallerSaved>() == 128 && size_of::<CalleeSaved>() == 112);

/// Stores the registers of [`CallerSaved`] at the base register.
#[macro_export]
macro_rules! save_caller_saved {
    ($base:literal) => {
        concat!(
            "sd ra, 0(",
            $base,
            ")\n",
            "sd t0, 8(",
            $base,
            ")\n",
            "sd t1, 16(",
            $base,
            ")\n",
            "sd t2, 24(",
            $base,
            ")\n",
            "sd a0, 32(",
            $base,
            ")\n",
            "sd a1, 40(",
            $base,
            ")\n",
            "sd a2, 48(",
            $base,
            ")\n",
            "sd a3, 56(",
            $base,
            ")\n",
            "sd a4, 64(",
            $base,
            ")\n",
            "sd a5, 72(",
            $base,
            ")\n",
            "sd a6, 80(",
            $base,
            ")\n",
            "sd a7, 88(",
            $base,
            ")\n",
            "sd t3, 96(",
            $base,
            ")\n",
            "sd t4, 104(",
            $base,
            ")\n",
            "sd t5, 112(",
            $base,
            ")\n",
            "sd t6, 120(",
            $base,
            ")\n",
        )
    };
}

/// Loads the registers of [`CallerSaved`] from the base register, which is none of them.
#[macro_export]
macro_rules! restore_caller_saved {
    ($base:literal) => {
        concat!(
            "ld ra, 0(",
            $base,
            ")\n",
            "ld t0, 8(",
            $base,
            ")\n",
            "ld t1, 16(",
            $base,
            ")\n",
            "ld t2, 24(",
            $base,
            ")\n",
            "ld a0, 32(",
            $base,
            ")\n",
            "ld a1, 40(",
            $base,
            ")\n",
            "ld a2, 48(",
            $base,
            ")\n",
            "ld a3, 56(",
            $base,
            ")\n",
            "ld a4, 64(",
            $base,
            ")\n",
            "ld a5, 72(",
            $base,
            ")\n",
            "ld a6, 80(",
            $base,
            ")\n",
            "ld a7, 88(",
            $base,
            ")\n",
            "ld t3, 96(",
            $base,
            ")\n",
            "ld t4, 104(",
            $base,
            ")\n",
            "ld t5, 112(",
            $base,
            ")\n",
            "ld t6, 120(",
            $base,
            ")\n",
        )
    };
}

/// Stores the registers of [`CalleeSaved`] at the base register.
#[macro_export]
macro_rules! save_callee_saved {
    ($base:literal) => {
        concat!(
            "sd ra, 8(",
            $base,
            ")\n",
            "sd s0, 16(",
            $base,
            ")\n",
            "sd s1, 24(",
            $base,
            ")\n",
            "sd s2, 32(",
            $base,
            ")\n",
            "sd s3, 40(",
            $base,
            ")\n",
            "sd s4, 48(",
            $base,
            ")\n",
            "sd s5, 56(",
            $base,
            ")\n",
            "sd s6, 64(",
            $base,
            ")\n",
            "sd s7, 72(",
            $base,
            ")\n",
            "sd s8, 80(",
            $base,
            ")\n",
            "sd s9, 88(",
            $base,
            ")\n",
            "sd s10, 96(",
            $base,
            ")\n",
            "sd s11, 104(",
            $base,
            ")\n",
        )
    };
}

/// Loads the registers of [`CalleeSaved`] from the base register, which is none of them.
#[macro_export]
macro_rules! restore_callee_saved {
    ($base:literal) => {
        concat!(
            "ld ra, 8(",
            $base,
            ")\n",
            "ld s0, 16(",
            $base,
            ")\n",
            "ld s1, 24(",
            $base,
            ")\n",
            "ld s2, 32(",
            $base,
            ")\n",
            "ld s3, 40(",
            $base,
            ")\n",
            "ld s4, 48(",
            $base,
            ")\n",
            "ld s5, 56(",
            $base,
            ")\n",
            "ld s6, 64(",
            $base,
            ")\n",
            "ld s7, 72(",
            $base,
            ")\n",
            "ld s8, 80(",
            $base,
            ")\n",
            "ld s9, 88(",
            $base,
            ")\n",
            "ld s10, 96(",
            $base,
            ")\n",
            "ld s11, 104(",
            $base,
            ")\n",
        )
    };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use core::mem::offset_of;
    use std::{string::String, vec::Vec};

    /// (register, offset) of each line.
    fn lines(text: &str, operation: &str) -> Vec<(String, usize)> {
        let line = |line: &str| {
            let (register, place) = line.strip_prefix(operation)?.trim().split_once(", ")?;
            let offset = place.strip_suffix("(sp)")?.parse().ok()?;
            Some((register.into(), offset))
        };
        text.lines().map(|text| line(text).expect(text)).collect()
    }

    fn offset(register: &str) -> usize {
        let number = register[1..].parse::<usize>().unwrap_or(0);
        match (&register[..1], number) {
            ("r", _) => offset_of!(CallerSaved, ra),
            ("t", 0..3) => offset_of!(CallerSaved, t0_to_t2) + 8 * number,
            ("t", _) => offset_of!(CallerSaved, t3_to_t6) + 8 * (number - 3),
            ("a", _) => offset_of!(CallerSaved, arguments) + 8 * number,
            _ => panic!("{register} is no such register"),
        }
    }

    #[test]
    fn caller_saved_registers_lie_where_the_structure_says() {
        let saved = lines(save_caller_saved!("sp"), "sd");
        assert_eq!(saved, lines(restore_caller_saved!("sp"), "ld"));
        assert_eq!(saved.len(), 16);
        for (register, at) in saved {
            assert_eq!(at, offset(&register), "{register}");
        }
    }

    #[test]
    fn callee_saved_registers_lie_where_the_structure_says() {
        let saved = lines(save_callee_saved!("sp"), "sd");
        assert_eq!(saved, lines(restore_callee_saved!("sp"), "ld"));
        assert_eq!(saved.len(), 13);
        for (register, at) in saved {
            let number = register[1..].parse::<usize>();
            let wanted = match number {
                Ok(number) => offset_of!(CalleeSaved, s) + 8 * number,
                Err(_) => offset_of!(CalleeSaved, ra),
            };
            assert_eq!(at, wanted, "{register}");
        }
    }
}
