//! The conversation with one other cell.

use super::greetings;
use crate::services::cells;
use ::cell::CellId;
use alloc::{collections::VecDeque, vec::Vec};
use control::{ClientMessage, ControlError, Decoder, ServerMessage};

/// Bytes of requests that may wait for a cell.
const ROOM: usize = 128 << 10;
/// Bytes taken from a cell at a time.
const CHUNK: usize = 2 << 10;

/// One other cell, as long as it goes on.
#[derive(Debug)]
pub struct Link {
    /// The cell.
    pub cell: CellId,
    /// The cell is lost: nothing is asked of it any more.
    pub is_lost: bool,
    /// The number of its next event that has not been heard.
    pub next_event: u64,
    decoder: Decoder,
    out: VecDeque<u8>,
    chunk: Vec<u8>,
    has_greeted: bool,
}

impl Link {
    /// To a cell that may not have begun.
    pub fn new(cell: CellId) -> Self {
        Self {
            cell,
            is_lost: false,
            next_event: 0,
            decoder: Decoder::new(),
            out: VecDeque::new(),
            chunk: Vec::new(),
            has_greeted: false,
        }
    }

    /// Begins the session anew: streams of the one before are closed.
    pub fn greet(&mut self) {
        self.has_greeted = false;
    }

    /// Asks the cell.
    ///
    /// # Errors
    /// It has not begun, or too much waits for it.
    pub fn ask(&mut self, message: &ClientMessage) -> Result<(), ControlError> {
        if !self.is_open() {
            return Err(ControlError::Busy { what: "the VM's cell is booting".into() });
        }
        if self.out.len() > ROOM {
            return Err(ControlError::Busy { what: "too much waits for the VM's cell".into() });
        }
        self.put(message);
        Ok(())
    }

    /// Whether the cell can be asked; it is greeted first.
    fn is_open(&mut self) -> bool {
        // A cell that takes nothing is greeted once what waits for it fits.
        if !self.has_greeted && self.out.len() <= ROOM && cells::has_begun(self.cell) {
            self.has_greeted = true;
            greetings(self.next_event).iter().for_each(|message| self.put(message));
        }
        self.has_greeted
    }

    fn put(&mut self, message: &ClientMessage) {
        // Requests fit a frame: they came in one.
        self.out.extend(control::encode(message).unwrap_or_default());
    }

    /// Gives away what waits, as far as there is room.
    pub fn step(&mut self) {
        if self.is_lost {
            return;
        }
        self.is_open();
        let (front, _) = self.out.as_slices();
        if !front.is_empty() {
            let taken = cells::write(self.cell, front);
            self.out.drain(..taken);
        }
    }

    /// The next message of the cell that has come as a whole.
    pub fn next_message(&mut self) -> Option<ServerMessage> {
        loop {
            match self.decoder.next_message() {
                Some(Ok(message)) => return Some(message),
                // The same image wrote it, through memory: this does not happen.
                Some(Err(why)) => log::error!("cell {}: {why}", crate::machine::cell::name_of(self.cell.index())),
                None => {}
            }
            self.chunk.resize(CHUNK, 0);
            let len = cells::read(self.cell, &mut self.chunk);
            if len == 0 {
                return None;
            }
            self.decoder.push(&self.chunk[..len]);
        }
    }
}
