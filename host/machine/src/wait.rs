//! Waiting for something to become so.
//!
//! The monitor's events say when to look again; nothing is polled in the meantime, but for a look now and then in case
//! that an event was lost.

use std::time::{Duration, Instant};

use control::{Followed, Name, StreamData, VmState, VmSummary};
use thiserror::Error;

use crate::client::{Client, ClientError, Stream};

/// How long to trust that an event will come.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Why it did not become so.
#[derive(Debug, Error)]
pub enum WaitError {
    /// The connection to the machine failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The VM did not get there in time.
    #[error("VM {vm:?} is still {state} after {seconds} s")]
    State {
        /// The VM.
        vm: Name,
        /// Its state.
        state: VmState,
        /// How long was waited.
        seconds: u64,
    },
    /// The text did not come in time; the end of what came instead.
    #[error("the console did not show {wanted:?} within {seconds} s; it ends with {seen:?}")]
    Text {
        /// The text waited for.
        wanted: String,
        /// How long was waited.
        seconds: u64,
        /// The end of what came.
        seen: String,
    },
}

/// Waits until `is_so` holds for the VM, at most so long.
///
/// # Errors
/// [`WaitError::State`] at the end of the time; [`WaitError::Client`] if the machine or the VM goes.
pub fn wait_for_vm(
    client: &Client,
    vm: &Name,
    timeout: Duration,
    mut is_so: impl FnMut(&VmSummary) -> bool,
) -> Result<VmSummary, WaitError> {
    let deadline = Instant::now() + timeout;
    // Open before the first look: what happens after it makes an event.
    let events = client.follow_events(u64::MAX, Followed::Lives)?;
    loop {
        let summary = client.vm(vm)?;
        if is_so(&summary) {
            return Ok(summary);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WaitError::State { vm: vm.clone(), state: summary.state, seconds: timeout.as_secs() });
        }
        events.recv_timeout(left.min(LOOK_AGAIN))?;
    }
}

/// Waits until a console stream has shown `wanted`, at most so long. All that came is appended to `seen`.
///
/// # Errors
/// [`WaitError::Text`] at the end of the time; [`WaitError::Client`] if the stream ends.
pub fn wait_for_text(console: &Stream, wanted: &str, timeout: Duration, seen: &mut Vec<u8>) -> Result<(), WaitError> {
    let deadline = Instant::now() + timeout;
    // The text may be spread over chunks: search again from a little before the new bytes.
    let mut searched = 0;
    while !contains(seen.get(searched..).unwrap_or_default(), wanted.as_bytes()) {
        searched = seen.len().saturating_sub(wanted.len());
        match console.recv_timeout(deadline.saturating_duration_since(Instant::now()))? {
            Some(StreamData::Console { bytes, .. }) => seen.extend(bytes),
            Some(_) => {}
            None => {
                let tail = seen.get(seen.len().saturating_sub(200)..).unwrap_or_default();
                let seen = String::from_utf8_lossy(tail).into_owned();
                return Err(WaitError::Text { wanted: wanted.to_owned(), seconds: timeout.as_secs(), seen });
            }
        }
    }
    Ok(())
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|window| window == wanted)
}
