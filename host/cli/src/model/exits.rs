//! Exits by cause.

use control::{ExitCause, ExitCounts};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Exits by cause; in JSON an object with one key per cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitsView(ExitCounts);

impl From<ExitCounts> for ExitsView {
    fn from(counts: ExitCounts) -> Self {
        Self(counts)
    }
}

impl ExitsView {
    pub fn total(&self) -> u64 {
        self.0.total()
    }

    pub const fn get(&self, cause: ExitCause) -> u64 {
        self.0.get(cause)
    }

    /// All of several.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut total = ExitCounts::new();
        for part in parts {
            total.add(&part.0);
        }
        Self(total)
    }

    /// Growth since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.since(&before.0))
    }

    /// Causes that occurred, the most frequent first.
    pub fn ranked(&self) -> Vec<(ExitCause, u64)> {
        let mut causes: Vec<_> = self.0.iter().filter(|(_, count)| *count > 0).collect();
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        causes
    }
}

impl Serialize for ExitsView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(ExitCause::COUNT))?;
        for (cause, count) in self.0.iter() {
            map.serialize_entry(cause.label(), &count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_ranked_and_named() {
        let mut counts = ExitCounts::new();
        counts.0[ExitCause::Wfi.index()] = 5;
        counts.0[ExitCause::SbiCall.index()] = 7;
        let exits = ExitsView::from(counts);
        assert_eq!(exits.ranked(), [(ExitCause::SbiCall, 7), (ExitCause::Wfi, 5)]);
        assert_eq!(ExitsView::sum([&exits, &exits]).total(), 24);
        let json = serde_json::to_value(exits).expect("plain data");
        assert_eq!((json["wfi"].as_u64(), json["timer"].as_u64()), (Some(5), Some(0)));
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(ExitCause::COUNT));
    }
}
