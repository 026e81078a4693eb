//! The supervisor's routing: clients that ask anything under any id, and a monitor that answers anything.

use std::collections::BTreeMap;

use control::{
    Body, ClientMessage, ConsoleRange, ControlError, EventBatch, Followed, Name, Reply, Request, ServerHello,
    ServerMessage, StreamData, StreamEnd,
};
use machine::routing::{ClientId, Consequence, MAX_OPEN, Router};

use crate::Input;

/// Clients at a time.
const CLIENTS: u8 = 4;

/// What the world outside of the router knows.
struct World {
    router: Router,
    /// Ids towards the monitor that it has not answered or that are streams, and for whom: the client and its id; nobody, for what the
    /// router asks by itself or whose client has gone.
    open: BTreeMap<u32, Option<(ClientId, u32)>>,
    /// Clients by number: each that comes is a new one.
    clients: [u64; CLIENTS as usize],
    next: u64,
}

/// Clients, the monitor, and the connection's end.
pub fn clients(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let vm: Name = "vm".parse().expect("it is one");
    let hello =
        ServerHello { version: control::PROTOCOL_VERSION, machine: vm.clone(), monitor: String::from("monitor") };
    let mut router = Router::new(hello);
    (0..u64::from(CLIENTS)).for_each(|client| router.enter(ClientId(client)));
    let mut world = World { router, open: BTreeMap::new(), clients: [0, 1, 2, 3], next: u64::from(CLIENTS) };
    while !input.is_empty() {
        world.step(&mut input, &vm);
    }
    for client in world.clients {
        let last = world.router.farewell(ClientId(client), &StreamEnd::ShuttingDown, &ControlError::ShuttingDown);
        assert!(last.len() <= MAX_OPEN && last.is_sorted_by(|a, b| a.id < b.id), "one word for each id");
    }
}

impl World {
    fn step(&mut self, input: &mut Input<'_>, vm: &Name) {
        let number = usize::from(input.below(CLIENTS));
        let client = ClientId(self.clients[number]);
        match input.below(8) {
            0..=3 => {
                let id = u32::from(input.byte() & 15);
                let request = request(input, vm);
                let is_hello = matches!(request, Request::Hello { .. });
                let done = self.router.request(client, ClientMessage { id, request });
                if is_hello {
                    self.forget(client);
                }
                self.asked(client, id, done);
            }
            4 if input.byte() < 32 => {
                let closed = self.router.leave(client);
                self.forget(client);
                self.told(closed, None);
                (self.clients[number], self.next) = (self.next, self.next + 1);
                self.router.enter(ClientId(self.clients[number]));
            }
            5 => {
                let id = self.some_id(input);
                let done = self.router.refuse(id, ControlError::BadMessage);
                self.answered(id, done);
            }
            _ => {
                let id = self.some_id(input);
                let done = self.router.answer(ServerMessage { id, body: body(input) });
                self.answered(id, done);
            }
        }
    }

    /// One that is open, mostly.
    fn some_id(&self, input: &mut Input<'_>) -> u32 {
        let wish = usize::from(input.byte());
        let known = wish.checked_rem(self.open.len()).and_then(|at| self.open.keys().nth(at));
        known.copied().unwrap_or(wish as u32)
    }

    /// Nobody waits for a client's ids any more.
    fn forget(&mut self, client: ClientId) {
        self.open
            .values_mut()
            .filter(|origin| origin.is_some_and(|(of, _)| of == client))
            .for_each(|origin| *origin = None);
    }

    fn asked(&mut self, client: ClientId, id: u32, done: Consequence) {
        if let Some((to, message)) = &done.to_client {
            assert_eq!((*to, message.id), (client, id), "an answer at once is for who has asked");
        }
        let origin = done.to_client.is_none().then_some((client, id));
        self.told(done.to_monitor, origin);
        let of_client = self.open.values().flatten().filter(|(of, _)| *of == client).count();
        assert!(of_client <= MAX_OPEN, "{of_client} open of one client");
    }

    /// The monitor hears something: no id that it still has stands for anything else.
    fn told(&mut self, messages: Vec<ClientMessage>, origin: Option<(ClientId, u32)>) {
        for message in messages {
            assert!(!matches!(message.request, Request::Hello { .. }), "only the supervisor greets");
            if let Some(stream) = message.request.stream() {
                // Of its own client, or of nobody any more.
                let of = self.open.get(&stream).copied().flatten();
                assert!(
                    of.is_none() || of.map(|(client, _)| client) == origin.map(|(client, _)| client),
                    "another's stream"
                );
                if origin.is_none() {
                    self.open.remove(&stream);
                }
            }
            assert_eq!(
                self.open.insert(message.id, origin),
                None,
                "the monitor knows {} as something else",
                message.id
            );
        }
    }

    /// The monitor has said something of `id`.
    fn answered(&mut self, id: u32, done: Consequence) {
        let origin = self.open.get(&id).copied().flatten();
        if let Some((client, message)) = done.to_client {
            assert_eq!(Some((client, message.id)), origin, "an answer for who has not asked");
            let is_last = match &message.body {
                Body::Error(_) | Body::Stream(StreamData::End(_)) => true,
                Body::Reply(_) => !self.opens(client, message.id),
                Body::Stream(_) | Body::Successor { .. } => false,
            };
            if is_last {
                self.open.remove(&id);
            }
        }
        self.told(done.to_monitor, None);
    }

    /// Whether an id of the client is a stream now.
    fn opens(&self, client: ClientId, id: u32) -> bool {
        let last = self.router.farewell(client, &StreamEnd::VmGone, &ControlError::BadMessage);
        last.iter().any(|message| message.id == id && matches!(message.body, Body::Stream(_)))
    }
}

fn request(input: &mut Input<'_>, vm: &Name) -> Request {
    let vm = vm.clone();
    let stream = u32::from(input.byte() & 15);
    match input.below(10) {
        0 => Request::Hello { version: u32::from(input.byte()) },
        1 => Request::EventsFollow { from: 0, which: Followed::All },
        2 => Request::ConsoleAttach { vm, from: 0 },
        3 | 4 => Request::Close { stream },
        5 => Request::Input { stream, bytes: vec![1] },
        6 => Request::ModuleChunk { upload: stream, offset: 0, bytes: vec![2] },
        7 => Request::KillVm { vm },
        8 => Request::Events { from: 0 },
        _ => Request::Cells,
    }
}

fn body(input: &mut Input<'_>) -> Body {
    let number = u32::from(input.byte());
    match input.below(9) {
        0 => Body::Reply(Reply::Done),
        1 | 2 => Body::Reply(Reply::Opened),
        3 => Body::Reply(Reply::Console(ConsoleRange { oldest: 0, first: 0, end: u64::from(number) })),
        4 => Body::Error(ControlError::UnknownStream { stream: number }),
        5 => Body::Error(ControlError::WrongStream { stream: number }),
        6 => Body::Stream(StreamData::End(StreamEnd::VmGone)),
        7 => Body::Stream(StreamData::Events(EventBatch { lost: 0, events: Vec::new(), next: 0 })),
        _ => Body::Stream(StreamData::Console { offset: 0, bytes: vec![3] }),
    }
}
