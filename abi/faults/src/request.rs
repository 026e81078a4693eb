//! What is to fail, and when.

use core::fmt;

use crate::{NodeSet, Refusal};

/// Words of an encoded [`Request`].
pub const REQUEST_WORDS: usize = 6;

/// The kinds of faults, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// [`Fault::NodePower`].
    NodePower = 1,
    /// [`Fault::Router`].
    Router = 2,
    /// [`Fault::Link`].
    Link = 3,
    /// [`Fault::NodeController`].
    NodeController = 4,
    /// [`Fault::Page`].
    Page = 5,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::NodePower, Self::Router, Self::Link, Self::NodeController, Self::Page];

    /// The kind with this number.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u64 == word)
    }

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodePower => "node-power",
            Self::Router => "router",
            Self::Link => "link",
            Self::NodeController => "node-controller",
            Self::Page => "page",
        }
    }
}

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One node loses its power: its harts stop, its memory is gone.
    NodePower(NodeSet),
    /// A router loses its power, and with it all nodes behind it.
    Router(NodeSet),
    /// The link between these nodes and all others: both parts live on, and neither reaches the other's memory or harts.
    Link(NodeSet),
    /// A node's controller hangs: its memory is gone, its harts hang in the middle of what they do.
    NodeController(NodeSet),
    /// One page of memory (its machine address) cannot be read, written or executed by anybody.
    Page(u64),
}

impl Fault {
    /// Its kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::NodePower(_) => Kind::NodePower,
            Self::Router(_) => Kind::Router,
            Self::Link(_) => Kind::Link,
            Self::NodeController(_) => Kind::NodeController,
            Self::Page(_) => Kind::Page,
        }
    }

    /// The nodes it names; none for a page.
    #[must_use]
    pub const fn nodes(self) -> NodeSet {
        match self {
            Self::NodePower(nodes) | Self::Router(nodes) | Self::Link(nodes) | Self::NodeController(nodes) => nodes,
            Self::Page(_) => NodeSet::EMPTY,
        }
    }

    /// The address it names; 0 for all but a page.
    #[must_use]
    pub const fn address(self) -> u64 {
        if let Self::Page(address) = self { address } else { 0 }
    }

    /// The fault of this kind, from words as anybody may have written them.
    ///
    /// # Errors
    /// What is wrong with them whatever the machine is like.
    pub fn decode(kind: u64, nodes: u64, address: u64) -> Result<Self, Refusal> {
        let kind = Kind::from_word(kind).ok_or(Refusal::UnknownKind)?;
        let set = NodeSet(nodes);
        if kind == Kind::Page {
            let is_aligned = address.is_multiple_of(crate::PAGE_BYTES);
            return if is_aligned { Ok(Self::Page(address)) } else { Err(Refusal::Unaligned) };
        }
        if set.is_empty() {
            return Err(Refusal::NoNodes);
        }
        let is_of_one = matches!(kind, Kind::NodePower | Kind::NodeController);
        if is_of_one && set.len() != 1 {
            return Err(Refusal::ManyNodes);
        }
        Ok(match kind {
            Kind::NodePower => Self::NodePower(set),
            Kind::Router => Self::Router(set),
            Kind::Link => Self::Link(set),
            Kind::NodeController => Self::NodeController(set),
            Kind::Page => Self::Page(address),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(address) => write!(f, "page {address:#x}"),
            other => write!(f, "{} {}", other.kind().name(), other.nodes()),
        }
    }
}

/// When it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as the firmware sees the request.
    Now,
    /// When the machine's time (`time`) has come this far.
    At {
        /// In ticks of the machine's timebase.
        ticks: u64,
    },
    /// When a hart has executed so many instructions since reset (`minstret`).
    AfterInstructions {
        /// How many.
        count: u64,
        /// Which hart, by its id.
        hart: u64,
    },
}

const NOW: u64 = 0;
const AT: u64 = 1;
const AFTER_INSTRUCTIONS: u64 = 2;

/// What is to fail, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub fault: Fault,
    /// When.
    pub trigger: Trigger,
}

impl Request {
    /// Its words: kind, nodes, address, kind of trigger, its value, its hart.
    #[must_use]
    pub const fn encode(self) -> [u64; REQUEST_WORDS] {
        let (trigger, value, hart) = match self.trigger {
            Trigger::Now => (NOW, 0, 0),
            Trigger::At { ticks } => (AT, ticks, 0),
            Trigger::AfterInstructions { count, hart } => (AFTER_INSTRUCTIONS, count, hart),
        };
        [self.fault.kind() as u64, self.fault.nodes().0, self.fault.address(), trigger, value, hart]
    }

    /// The request of these words, as anybody may have written them.
    ///
    /// # Errors
    /// What is wrong with them whatever the machine is like.
    pub fn decode(words: [u64; REQUEST_WORDS]) -> Result<Self, Refusal> {
        let [kind, nodes, address, trigger, value, hart] = words;
        let fault = Fault::decode(kind, nodes, address)?;
        let trigger = match trigger {
            NOW => Trigger::Now,
            AT => Trigger::At { ticks: value },
            AFTER_INSTRUCTIONS => Trigger::AfterInstructions { count: value, hart },
            _ => return Err(Refusal::UnknownTrigger),
        };
        Ok(Self { fault, trigger })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let decode = Fault::decode;
        assert_eq!(decode(0, 1, 0), Err(Refusal::UnknownKind));
        assert_eq!(decode(6, 1, 0), Err(Refusal::UnknownKind));
        assert_eq!(decode(1, 0, 0), Err(Refusal::NoNodes));
        assert_eq!(decode(1, 3, 0), Err(Refusal::ManyNodes));
        assert_eq!(decode(4, 3, 0), Err(Refusal::ManyNodes));
        assert_eq!(decode(2, 3, 0), Ok(Fault::Router(NodeSet(3))));
        assert_eq!(decode(5, 0, 0x8000_0800), Err(Refusal::Unaligned));
        assert_eq!(Request::decode([1, 1, 0, 3, 0, 0]), Err(Refusal::UnknownTrigger));
    }

    proptest! {
        /// Any words: a request that encodes to what it was decoded from (what it does not use is 0), or a refusal.
        #[test]
        fn any_words_are_a_request_or_refused(
            kind in 0_u64..8, nodes in 0_u64..16, address: u64, trigger in 0_u64..5, value: u64, hart: u64,
        ) {
            let words = [kind, nodes, address & !0xfff | value & 1, trigger, value, hart];
            if let Ok(request) = Request::decode(words) {
                let again = request.encode();
                prop_assert_eq!(Request::decode(again), Ok(request));
                prop_assert_eq!(again[0], kind);
                prop_assert!(again.iter().zip(words).all(|(now, was)| *now == was || *now == 0));
            }
        }
    }
}
