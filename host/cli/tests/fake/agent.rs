//! A guest agent that knows a few commands.

use serde_json::{Value, json};

/// What it has heard so far.
#[derive(Default)]
pub struct Agent {
    heard: Vec<u8>,
    /// What the last command printed, and its status.
    last: (String, i64),
    /// Whether it was asked to power its guest off.
    pub is_going_down: bool,
}

impl Agent {
    /// Takes bytes; gives what it says.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend(bytes.iter().filter(|byte| **byte != 0xff));
        let mut said = Vec::new();
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            let command: Value = serde_json::from_slice(&line).expect("commands are JSON");
            said.extend(self.answer(&command));
        }
        said
    }

    fn answer(&mut self, command: &Value) -> Vec<u8> {
        let arguments = &command["arguments"];
        let (delimiter, value) = match command["execute"].as_str().unwrap_or_default() {
            "guest-sync-delimited" => (&b"\xff"[..], arguments["id"].clone()),
            "guest-exec" => (&b""[..], self.exec(arguments)),
            "guest-exec-status" => (&b""[..], self.status()),
            "guest-ping" => (&b""[..], json!({})),
            // A guest that goes down says nothing.
            "guest-shutdown" => {
                self.is_going_down = true;
                return Vec::new();
            }
            other => panic!("{other} is not known here"),
        };
        [delimiter, json!({"return": value}).to_string().as_bytes(), b"\n"].concat()
    }

    fn exec(&mut self, arguments: &Value) -> Value {
        let words: Vec<&str> = arguments["arg"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        self.last = match (arguments["path"].as_str().unwrap_or_default(), words.as_slice()) {
            ("echo", words) => (format!("{}\n", words.join(" ")), 0),
            ("false", _) => (String::new(), 1),
            ("/bin/sh", ["-c", script]) => (format!("script: {script}\n"), 42),
            (program, _) => (format!("{program}: not found\n"), 127),
        };
        json!({"pid": 7})
    }

    fn status(&self) -> Value {
        json!({"exited": true, "exitcode": self.last.1, "out-data": base64(self.last.0.as_bytes())})
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let group =
            chunk.iter().enumerate().fold(0_u32, |sum, (place, byte)| sum | u32::from(*byte) << (16 - 8 * place));
        let digit = |place: usize| {
            if place > chunk.len() { '=' } else { char::from(DIGITS[(group >> (18 - 6 * place) & 63) as usize]) }
        };
        [digit(0), digit(1), digit(2), digit(3)]
    };
    bytes.chunks(3).flat_map(encode).collect()
}
