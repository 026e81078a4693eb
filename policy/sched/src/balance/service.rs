//! How well a vCPU was served lately.

/// Running averages of a vCPU's run and wait time, made from its counters. The caller keeps one per vCPU and updates it
/// now and then. The past fades with the time that the vCPU wants to run, however often it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceHistory {
    ran: u64,
    waited: u64,
    seen_ran: u64,
    seen_waited: u64,
}

impl ServiceHistory {
    /// Takes in the counters: all ticks that the vCPU ever ran, and that it was runnable and did not run. `span_ticks`
    /// ([`Caution::history_ticks`](super::Caution::history_ticks)) after something happened, about a third of it is
    /// remembered.
    pub fn observe(&mut self, total_ran: u64, total_waited: u64, span_ticks: u64) {
        // A counter that went backwards belongs to a vCPU that began anew.
        let ran = total_ran.checked_sub(self.seen_ran).unwrap_or(total_ran);
        let waited = total_waited.checked_sub(self.seen_waited).unwrap_or(total_waited);
        (self.seen_ran, self.seen_waited) = (total_ran, total_waited);
        let wanted = ran.saturating_add(waited);
        // What is new counts for as much as the span has room for.
        let weigh = |new: u64| if wanted > span_ticks { scaled(new, span_ticks, wanted) } else { new };
        let kept = |old: u64| scaled(old, span_ticks.saturating_sub(wanted), span_ticks);
        self.ran = kept(self.ran).saturating_add(weigh(ran));
        self.waited = kept(self.waited).saturating_add(weigh(waited));
    }

    /// Of the time that it wanted to run, how much it did, in thousandths. Who wanted nothing got all of it.
    #[must_use]
    pub fn served_permille(&self) -> u16 {
        let wanted = u128::from(self.ran) + u128::from(self.waited);
        (u128::from(self.ran) * 1_000).checked_div(wanted).map_or(1_000, |share| share as u16)
    }
}

/// `part` of `whole` in `value`; the part is not larger.
fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    (u128::from(value) * u128::from(part)).checked_div(u128::from(whole)).unwrap_or(0) as u64
}
