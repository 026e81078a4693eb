//! What an SBI call is answered with.

/// Why a call is refused (SBI specification, "Binary Encoding").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Error {
    /// It failed, for a reason that has no code.
    Failed = -1,
    /// There is no such call, or the machine lacks what it needs.
    NotSupported = -2,
    /// An argument means nothing.
    InvalidParam = -3,
    /// What the call asks for is not allowed, or not now.
    Denied = -4,
    /// An address is not one that the call could use.
    InvalidAddress = -5,
    /// The hart is started already.
    AlreadyAvailable = -6,
    /// It counts or is open already.
    AlreadyStarted = -7,
    /// It does not count or is closed already.
    AlreadyStopped = -8,
    /// What the call is about is in another state.
    InvalidState = -10,
    /// A range goes beyond what there is.
    BadRange = -11,
    /// A lock keeps the value as it is.
    DeniedLocked = -14,
}

/// A value, or why there is none.
pub type Answer = Result<u64, Error>;

/// The registers `a0` and `a1` that say so.
#[inline]
#[must_use]
pub const fn encode(answer: Answer) -> (u64, u64) {
    match answer {
        Ok(value) => (0, value),
        Err(error) => (error as i64 as u64, 0),
    }
}
