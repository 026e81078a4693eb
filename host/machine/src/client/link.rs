//! One connection: ids, waiting calls, open streams, and the thread that reads.
//!
//! # Locking
//! `writer` and `table` are never held together; nobody waits for an answer while holding either.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use control::{Body, ClientMessage, ControlError, Decoder, Reply, Request, ServerMessage, StreamData};

use super::ClientError;

type Answer = Result<Reply, ControlError>;

/// One connection.
#[derive(Debug)]
pub struct Link {
    writer: Mutex<UnixStream>,
    table: Arc<Mutex<Table>>,
}

/// Who waits for what.
#[derive(Debug, Default)]
struct Table {
    last_id: u32,
    waiting: HashMap<u32, Waiter>,
    /// Why the connection ended, once it has.
    ended: Option<String>,
}

#[derive(Debug)]
enum Waiter {
    /// For an answer.
    Call(Sender<Answer>),
    /// For an answer that opens a stream.
    Opening(Sender<Answer>, Sender<StreamData>),
    /// For data.
    Stream(Sender<StreamData>),
}

impl Link {
    /// Takes a connected socket and begins to read it.
    pub fn start(socket: UnixStream) -> Result<Arc<Self>, ClientError> {
        let disconnected = |error: std::io::Error| ClientError::Disconnected { reason: error.to_string() };
        let reader = socket.try_clone().map_err(disconnected)?;
        let table = Arc::new(Mutex::new(Table::default()));
        let readers_table = Arc::clone(&table);
        let body = move || {
            let reason = read_all(reader, &readers_table);
            let mut table = lock(&readers_table);
            table.ended = Some(reason);
            // Dropping the senders wakes all who wait.
            table.waiting.clear();
        };
        thread::Builder::new().name("control-client".into()).spawn(body).map_err(disconnected)?;
        Ok(Arc::new(Self { writer: Mutex::new(socket), table }))
    }

    /// Sends a request and waits for the answer.
    pub fn call(&self, request: Request, timeout: Duration) -> Result<Reply, ClientError> {
        let (sender, answer) = channel();
        let label = label(&request);
        let id = self.send(request, Waiter::Call(sender))?;
        self.wait(id, label, &answer, timeout)
    }

    /// Sends a request that opens a stream; gives the stream's id, the answer and the data to come.
    pub fn open(&self, request: Request, timeout: Duration) -> Result<(u32, Reply, Receiver<StreamData>), ClientError> {
        let (sender, answer) = channel();
        let (data_sender, data) = channel();
        let label = label(&request);
        let id = self.send(request, Waiter::Opening(sender, data_sender))?;
        let reply = self.wait(id, label, &answer, timeout)?;
        Ok((id, reply, data))
    }

    /// Tells the server that a stream is no longer wanted, without waiting.
    pub fn abandon(&self, stream: u32) {
        lock(&self.table).waiting.remove(&stream);
        let (sender, _) = channel();
        let _ = self.send(Request::Close { stream }, Waiter::Call(sender));
    }

    /// Why the connection ended; a general answer while it has not.
    pub fn end_reason(&self) -> ClientError {
        let reason = lock(&self.table).ended.clone();
        ClientError::Disconnected { reason: reason.unwrap_or_else(|| "the stream is closed".into()) }
    }

    fn wait(&self, id: u32, label: &str, answer: &Receiver<Answer>, timeout: Duration) -> Result<Reply, ClientError> {
        match answer.recv_timeout(timeout) {
            Ok(answer) => answer.map_err(ClientError::Refused),
            Err(RecvTimeoutError::Disconnected) => Err(self.end_reason()),
            Err(RecvTimeoutError::Timeout) => {
                lock(&self.table).waiting.remove(&id);
                Err(ClientError::Timeout { request: label.to_owned(), seconds: timeout.as_secs() })
            }
        }
    }

    fn send(&self, request: Request, waiter: Waiter) -> Result<u32, ClientError> {
        let id = {
            let mut table = lock(&self.table);
            if let Some(reason) = &table.ended {
                return Err(ClientError::Disconnected { reason: reason.clone() });
            }
            let id = table.fresh_id();
            table.waiting.insert(id, waiter);
            id
        };
        let sent = control::encode(&ClientMessage { id, request }).map_err(ClientError::TooLarge).and_then(|frame| {
            let result = lock(&self.writer).write_all(&frame);
            result.map_err(|error| ClientError::Disconnected { reason: error.to_string() })
        });
        if let Err(error) = sent {
            lock(&self.table).waiting.remove(&id);
            return Err(error);
        }
        Ok(id)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Ends the reading thread too.
        let _ = lock(&self.writer).shutdown(Shutdown::Both);
    }
}

impl Table {
    fn fresh_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.waiting.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Hands a message to who waits for it. Answers that come after their time-out find nobody.
    fn deliver(&mut self, message: ServerMessage) {
        let id = message.id;
        match (self.waiting.remove(&id), message.body) {
            (Some(Waiter::Call(sender)), Body::Reply(reply)) => drop(sender.send(Ok(reply))),
            (Some(Waiter::Call(sender) | Waiter::Opening(sender, _)), Body::Error(error)) => {
                drop(sender.send(Err(error)));
            }
            (Some(Waiter::Opening(sender, data)), Body::Reply(reply)) => {
                self.waiting.insert(id, Waiter::Stream(data));
                drop(sender.send(Ok(reply)));
            }
            (Some(Waiter::Stream(sender)), Body::Stream(data)) => {
                let is_last = matches!(data, StreamData::End(_));
                if sender.send(data).is_ok() && !is_last {
                    self.waiting.insert(id, Waiter::Stream(sender));
                }
            }
            (Some(waiter), _) => drop(self.waiting.insert(id, waiter)),
            (None, _) => {}
        }
    }
}

/// Reads until the connection ends; says why it did.
fn read_all(mut reader: UnixStream, table: &Mutex<Table>) -> String {
    let mut decoder = Decoder::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let count = match reader.read(&mut chunk) {
            Ok(0) => return "the machine closed it".into(),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return error.to_string(),
        };
        decoder.push(chunk.get(..count).unwrap_or_default());
        while let Some(next) = decoder.next_message() {
            match next {
                Ok(message) => lock(table).deliver(message),
                Err(error) => return format!("the machine sent something unreadable ({error})"),
            }
        }
    }
}

const fn label(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "Hello",
        Request::MachineInfo => "MachineInfo",
        Request::ListVms => "ListVms",
        Request::CreateVm(_) => "CreateVm",
        Request::StartVm { .. } => "StartVm",
        Request::PauseVm { .. } => "PauseVm",
        Request::ResumeVm { .. } => "ResumeVm",
        Request::KillVm { .. } => "KillVm",
        Request::ResetVm { .. } => "ResetVm",
        Request::DestroyVm { .. } => "DestroyVm",
        Request::SetVm { .. } => "SetVm",
        Request::MachineStats => "MachineStats",
        Request::VmStats { .. } => "VmStats",
        Request::Events { .. } => "Events",
        Request::EventsFollow { .. } => "EventsFollow",
        Request::ConsoleAttach { .. } => "ConsoleAttach",
        Request::PortOpen { .. } => "PortOpen",
        Request::Input { .. } => "Input",
        Request::Close { .. } => "Close",
        Request::PutModule { .. } => "PutModule",
        Request::ModuleChunk { .. } => "ModuleChunk",
        Request::DropModule { .. } => "DropModule",
        Request::Shutdown => "Shutdown",
        Request::Panic { .. } => "Panic",
        Request::ExitTrace { .. } => "ExitTrace",
        Request::Snapshot { .. } => "Snapshot",
        Request::PageMap { .. } => "PageMap",
        Request::Stores => "Stores",
        Request::RemoveVolume { .. } => "RemoveVolume",
        Request::Cells => "Cells",
        Request::RefuseMemory { .. } => "RefuseMemory",
        Request::DebugOpen { .. } => "DebugOpen",
        Request::Debug { .. } => "Debug",
        Request::Sample { .. } => "Sample",
    }
}

/// A poisoned lock means that a thread panicked between two whole updates; the data is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
