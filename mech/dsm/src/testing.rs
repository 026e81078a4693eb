//! Small pages in a list, and a cluster whose messages wait until somebody chooses one.

use std::collections::VecDeque;
use std::vec::Vec;

use dsm_wire::{Content, Envelope, MachineId, Page};
use scarce::{Grow, NoMemory};

use crate::{Config, Dsm, Pages, Rights};

/// Pages of some words each, all zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memory {
    words: Vec<Vec<u64>>,
    rights: Vec<Rights>,
    /// Harts that should tell what they have retired.
    pub kicked: u64,
}

impl Memory {
    /// `pages` pages of `words` words.
    #[must_use]
    pub fn new(pages: usize, words: usize) -> Self {
        let words = (0..pages).map(|_| (0..words).map(|_| 0).collect()).collect();
        Self { words, rights: (0..pages).map(|_| Rights::None).collect(), kicked: 0 }
    }

    /// What harts may do to the page.
    #[must_use]
    pub fn rights_of(&self, page: Page) -> Rights {
        self.rights[page.0 as usize]
    }
}

impl Pages for Memory {
    fn rights(&mut self, page: Page, rights: Rights) {
        self.rights[page.0 as usize] = rights;
    }

    fn open(&mut self, first: Page, count: u64) {
        let end = self.rights.len().min((first.0 + count) as usize);
        self.rights[first.0 as usize..end].fill(Rights::ReadWrite);
    }

    fn read(&self, page: Page, word: u16) -> u64 {
        self.words[page.0 as usize][usize::from(word)]
    }

    fn write(&mut self, page: Page, word: u16, mask: u8, value: u64) {
        let of = crate::log::bits(mask);
        let place = &mut self.words[page.0 as usize][usize::from(word)];
        *place = *place & !of | value & of;
    }

    fn is_zero(&self, page: Page) -> bool {
        self.words[page.0 as usize].iter().all(|word| *word == 0)
    }

    fn copy_out(&self, page: Page, bytes: &mut Vec<u8>) -> Result<(), NoMemory> {
        let words = &self.words[page.0 as usize];
        bytes.grow_exact(words.len() * 8)?;
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        Ok(())
    }

    fn copy_in(&mut self, page: Page, content: &Content) {
        let words = &mut self.words[page.0 as usize];
        match content {
            Content::Block | Content::Zero => words.fill(0),
            Content::Bytes(bytes) => {
                for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                    *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                }
            }
        }
    }

    fn kick(&mut self, hart: u8) {
        self.kicked |= 1 << hart;
    }
}

/// Machines, their memories, and what is on its way between them: in order for each pair, in any order otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// The machines.
    pub machines: Vec<Dsm>,
    /// Their pages.
    pub memories: Vec<Memory>,
    channels: Vec<VecDeque<Envelope>>,
}

impl Cluster {
    /// Machines that are configured like `config`, with `pages` pages of `words` words.
    #[must_use]
    pub fn new(config: Config, pages: usize, words: usize) -> Self {
        let count = usize::from(config.machines);
        let machine = |number| Dsm::new(Config { me: MachineId(number), pages: pages as u64, ..config });
        Self {
            machines: (0..config.machines).map(machine).collect(),
            memories: (0..count).map(|_| Memory::new(pages, words)).collect(),
            channels: (0..count * count).map(|_| VecDeque::new()).collect(),
        }
    }

    /// A machine and its pages.
    pub fn at(&mut self, machine: usize) -> (&mut Dsm, &mut Memory) {
        (&mut self.machines[machine], &mut self.memories[machine])
    }

    /// Puts what the machine has to say on its way.
    pub fn collect(&mut self, machine: usize) {
        let count = self.machines.len();
        while let Some((to, envelope)) = self.machines[machine].next_message() {
            self.channels[machine * count + usize::from(to.0)].push_back(envelope);
        }
    }

    /// Channels that have something: (from, to).
    #[must_use]
    pub fn ready(&self) -> Vec<(usize, usize)> {
        let count = self.machines.len();
        let busy = self.channels.iter().enumerate().filter(|(_, channel)| !channel.is_empty());
        busy.map(|(at, _)| (at / count, at % count)).collect()
    }

    /// Delivers the next message of a channel that has one.
    ///
    /// # Panics
    /// If the receiver refuses it.
    pub fn deliver(&mut self, from: usize, to: usize) {
        let count = self.machines.len();
        let envelope = self.channels[from * count + to].pop_front().expect("the channel has something");
        let (machine, memory) = self.at(to);
        let result = machine.deliver(MachineId(from as u8), envelope.clone(), memory);
        result.unwrap_or_else(|refused| panic!("{refused}: {envelope:?} from {from} to {to}"));
        self.collect(to);
    }

    /// Delivers everything, the lowest channel first.
    pub fn calm(&mut self) {
        while let Some((from, to)) = self.ready().first().copied() {
            self.deliver(from, to);
        }
    }
}
