//! Envelopes as bytes.

use alloc::vec::Vec;

use scarce::{Grow, NoMemory};

use crate::message::{Content, Envelope, History, MachineId, Machines, Message, Mode, Page, Store, Want};

/// Stores in one message.
pub const MAX_STORES: usize = 64;

const STORE_BYTES: usize = 8 + 2 + 1 + 8;

/// Bytes that are no envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They end too early.
    #[error("the message ends too early")]
    Short,
    /// There are more than the message has.
    #[error("{more} bytes follow the message")]
    Long {
        /// How many.
        more: usize,
    },
    /// A value that nothing stands for.
    #[error("the value {value} stands for nothing")]
    Unknown {
        /// The value.
        value: u8,
    },
    /// Too many stores, or none.
    #[error("{count} stores in a message")]
    Stores {
        /// How many.
        count: usize,
    },
    /// A machine's number of 64 or more.
    #[error("there is no machine {number}")]
    Machine {
        /// The number.
        number: u8,
    },
    /// A store outside its page or to no byte.
    #[error("a store to word {word} with the mask {mask:#x}")]
    Store {
        /// Which word.
        word: u16,
        /// Which bytes.
        mask: u8,
    },
    /// No memory for the contents.
    #[error("no memory for the message")]
    NoMemory,
}

impl From<NoMemory> for Malformed {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// Writes `envelope` behind what `bytes` has.
///
/// # Errors
/// [`NoMemory`]; `bytes` may then end in a part of it.
pub fn encode(envelope: &Envelope, bytes: &mut Vec<u8>) -> Result<(), NoMemory> {
    let mut to = Writer(bytes);
    to.u64(envelope.stamp)?;
    match &envelope.message {
        Message::Request { page, want } => {
            to.head(1, *page)?;
            to.put(&[want_code(*want)])
        }
        Message::Forward { page, want, requester } => {
            to.head(2, *page)?;
            to.put(&[want_code(*want), requester.0])
        }
        Message::Copy { page, mode, content } => {
            to.head(3, *page)?;
            to.put(&[mode_code(*mode)])?;
            to.content(content.as_ref())
        }
        Message::Grant { page, mode, copyset, history, content } => {
            to.head(4, *page)?;
            to.put(&[mode_code(*mode), history.shared, history.returns, history.plain])?;
            to.u64(copyset.0)?;
            to.content(content.as_ref())
        }
        Message::Stop { page, mode } => {
            to.head(5, *page)?;
            to.put(&[mode_code(*mode)])
        }
        Message::Stopped { page } => to.head(6, *page),
        Message::Settled { page, owner } => {
            to.head(7, *page)?;
            to.put(&[owner.0])
        }
        Message::Log { stores } => {
            to.put(&[8])?;
            to.stores(stores)
        }
        Message::Update { place, writer, stores } => {
            to.put(&[9])?;
            to.u64(*place)?;
            to.put(&[writer.0])?;
            to.stores(stores)
        }
    }
}

/// The envelope that `bytes` are, in a VM with pages of `page_bytes`.
///
/// # Errors
/// [`Malformed`].
pub fn decode(bytes: &[u8], page_bytes: usize) -> Result<Envelope, Malformed> {
    let mut from = Reader { bytes, page_bytes };
    let stamp = from.u64()?;
    let message = from.message()?;
    match from.bytes.len() {
        0 => Ok(Envelope { stamp, message }),
        more => Err(Malformed::Long { more }),
    }
}

const fn want_code(want: Want) -> u8 {
    match want {
        Want::Read => 0,
        Want::Write => 1,
        Want::Atomic => 2,
        Want::Sole => 3,
    }
}

const fn mode_code(mode: Mode) -> u8 {
    match mode {
        Mode::Invalidate => 0,
        Mode::Single => 1,
        Mode::Multi => 2,
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), NoMemory> {
        self.0.grow(bytes.len())?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn u64(&mut self, value: u64) -> Result<(), NoMemory> {
        self.put(&value.to_le_bytes())
    }

    fn head(&mut self, kind: u8, page: Page) -> Result<(), NoMemory> {
        self.put(&[kind])?;
        self.u64(page.0)
    }

    fn content(&mut self, content: Option<&Content>) -> Result<(), NoMemory> {
        match content {
            None => self.put(&[0]),
            Some(Content::Zero) => self.put(&[1]),
            Some(Content::Block) => self.put(&[3]),
            Some(Content::Bytes(bytes)) => {
                self.put(&[2])?;
                self.put(bytes)
            }
        }
    }

    fn stores(&mut self, stores: &[Store]) -> Result<(), NoMemory> {
        self.put(&[stores.len() as u8])?;
        for store in stores {
            self.u64(store.page.0)?;
            self.put(&store.word.to_le_bytes())?;
            self.put(&[store.mask])?;
            self.u64(store.value)?;
        }
        Ok(())
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    page_bytes: usize,
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.bytes.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn page(&mut self) -> Result<Page, Malformed> {
        Ok(Page(self.u64()?))
    }

    fn machine(&mut self) -> Result<MachineId, Malformed> {
        match self.u8()? {
            number @ 0..64 => Ok(MachineId(number)),
            number => Err(Malformed::Machine { number }),
        }
    }

    fn want(&mut self) -> Result<Want, Malformed> {
        Ok(match self.u8()? {
            0 => Want::Read,
            1 => Want::Write,
            2 => Want::Atomic,
            3 => Want::Sole,
            value => return Err(Malformed::Unknown { value }),
        })
    }

    fn mode(&mut self) -> Result<Mode, Malformed> {
        Ok(match self.u8()? {
            0 => Mode::Invalidate,
            1 => Mode::Single,
            2 => Mode::Multi,
            value => return Err(Malformed::Unknown { value }),
        })
    }

    fn message(&mut self) -> Result<Message, Malformed> {
        Ok(match self.u8()? {
            1 => Message::Request { page: self.page()?, want: self.want()? },
            2 => Message::Forward { page: self.page()?, want: self.want()?, requester: self.machine()? },
            3 => Message::Copy { page: self.page()?, mode: self.mode()?, content: self.content()? },
            4 => self.grant()?,
            5 => Message::Stop { page: self.page()?, mode: self.mode()? },
            6 => Message::Stopped { page: self.page()? },
            7 => Message::Settled { page: self.page()?, owner: self.machine()? },
            8 => Message::Log { stores: self.stores()? },
            9 => Message::Update { place: self.u64()?, writer: self.machine()?, stores: self.stores()? },
            value => return Err(Malformed::Unknown { value }),
        })
    }

    fn grant(&mut self) -> Result<Message, Malformed> {
        let page = self.page()?;
        let mode = self.mode()?;
        let [shared, returns, plain] = self.array()?;
        let copyset = Machines(self.u64()?);
        let history = History { shared, returns, plain };
        Ok(Message::Grant { page, mode, copyset, history, content: self.content()? })
    }

    fn content(&mut self) -> Result<Option<Content>, Malformed> {
        Ok(match self.u8()? {
            0 => None,
            1 => Some(Content::Zero),
            3 => Some(Content::Block),
            2 => {
                let (bytes, rest) = self.bytes.split_at_checked(self.page_bytes).ok_or(Malformed::Short)?;
                self.bytes = rest;
                let mut copy = scarce::room(bytes.len())?;
                copy.extend_from_slice(bytes);
                Some(Content::Bytes(copy))
            }
            value => return Err(Malformed::Unknown { value }),
        })
    }

    fn stores(&mut self) -> Result<Vec<Store>, Malformed> {
        let count = usize::from(self.u8()?);
        if count == 0 || count > MAX_STORES {
            return Err(Malformed::Stores { count });
        }
        if self.bytes.len() < count * STORE_BYTES {
            return Err(Malformed::Short);
        }
        let mut stores = scarce::room(count)?;
        for _ in 0..count {
            stores.push(self.store()?);
        }
        Ok(stores)
    }

    fn store(&mut self) -> Result<Store, Malformed> {
        let page = self.page()?;
        let word = u16::from_le_bytes(self.array()?);
        let mask = self.u8()?;
        if mask == 0 || usize::from(word) >= self.page_bytes / 8 {
            return Err(Malformed::Store { word, mask });
        }
        Ok(Store { page, word, mask, value: self.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    const PAGE: Page = Page(0x8_0001);
    const BYTES: usize = 16;

    fn every() -> Vec<Message> {
        let store = Store { page: PAGE, word: 1, mask: 0b110, value: 0x1234_0000 };
        let history = History { shared: 1, returns: 2, plain: 3 };
        let content = Some(Content::Bytes((0..16).collect()));
        vec![
            Message::Request { page: PAGE, want: Want::Sole },
            Message::Forward { page: PAGE, want: Want::Atomic, requester: MachineId(63) },
            Message::Copy { page: PAGE, mode: Mode::Multi, content: content.clone() },
            Message::Copy { page: PAGE, mode: Mode::Single, content: None },
            Message::Grant { page: PAGE, mode: Mode::Invalidate, copyset: Machines(6), history, content },
            Message::Grant {
                page: PAGE,
                mode: Mode::Single,
                copyset: Machines(0),
                history,
                content: Some(Content::Zero),
            },
            Message::Stop { page: PAGE, mode: Mode::Single },
            Message::Stopped { page: PAGE },
            Message::Settled { page: PAGE, owner: MachineId(2) },
            Message::Log { stores: vec![store; MAX_STORES] },
            Message::Update { place: 9, writer: MachineId(1), stores: vec![store] },
        ]
    }

    #[test]
    fn every_message_comes_back_and_no_part_of_it_is_one() {
        for message in every() {
            let envelope = Envelope { stamp: 77, message };
            let mut bytes = Vec::new();
            encode(&envelope, &mut bytes).expect("there is memory");
            assert_eq!(decode(&bytes, BYTES).as_ref(), Ok(&envelope));
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end], BYTES).is_err(), "{envelope:?} cut at {end}");
            }
            bytes.push(0);
            assert_eq!(decode(&bytes, BYTES), Err(Malformed::Long { more: 1 }));
        }
    }

    #[test]
    fn stores_outside_a_page_or_to_nothing_are_refused() {
        for (word, mask) in [(2, 1), (0, 0), (u16::MAX, 255)] {
            let store = Store { page: PAGE, word, mask, value: 1 };
            let envelope = Envelope { stamp: 0, message: Message::Log { stores: vec![store] } };
            let mut bytes = Vec::new();
            encode(&envelope, &mut bytes).expect("there is memory");
            assert_eq!(decode(&bytes, BYTES), Err(Malformed::Store { word, mask }));
        }
    }
}
