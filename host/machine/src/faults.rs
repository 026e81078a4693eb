//! Making the hardware of a running machine fail, through the mailbox of its firmware.
//!
//! Mailbox and status page lie in the machine's RAM, which is a file that this reads and writes by offset. Nothing that is
//! found there is believed before it is checked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use control::Name;
use faults::{
    FIRMWARE_AT, MAILBOX_AT, MAILBOX_MAGIC, Record, Refusal, Request, SLOTS, STATUS_AT, SlotState, Status, Trigger,
    VERSION, empty_mailbox, slot_at, slot_words, word,
};
use thiserror::Error;

use crate::ram::SharedRam;
use crate::rundir::RunDir;

/// Time between two looks at whether a request was taken.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of a word.
const WORD: u64 = 8;

/// Why a fault is not injected.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The machine has another firmware.
    #[error("the hardware of machine {name} cannot fail: say firmware = \"faults\" in [machine] of its file")]
    NoFirmware {
        /// The machine.
        name: Name,
    },
    /// The firmware has not got as far as its mailbox, or is not ours.
    #[error("the machine's firmware has no mailbox (yet): does it run?")]
    NoMailbox,
    /// The machine's RAM cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The firmware refuses.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// So many faults wait for their triggers already.
    #[error("{SLOTS} faults wait for their time already")]
    Full,
    /// The firmware does not take the request.
    #[error("the firmware has not taken the request within {seconds} s: does the emulator still run?")]
    Deaf {
        /// How long was waited.
        seconds: u64,
    },
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// It waits for its trigger.
    Armed,
    /// The fault happened.
    Done {
        /// Its number.
        epoch: u64,
        /// When, in ticks of the machine's time.
        ticks: u64,
    },
}

/// A way to the firmware of a running machine.
#[derive(Debug)]
pub struct FaultPort {
    ram: File,
    path: PathBuf,
}

impl FaultPort {
    /// That of a running machine.
    ///
    /// # Errors
    /// [`FaultError::NoFirmware`] or [`FaultError::NoMailbox`].
    pub fn of(dir: &RunDir) -> Result<Self, FaultError> {
        if !dir.state().is_some_and(|state| state.can_fail) {
            return Err(FaultError::NoFirmware { name: dir.name().clone() });
        }
        let port = Self::open(&SharedRam::link_in(dir.path()))?;
        if port.has_mailbox() { Ok(port) } else { Err(FaultError::NoMailbox) }
    }

    /// That of the machine with this RAM.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, FaultError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let ram = opened.map_err(|source| FaultError::Io { path: path.to_owned(), source })?;
        Ok(Self { ram, path: path.to_owned() })
    }

    /// Whether the firmware is ready: its mailbox is there, in the version that is known here, and so is its status.
    #[must_use]
    pub fn has_mailbox(&self) -> bool {
        self.mailbox(word::MAGIC) == MAILBOX_MAGIC && self.mailbox(word::VERSION) == VERSION && self.status().is_some()
    }

    /// What still works.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        Status::read(|index| self.word(STATUS_AT, index))
    }

    /// The latest faults, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<Record> {
        Status::history(|index| self.word(STATUS_AT, index)).collect()
    }

    /// The requests that wait for their triggers.
    #[must_use]
    pub fn armed(&self) -> Vec<Request> {
        let armed = (0..SLOTS).filter(|slot| self.state(*slot) == SlotState::Armed);
        let words = |slot| core::array::from_fn(|index| self.mailbox(slot_at(slot) + word::REQUEST + index));
        armed.filter_map(|slot| Request::decode(words(slot)).ok()).collect()
    }

    /// Asks for a fault, and waits until the firmware has taken the request: it is armed, or has happened.
    ///
    /// # Errors
    /// [`FaultError::Refused`], [`FaultError::Full`] or [`FaultError::Deaf`].
    pub fn inject(&self, request: Request, timeout: Duration) -> Result<Injection, FaultError> {
        let slot = (0..SLOTS).find(|slot| self.state(*slot).is_free()).ok_or(FaultError::Full)?;
        self.put(slot, request)?;
        let deadline = Instant::now() + timeout;
        loop {
            match self.state(slot) {
                // What is to happen at once is armed for an instant.
                SlotState::Armed if request.trigger != Trigger::Now => return Ok(Injection::Armed),
                SlotState::Done => {
                    let (epoch, ticks) = (self.answer(slot, word::EPOCH), self.answer(slot, word::TIME));
                    return Ok(Injection::Done { epoch, ticks });
                }
                SlotState::Refused => {
                    let code = self.answer(slot, word::REFUSAL);
                    return Err(Refusal::from_word(code).map_or(FaultError::NoMailbox, FaultError::Refused));
                }
                SlotState::Armed | SlotState::Ready | SlotState::Empty if Instant::now() > deadline => {
                    return Err(FaultError::Deaf { seconds: timeout.as_secs() });
                }
                SlotState::Armed | SlotState::Ready | SlotState::Empty => thread::sleep(LOOK),
            }
        }
    }

    /// Writes a mailbox with these requests before the machine starts, so that each run sees them at the same moment.
    ///
    /// # Errors
    /// [`FaultError::Full`] or [`FaultError::Io`].
    pub fn prepare(&self, requests: &[Request]) -> Result<(), FaultError> {
        if requests.len() > SLOTS {
            return Err(FaultError::Full);
        }
        let mut words = empty_mailbox(0);
        for (slot, request) in requests.iter().enumerate() {
            let request = slot_words(*request);
            words[slot_at(slot)..][..request.len()].copy_from_slice(&request);
        }
        self.write(MAILBOX_AT, 0, &words)
    }

    fn put(&self, slot: usize, request: Request) -> Result<(), FaultError> {
        let words = slot_words(request);
        // The state last: with it the slot is the firmware's.
        self.write(MAILBOX_AT, slot_at(slot) + word::REQUEST, &words[word::REQUEST..])?;
        self.write(MAILBOX_AT, slot_at(slot), &words[..word::REQUEST])
    }

    fn state(&self, slot: usize) -> SlotState {
        SlotState::from_word(self.answer(slot, word::STATE))
    }

    fn answer(&self, slot: usize, index: usize) -> u64 {
        self.mailbox(slot_at(slot) + index)
    }

    fn mailbox(&self, index: usize) -> u64 {
        self.word(MAILBOX_AT, index)
    }

    /// A word of a page; 0 where RAM ends before it.
    fn word(&self, page: u64, index: usize) -> u64 {
        let mut bytes = [0; WORD as usize];
        let _ = self.ram.read_exact_at(&mut bytes, page - FIRMWARE_AT + index as u64 * WORD);
        u64::from_le_bytes(bytes)
    }

    fn write(&self, page: u64, index: usize, words: &[u64]) -> Result<(), FaultError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let written = self.ram.write_all_at(&bytes, page - FIRMWARE_AT + index as u64 * WORD);
        written.map_err(|source| FaultError::Io { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests;
