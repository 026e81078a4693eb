//! A console through pipes: output is copied, input is sent, until something that was asked for happens.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use control::{Name, StreamData, VmState};
use machine::{Client, ClientError, Stream};

use super::EscapeKey;
use super::input::{InputEvent, InputSink, InputThread};
use crate::failure::Failure;
use crate::output::Output;

/// How long to wait for output before looking at the VM's state.
const LOOK: Duration = Duration::from_millis(250);

/// A VM's console through pipes.
#[derive(Debug)]
pub struct Pipe<'a> {
    pub client: &'a Client,
    pub vm: &'a Name,
    pub has_scrollback: bool,
    /// Text that ends it.
    pub until: Option<&'a str>,
    pub timeout: Option<Duration>,
    /// Whether standard input is sent.
    pub with_input: bool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipeEnd {
    /// The text was seen.
    Seen,
    /// The VM stopped.
    Stopped,
    /// The time is over.
    TimedOut,
}

/// Looks for a text that may be spread over chunks.
#[derive(Debug)]
struct Search<'a> {
    wanted: &'a [u8],
    tail: Vec<u8>,
}

impl Pipe<'_> {
    /// Copies the output that is kept, and ends.
    pub fn dump(client: &Client, vm: &Name, output: &Output) -> Result<(), Failure> {
        let (range, stream) = client.console(vm, 0)?;
        let mut place = range.first;
        while place < range.end {
            if let StreamData::Console { offset, bytes } = stream.recv()? {
                place = offset.saturating_add(bytes.len() as u64);
                output.bytes(&bytes)?;
            }
        }
        Ok(())
    }

    /// Copies until the end.
    pub fn run(&self, output: &Output) -> Result<PipeEnd, Failure> {
        let (_, stream) = self.client.console(self.vm, if self.has_scrollback { 0 } else { u64::MAX })?;
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let (sender, input_events) = channel();
        let sink = InputSink { client: self.client.clone(), stream: stream.id() };
        let no_key = EscapeKey::none();
        let input = self.with_input.then(|| InputThread::start(sink, no_key, sender, std::convert::identity));
        let _input = input.transpose().map_err(Failure::system("cannot make a thread"))?;
        let mut search = Search { wanted: self.until.unwrap_or_default().as_bytes(), tail: Vec::new() };
        loop {
            if let Some(end) = self.step(&stream, deadline, &mut search, output)? {
                return Ok(end);
            }
            check_input(&input_events)?;
        }
    }

    fn step(
        &self,
        stream: &Stream,
        deadline: Option<Instant>,
        search: &mut Search<'_>,
        output: &Output,
    ) -> Result<Option<PipeEnd>, Failure> {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some(PipeEnd::TimedOut));
        }
        let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()).min(LOOK));
        match stream.recv_timeout(left) {
            Ok(Some(StreamData::Console { bytes, .. })) => {
                output.bytes(&bytes)?;
                Ok(search.push(&bytes).then_some(PipeEnd::Seen))
            }
            Ok(Some(_)) => Ok(None),
            // Nothing more will come from a VM that has stopped and is silent.
            Ok(None) => Ok((self.client.vm(self.vm)?.state == VmState::Stopped).then_some(PipeEnd::Stopped)),
            Err(ClientError::StreamEnded(_)) => Ok(Some(PipeEnd::Stopped)),
            Err(error) => Err(error.into()),
        }
    }
}

fn check_input(events: &Receiver<InputEvent>) -> Result<(), Failure> {
    match events.recv_timeout(Duration::ZERO) {
        Ok(InputEvent::Failed(why)) => Err(Failure::Other(format!("cannot send input to the guest: {why}"))),
        Ok(InputEvent::EndOfFile | InputEvent::Escape)
        | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
    }
}

impl Search<'_> {
    /// Takes the next bytes; says whether the text has been there.
    fn push(&mut self, bytes: &[u8]) -> bool {
        if self.wanted.is_empty() {
            return false;
        }
        self.tail.extend_from_slice(bytes);
        let is_found = self.tail.windows(self.wanted.len()).any(|window| window == self.wanted);
        let keep = self.wanted.len() - 1;
        self.tail.drain(..self.tail.len().saturating_sub(keep));
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_across_chunks() {
        let mut search = Search { wanted: b"login:", tail: Vec::new() };
        assert!(!search.push(b"debian lo"));
        assert!(!search.push(b"gin"));
        assert!(search.push(b": "));
        assert!(!search.push(b"login"));
        let mut nothing = Search { wanted: b"", tail: Vec::new() };
        assert!(!nothing.push(b"anything"));
        assert!(nothing.tail.is_empty());
    }
}
