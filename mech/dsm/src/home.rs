//! The directory: who owns the pages whose home this machine is. It answers one request for a page after the other.

use alloc::collections::{BTreeMap, VecDeque};

use dsm_wire::{MachineId, Page, Want};

use crate::state::Asked;

/// A page that has not the owner of its block, or is being given away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    owner: MachineId,
    /// Whose request is being answered.
    answering: Option<MachineId>,
    /// Who else has asked.
    queue: VecDeque<(MachineId, Want)>,
}

/// What to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// It waits for others.
    Nothing,
    /// Nobody has touched the block: it is the requester's.
    Give(Asked),
    /// The owner answers.
    Ask(MachineId, Asked),
}

/// The directory of a home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Home {
    blocks: BTreeMap<u64, MachineId>,
    pages: BTreeMap<Page, Entry>,
}

impl Home {
    /// `asked.who` wants a page of `block`; nothing if it has asked before and not been answered.
    pub fn request(&mut self, asked: Asked, block: u64) -> Option<Next> {
        if let Some(entry) = self.pages.get_mut(&asked.page)
            && let Some(answering) = entry.answering
        {
            if answering == asked.who || entry.queue.iter().any(|(who, _)| *who == asked.who) {
                return None;
            }
            entry.queue.push_back((asked.who, asked.want));
            return Some(Next::Nothing);
        }
        Some(self.begin(asked, block))
    }

    fn begin(&mut self, asked: Asked, block: u64) -> Next {
        let first = *self.blocks.entry(block).or_insert(MachineId(u8::MAX));
        let is_untouched = first == MachineId(u8::MAX);
        if is_untouched {
            self.blocks.insert(block, asked.who);
        }
        let owner = if is_untouched { asked.who } else { first };
        let entry = Entry { owner, answering: None, queue: VecDeque::new() };
        let entry = self.pages.entry(asked.page).or_insert(entry);
        entry.answering = Some(asked.who);
        if is_untouched { Next::Give(asked) } else { Next::Ask(entry.owner, asked) }
    }

    /// The request of `from` for `page` has been answered. Returns what is next; nothing if there was no such request.
    pub fn settled(&mut self, page: Page, from: MachineId, owner: MachineId, block: u64) -> Option<Next> {
        let entry = self.pages.get_mut(&page)?;
        if entry.answering != Some(from) {
            return None;
        }
        entry.owner = owner;
        entry.answering = None;
        if let Some((who, want)) = entry.queue.pop_front() {
            return Some(self.begin(Asked { who, want, page }, block));
        }
        if self.blocks.get(&block) == Some(&owner) {
            self.pages.remove(&page);
        }
        Some(Next::Nothing)
    }
}
