//! How well a vCPU was served lately.

/// Running averages of a vCPU's run and wait time, made from its counters. The caller keeps one per vCPU and updates
/// all of them at one rate; each update lets the past fade by an eighth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceHistory {
    ran: u64,
    waited: u64,
    seen_ran: u64,
    seen_waited: u64,
}

impl ServiceHistory {
    /// Takes in the counters: all ticks that the vCPU ever ran, and that it was runnable and did not run.
    pub fn observe(&mut self, total_ran: u64, total_waited: u64) {
        // A counter that went backwards belongs to a vCPU that began anew.
        let ran = total_ran.checked_sub(self.seen_ran).unwrap_or(total_ran);
        let waited = total_waited.checked_sub(self.seen_waited).unwrap_or(total_waited);
        self.ran = (self.ran - self.ran / 8).saturating_add(ran);
        self.waited = (self.waited - self.waited / 8).saturating_add(waited);
        (self.seen_ran, self.seen_waited) = (total_ran, total_waited);
    }

    /// Of the time that it wanted to run, how much it did, in thousandths. Who wanted nothing got all of it.
    #[must_use]
    pub fn served_permille(&self) -> u16 {
        let wanted = u128::from(self.ran) + u128::from(self.waited);
        (u128::from(self.ran) * 1_000).checked_div(wanted).map_or(1_000, |share| share as u16)
    }
}
