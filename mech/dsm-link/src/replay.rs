//! Packet numbers that have been seen.

/// The last 64 of them, as IPsec does it (RFC 4303, "Anti-Replay").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    highest: u64,
    /// Bit n: `highest - n` has been seen.
    bits: u64,
}

impl Seen {
    /// Takes a number. Says whether it is new; one that is 64 or more behind counts as seen.
    pub const fn take(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = number - self.highest;
            self.bits = if ahead >= 64 { 1 } else { self.bits << ahead | 1 };
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        if behind >= 64 || self.bits >> behind & 1 == 1 {
            return false;
        }
        self.bits |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Seen;

    #[test]
    fn each_number_is_new_once() {
        let mut seen = Seen::default();
        for number in [3, 1, 2, 70, 69, 7] {
            assert!(seen.take(number), "{number}");
            assert!(!seen.take(number), "{number} again");
        }
        assert!(!seen.take(6), "too far behind");
        assert!(seen.take(u64::MAX));
        assert!(!seen.take(70));
    }
}
