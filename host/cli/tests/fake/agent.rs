//! A guest agent whose guest is this host: commands are real processes, files are real, as far as `exec` and `stop` need them.
//! What a command leaves in the guest's temporary folder goes with the agent.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What it has heard so far, and what runs.
pub struct Agent {
    heard: Vec<u8>,
    /// Whether it was asked to power its guest off.
    pub is_going_down: bool,
    temporary: tempfile::TempDir,
    commands: HashMap<i64, (Child, Option<[File; 2]>)>,
    files: Vec<Option<File>>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            heard: Vec::new(),
            is_going_down: false,
            temporary: tempfile::tempdir().expect("a temporary directory"),
            commands: HashMap::new(),
            files: Vec::new(),
        }
    }
}

impl Drop for Agent {
    /// Whatever still runs ends with its guest.
    fn drop(&mut self) {
        for (child, _) in self.commands.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
            "guest-sync-delimited" => (&b"\xff"[..], Ok(arguments["id"].clone())),
            "guest-exec" => (&b""[..], self.exec(arguments)),
            "guest-exec-status" => (&b""[..], self.status(arguments)),
            "guest-file-open" => (&b""[..], self.open(arguments)),
            "guest-file-read" => (&b""[..], self.read(arguments)),
            "guest-file-write" => (&b""[..], self.write(arguments)),
            "guest-file-flush" | "guest-ping" => (&b""[..], Ok(json!({}))),
            "guest-file-close" => (&b""[..], self.close(arguments)),
            // A guest that goes down says nothing.
            "guest-shutdown" => {
                self.is_going_down = true;
                return Vec::new();
            }
            other => panic!("{other} is not known here"),
        };
        let answer = match value {
            Ok(value) => json!({"return": value}),
            Err(error) => json!({"error": {"class": "GenericError", "desc": error.to_string()}}),
        };
        [delimiter, answer.to_string().as_bytes(), b"\n"].concat()
    }

    fn exec(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let words = arguments["arg"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut command = Command::new(arguments["path"].as_str().unwrap_or_default());
        command.args(words).env("TMPDIR", self.temporary.path()).stdin(Stdio::null());
        let outputs = match arguments["capture-output"].as_bool() {
            Some(true) => Some([tempfile::tempfile()?, tempfile::tempfile()?]),
            _ => None,
        };
        match &outputs {
            Some([out, err]) => command.stdout(out.try_clone()?).stderr(err.try_clone()?),
            None => command.stdout(Stdio::null()).stderr(Stdio::null()),
        };
        let child = command.spawn()?;
        let pid = i64::from(child.id());
        self.commands.insert(pid, (child, outputs));
        Ok(json!({"pid": pid}))
    }

    fn status(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let pid = arguments["pid"].as_i64().unwrap_or_default();
        let (child, outputs) = self.commands.get_mut(&pid).ok_or(std::io::ErrorKind::NotFound)?;
        let Some(status) = child.try_wait()? else { return Ok(json!({"exited": false})) };
        let mut answer = match status.code() {
            Some(code) => json!({"exited": true, "exitcode": code}),
            None => json!({"exited": true, "signal": status.signal()}),
        };
        for (key, output) in ["out-data", "err-data"].iter().zip(outputs.iter_mut().flatten()) {
            let mut bytes = Vec::new();
            std::io::Seek::rewind(output)?;
            output.read_to_end(&mut bytes)?;
            answer[key] = STANDARD.encode(bytes).into();
        }
        self.commands.remove(&pid);
        Ok(answer)
    }

    fn open(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let mut options = OpenOptions::new();
        match arguments["mode"].as_str() {
            Some("r") => options.read(true),
            Some("r+") => options.read(true).write(true),
            Some("w") => options.write(true).create(true).truncate(true),
            other => panic!("mode {other:?} is not known here"),
        };
        self.files.push(Some(options.open(arguments["path"].as_str().unwrap_or_default())?));
        Ok((self.files.len() - 1).into())
    }

    fn file(&mut self, arguments: &Value) -> std::io::Result<&mut File> {
        let handle = arguments["handle"].as_u64().and_then(|handle| usize::try_from(handle).ok());
        let file = handle.and_then(|handle| self.files.get_mut(handle)?.as_mut());
        file.ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    fn read(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let mut bytes = Vec::new();
        let count = arguments["count"].as_u64().unwrap_or_default();
        self.file(arguments)?.take(count).read_to_end(&mut bytes)?;
        Ok(json!({"count": bytes.len(), "buf-b64": STANDARD.encode(&bytes), "eof": (bytes.len() as u64) < count}))
    }

    fn write(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let bytes = STANDARD.decode(arguments["buf-b64"].as_str().unwrap_or_default()).expect("it is base64");
        self.file(arguments)?.write_all(&bytes)?;
        Ok(json!({"count": bytes.len(), "eof": false}))
    }

    fn close(&mut self, arguments: &Value) -> std::io::Result<Value> {
        let handle = arguments["handle"].as_u64().and_then(|handle| usize::try_from(handle).ok());
        let file = handle.and_then(|handle| self.files.get_mut(handle)?.take());
        file.map(|_| json!({})).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}
