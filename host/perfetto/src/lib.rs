//! Traces in the JSON format that Perfetto and browsers' `about:tracing` read: processes and threads with names, spans and moments in
//! them, and counters.
//!
//! No `unsafe`, no locks.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use serde_json::{Value, json};

/// A thread of a process: both are numbers that the writer of the trace chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Track {
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
}

/// A trace that is being written. Times are in microseconds.
#[derive(Debug)]
pub struct Trace<W> {
    to: W,
    is_first: bool,
}

impl<W: Write> Trace<W> {
    /// Begins one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(mut to: W) -> io::Result<Self> {
        to.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        Ok(Self { to, is_first: true })
    }

    fn put(&mut self, event: &Value) -> io::Result<()> {
        if !std::mem::take(&mut self.is_first) {
            self.to.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.to, event)?;
        Ok(())
    }

    /// Names a process.
    ///
    /// # Errors
    /// If it cannot be written; so do all others.
    pub fn process(&mut self, process: u32, name: &str) -> io::Result<()> {
        self.put(&json!({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}))
    }

    /// Names a thread.
    ///
    /// # Errors
    /// As for [`Self::process`].
    pub fn thread(&mut self, track: Track, name: &str) -> io::Result<()> {
        let Track { process, thread } = track;
        self.put(&json!({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}))
    }

    /// Something that took time.
    ///
    /// # Errors
    /// As for [`Self::process`].
    pub fn span(&mut self, track: Track, name: &str, category: &str, at_us: f64, for_us: f64) -> io::Result<()> {
        let Track { process, thread } = track;
        self.put(&json!({
            "ph": "X", "name": name, "cat": category, "pid": process, "tid": thread, "ts": at_us, "dur": for_us,
        }))
    }

    /// Something that happened, with what is to be known of it.
    ///
    /// # Errors
    /// As for [`Self::process`].
    pub fn moment(
        &mut self,
        track: Track,
        name: &str,
        category: &str,
        at_us: f64,
        arguments: &Value,
    ) -> io::Result<()> {
        let Track { process, thread } = track;
        self.put(&json!({
            "ph": "i", "s": "t", "name": name, "cat": category, "pid": process, "tid": thread, "ts": at_us,
            "args": arguments,
        }))
    }

    /// Numbers at a moment.
    ///
    /// # Errors
    /// As for [`Self::process`].
    pub fn counter(&mut self, process: u32, name: &str, at_us: f64, values: &Value) -> io::Result<()> {
        self.put(&json!({"ph": "C", "name": name, "pid": process, "ts": at_us, "args": values}))
    }

    /// Ends it.
    ///
    /// # Errors
    /// As for [`Self::process`].
    pub fn end(mut self) -> io::Result<W> {
        self.to.write_all(b"\n]}\n")?;
        self.to.flush()?;
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_json_whatever_names_say() {
        let mut trace = Trace::begin(Vec::new()).expect("it is memory");
        let track = Track { process: 1, thread: 2 };
        trace.process(1, "a \"b\"").expect("it is memory");
        trace.thread(track, "vCPU 0").expect("it is memory");
        trace.span(track, "run", "hart", 1.5, 2.0).expect("it is memory");
        trace.moment(track, "sbi-call", "exit", 3.0, &json!({"pc": "0x80"})).expect("it is memory");
        trace.counter(1, "free", 4.0, &json!({"MiB": 3})).expect("it is memory");
        let written = trace.end().expect("it is memory");
        let value: Value = serde_json::from_slice(&written).expect("it is JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        assert_eq!(events.len(), 5);
        assert_eq!((events[2]["ts"].as_f64(), events[2]["dur"].as_f64()), (Some(1.5), Some(2.0)));
        let empty = Trace::begin(Vec::new()).and_then(Trace::end).expect("it is memory");
        assert!(serde_json::from_slice::<Value>(&empty).is_ok());
    }
}
