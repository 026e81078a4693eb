//! Hart state management: the states of a guest's hart (SBI specification, "Hart State Management Extension").

use sbi_spec::hsm::hart_state;

/// The state of a hart, by the numbers that `hart_get_status` answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HartState {
    /// It executes, or waits in WFI.
    Started = hart_state::STARTED as u8,
    /// It was never started, or has stopped itself.
    Stopped = hart_state::STOPPED as u8,
    /// Another hart has started it. It has not executed anything yet.
    StartPending = hart_state::START_PENDING as u8,
    /// It has asked to stop.
    StopPending = hart_state::STOP_PENDING as u8,
    /// It waits for an interrupt, in a suspend call.
    Suspended = hart_state::SUSPENDED as u8,
    /// It has asked to be suspended.
    SuspendPending = hart_state::SUSPEND_PENDING as u8,
    /// An interrupt ends its suspension. It has not executed anything yet.
    ResumePending = hart_state::RESUME_PENDING as u8,
}

/// What changes a hart's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Somebody starts it. All other changes are its owner's.
    Start,
    /// It begins at its entry.
    Begin,
    /// It asks to stop.
    AskStop,
    /// It has stopped.
    Stop,
    /// It asks to be suspended.
    AskSuspend,
    /// It sleeps.
    Sleep,
    /// Something that it waited for has come.
    Wake,
    /// It executes again.
    Resume,
}

impl HartState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Started,
        Self::Stopped,
        Self::StartPending,
        Self::StopPending,
        Self::Suspended,
        Self::SuspendPending,
        Self::ResumePending,
    ];

    /// The state with this number; `Stopped` if there is none.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Started,
            2 => Self::StartPending,
            3 => Self::StopPending,
            4 => Self::Suspended,
            5 => Self::SuspendPending,
            6 => Self::ResumePending,
            _ => Self::Stopped,
        }
    }

    /// The state after `change`, or `None` if that cannot happen in this one.
    #[must_use]
    pub const fn after(self, change: Change) -> Option<Self> {
        Some(match (self, change) {
            (Self::Stopped, Change::Start) => Self::StartPending,
            (Self::StartPending, Change::Begin) => Self::Started,
            (Self::Started, Change::AskStop) => Self::StopPending,
            (Self::StopPending, Change::Stop) => Self::Stopped,
            (Self::Started, Change::AskSuspend) => Self::SuspendPending,
            (Self::SuspendPending, Change::Sleep) => Self::Suspended,
            (Self::SuspendPending | Self::Suspended, Change::Wake) => Self::ResumePending,
            (Self::ResumePending, Change::Resume) => Self::Started,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: [Change; 8] = [
        Change::Start,
        Change::Begin,
        Change::AskStop,
        Change::Stop,
        Change::AskSuspend,
        Change::Sleep,
        Change::Wake,
        Change::Resume,
    ];

    fn walk(from: HartState, changes: &[Change]) -> Option<HartState> {
        changes.iter().try_fold(from, |state, change| state.after(*change))
    }

    #[test]
    fn numbers_are_those_of_the_specification() {
        for state in HartState::ALL {
            assert_eq!(HartState::from_raw(state as u8), state);
        }
        assert_eq!(HartState::from_raw(7), HartState::Stopped);
    }

    #[test]
    fn lives_of_a_hart() {
        use Change::{AskStop, AskSuspend, Begin, Resume, Sleep, Start, Stop, Wake};
        assert_eq!(walk(HartState::Stopped, &[Start, Begin, AskStop, Stop]), Some(HartState::Stopped));
        assert_eq!(walk(HartState::Started, &[AskSuspend, Sleep]), Some(HartState::Suspended));
        assert_eq!(walk(HartState::Started, &[AskSuspend, Sleep, Wake, Resume]), Some(HartState::Started));
        assert_eq!(walk(HartState::Started, &[AskSuspend, Wake, Resume]), Some(HartState::Started), "it never slept");
    }

    #[test]
    fn only_a_stopped_hart_starts() {
        for state in HartState::ALL {
            let started = state.after(Change::Start);
            assert_eq!(started.is_some(), state == HartState::Stopped, "{state:?}");
        }
    }

    #[test]
    fn each_pending_state_ends() {
        for state in HartState::ALL {
            assert!(CHANGES.iter().any(|change| state.after(*change).is_some()), "{state:?} is a dead end");
        }
    }
}
