//! Who asked what: many clients' ids on one connection to the monitor.
//!
//! The router does no input and no output. Messages go in, messages to send come out; so all of its behaviour is
//! tested without a socket. Ids towards the monitor are the router's own; it translates them in both directions, in
//! errors too.

use std::collections::{BTreeMap, HashMap};

use control::{
    Body, ClientMessage, ControlError, Name, PROTOCOL_VERSION, Reply, Request, ServerHello, ServerMessage, StreamData,
    StreamEnd,
};

/// Open streams and unanswered requests that one client may have.
pub const MAX_OPEN: usize = 256;

/// A connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// What to send in consequence of a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Consequence {
    /// To a client.
    pub to_client: Option<(ClientId, ServerMessage)>,
    /// To the monitor.
    pub to_monitor: Vec<ClientMessage>,
}

/// Who asked what.
#[derive(Debug)]
pub struct Router {
    hello: ServerHello,
    last_id: u32,
    /// By id towards the monitor.
    routes: BTreeMap<u32, Route>,
    clients: HashMap<ClientId, HashMap<u32, u32>>,
}

/// One id towards the monitor.
#[derive(Debug)]
struct Route {
    /// Who asked, and under which id; `None` if nobody waits any more.
    origin: Option<(ClientId, u32)>,
    use_: Use,
}

/// What an id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// A request that is not answered yet, and the stream (the monitor's and the client's id) that it is about.
    Call { stream: Option<(u32, u32)>, closes: bool },
    /// A request to open a stream that is not answered yet.
    Opening,
    /// An open stream.
    Stream,
}

impl Router {
    /// A router to the monitor that said this.
    pub fn new(hello: ServerHello) -> Self {
        Self { hello, last_id: 0, routes: BTreeMap::new(), clients: HashMap::new() }
    }

    /// A client has come.
    pub fn enter(&mut self, client: ClientId) {
        self.clients.insert(client, HashMap::new());
    }

    /// A client has gone: its streams are closed.
    pub fn leave(&mut self, client: ClientId) -> Vec<ClientMessage> {
        let ids = self.clients.remove(&client).unwrap_or_default();
        ids.into_values().filter_map(|id| self.forget(id)).collect()
    }

    /// A client asks.
    pub fn request(&mut self, client: ClientId, message: ClientMessage) -> Consequence {
        let ClientMessage { id, request } = message;
        let answer = |body| Consequence { to_client: Some((client, ServerMessage { id, body })), to_monitor: vec![] };
        if let Request::Hello { version } = request {
            let to_monitor = self.leave(client);
            self.enter(client);
            return Consequence { to_monitor, ..answer(self.greet(version)) };
        }
        let Some(ids) = self.clients.get(&client) else { return Consequence::default() };
        if ids.contains_key(&id) {
            return answer(Body::Error(ControlError::BadMessage));
        }
        if ids.len() >= MAX_OPEN {
            return answer(Body::Error(ControlError::Busy { what: "too many unanswered requests".into() }));
        }
        let closes = matches!(request, Request::Close { .. });
        let (use_, request) = match request.stream() {
            None if request.opens_stream() => (Use::Opening, request),
            None => (Use::Call { stream: None, closes }, request),
            // A stream that is being opened is not open: to pass its close on could close nothing, and leave it open.
            Some(stream) => match ids.get(&stream).filter(|theirs| self.is_open(**theirs)) {
                None => return answer(Body::Error(ControlError::UnknownStream { stream })),
                Some(theirs) => (Use::Call { stream: Some((*theirs, stream)), closes }, request.with_stream(*theirs)),
            },
        };
        let server_id = self.fresh_id();
        self.routes.insert(server_id, Route { origin: Some((client, id)), use_ });
        self.clients.entry(client).or_default().insert(id, server_id);
        Consequence { to_client: None, to_monitor: vec![ClientMessage { id: server_id, request }] }
    }

    /// The monitor answers, or sends data of a stream.
    pub fn answer(&mut self, message: ServerMessage) -> Consequence {
        let ServerMessage { id: server_id, mut body } = message;
        let Some(route) = self.routes.get_mut(&server_id) else { return Consequence::default() };
        let origin = route.origin;
        let ends = match (&mut route.use_, &mut body) {
            (Use::Stream, Body::Stream(StreamData::End(_))) => true,
            (Use::Stream, Body::Stream(_)) => false,
            // Not what the protocol says; to pass it on would confuse the client too.
            (Use::Stream, _) | (Use::Call { .. } | Use::Opening, Body::Stream(_)) | (_, Body::Successor { .. }) => {
                return Consequence::default();
            }
            (Use::Opening, Body::Error(_)) => true,
            (Use::Opening, Body::Reply(_)) if origin.is_none() => {
                self.routes.remove(&server_id);
                return Consequence { to_client: None, to_monitor: vec![self.close(server_id)] };
            }
            (use_ @ Use::Opening, Body::Reply(_)) => {
                *use_ = Use::Stream;
                false
            }
            (Use::Call { stream, closes }, body) => {
                let (stream, closes) = (*stream, *closes);
                let is_gone = matches!(body, Body::Reply(_) | Body::Error(ControlError::UnknownStream { .. }));
                if let Some((theirs, _)) = stream.filter(|_| closes && is_gone) {
                    self.end(theirs);
                }
                translate(body, stream);
                true
            }
        };
        if ends {
            self.end(server_id);
        }
        let to_client = origin.map(|(client, id)| (client, ServerMessage { id, body }));
        Consequence { to_client, to_monitor: vec![] }
    }

    /// A request could not be passed on: whoever asked gets this answer.
    pub fn refuse(&mut self, server_id: u32, error: ControlError) -> Consequence {
        self.answer(ServerMessage { id: server_id, body: Body::Error(error) })
    }

    /// The cell that answered is lost, and its successor knows of nothing that was asked: every open stream and request ends so. A request
    /// may have been carried out.
    pub fn lose_all(&mut self, lost: Name) -> Vec<(ClientId, ServerMessage)> {
        let (end, error) = (StreamEnd::CellLost { cell: lost.clone() }, ControlError::CellLost { cell: lost });
        let mut clients: Vec<_> = self.clients.keys().copied().collect();
        clients.sort();
        let told = clients
            .into_iter()
            .flat_map(|client| self.farewell(client, &end, &error).into_iter().map(move |message| (client, message)));
        let told = told.collect();
        // Numbers go on, so a late answer belongs to nobody.
        self.routes.clear();
        self.clients.values_mut().for_each(HashMap::clear);
        told
    }

    /// The last messages for a client whose connection ends: every open stream and request ends so.
    pub fn farewell(&self, client: ClientId, end: &StreamEnd, error: &ControlError) -> Vec<ServerMessage> {
        let ids = self.clients.get(&client).into_iter().flatten();
        let mut messages: Vec<_> = ids
            .map(|(id, server_id)| {
                let body = if self.is_open(*server_id) {
                    Body::Stream(StreamData::End(end.clone()))
                } else {
                    Body::Error(error.clone())
                };
                ServerMessage { id: *id, body }
            })
            .collect();
        messages.sort_by_key(|message| message.id);
        messages
    }

    fn is_open(&self, server_id: u32) -> bool {
        self.routes.get(&server_id).is_some_and(|route| route.use_ == Use::Stream)
    }

    fn greet(&self, version: u32) -> Body {
        if version == PROTOCOL_VERSION {
            Body::Reply(Reply::Hello(self.hello.clone()))
        } else {
            Body::Error(ControlError::VersionMismatch { client: version, server: PROTOCOL_VERSION })
        }
    }

    /// Nobody wants this id any more; gives what to tell the monitor.
    fn forget(&mut self, server_id: u32) -> Option<ClientMessage> {
        let route = self.routes.get_mut(&server_id)?;
        // The answer is still to come, and until then the id is not free.
        route.origin = None;
        if route.use_ != Use::Stream {
            return None;
        }
        self.routes.remove(&server_id);
        Some(self.close(server_id))
    }

    fn close(&mut self, stream: u32) -> ClientMessage {
        let id = self.fresh_id();
        self.routes.insert(id, Route { origin: None, use_: Use::Call { stream: None, closes: false } });
        ClientMessage { id, request: Request::Close { stream } }
    }

    fn end(&mut self, server_id: u32) {
        if let Some(Route { origin: Some((client, id)), .. }) = self.routes.remove(&server_id)
            && let Some(ids) = self.clients.get_mut(&client)
        {
            ids.remove(&id);
        }
    }

    fn fresh_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if !self.routes.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }
}

/// Puts the client's stream id into errors that name the monitor's.
const fn translate(body: &mut Body, stream: Option<(u32, u32)>) {
    if let Body::Error(ControlError::UnknownStream { stream: id } | ControlError::WrongStream { stream: id }) = body
        && let Some((_, clients)) = stream
    {
        *id = clients;
    }
}

#[cfg(test)]
mod tests;
