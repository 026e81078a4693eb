//! The router against random clients and a random monitor.

use std::collections::{BTreeMap, BTreeSet};

use control::{Followed, Name};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Act {
    /// A client asks, opens a stream, or closes the stream of one of its ids.
    Ask(u64, u32),
    Open(u64, u32),
    Close(u64, u32, u32),
    /// A client goes, and another comes in its place.
    Replace(u64),
    /// The monitor does something about one of the requests that it has not answered, or of the streams it has open.
    Answer(prop::sample::Index),
    Refuse(prop::sample::Index),
    Data(prop::sample::Index),
    End(prop::sample::Index),
    /// The monitor talks about something that nobody asked.
    Stray(u32),
    /// The monitor is lost, and another one knows of nothing.
    Succeed,
}

fn act() -> impl Strategy<Value = Act> {
    let (client, id, index) = (0..3_u64, 0..6_u32, any::<prop::sample::Index>);
    prop_oneof![
        (client.clone(), id.clone()).prop_map(|(client, id)| Act::Ask(client, id)),
        (client.clone(), id.clone()).prop_map(|(client, id)| Act::Open(client, id)),
        (client.clone(), id.clone(), id).prop_map(|(client, id, stream)| Act::Close(client, id, stream)),
        client.prop_map(Act::Replace),
        index().prop_map(Act::Answer),
        index().prop_map(Act::Refuse),
        index().prop_map(Act::Data),
        index().prop_map(Act::End),
        (1000..2000_u32).prop_map(Act::Stray),
        Just(Act::Succeed),
    ]
}

/// A correct monitor, and what every client may expect.
#[derive(Default)]
struct World {
    pending: BTreeMap<u32, Request>,
    streams: BTreeSet<u32>,
    /// Unanswered requests and open streams by client and its id.
    expected: BTreeSet<(u64, u32)>,
}

impl World {
    /// The monitor receives messages; ids in use would be a fault of the router.
    fn receive(&mut self, messages: Vec<ClientMessage>) {
        for ClientMessage { id, request } in messages {
            assert!(!self.streams.contains(&id), "id {id} names an open stream");
            if let Some(stream) = request.stream() {
                assert!(stream != id);
            }
            assert!(self.pending.insert(id, request).is_none(), "id {id} is not answered yet");
        }
    }

    /// A client receives a message; it must have asked for it.
    fn deliver(&mut self, message: Option<(ClientId, ServerMessage)>) {
        let Some((ClientId(client), message)) = message else { return };
        assert!(self.expected.contains(&(client, message.id)), "client {client} never asked {}", message.id);
        let is_end = match &message.body {
            Body::Stream(StreamData::End(_)) | Body::Error(_) | Body::Reply(Reply::Done) => true,
            Body::Stream(_) | Body::Reply(_) | Body::Successor { .. } => false,
        };
        if is_end {
            self.expected.remove(&(client, message.id));
        }
    }

    /// The monitor's answer to one of its pending requests.
    fn answer(&mut self, id: u32, is_refused: bool) -> ServerMessage {
        let request = self.pending.remove(&id).expect("it is pending");
        let body = match request {
            Request::Close { stream } if self.streams.remove(&stream) => Body::Reply(Reply::Done),
            Request::Close { stream } => Body::Error(ControlError::UnknownStream { stream }),
            _ if is_refused => Body::Error(ControlError::ShuttingDown),
            request if request.opens_stream() => {
                self.streams.insert(id);
                Body::Reply(Reply::Opened)
            }
            _ => Body::Reply(Reply::Done),
        };
        ServerMessage { id, body }
    }
}

fn pick<T: Copy>(index: &prop::sample::Index, all: impl Iterator<Item = T>) -> Option<T> {
    let all: Vec<T> = all.collect();
    (!all.is_empty()).then(|| all[index.index(all.len())])
}

struct Run {
    router: Router,
    world: World,
}

impl Run {
    fn ask(&mut self, client: u64, id: u32, request: Request) {
        let is_fresh = self.world.expected.insert((client, id));
        let consequence = self.router.request(ClientId(client), ClientMessage { id, request });
        self.world.receive(consequence.to_monitor);
        match consequence.to_client {
            // Refused at once; the id's earlier use goes on.
            Some((_, message)) if !is_fresh => {
                assert_eq!(message.body, Body::Error(ControlError::BadMessage));
            }
            to_client => self.world.deliver(to_client),
        }
    }

    fn monitor_says(&mut self, message: ServerMessage) {
        // The stream that a positive answer closes is over for the client too.
        let consequence = self.router.answer(message);
        self.world.receive(consequence.to_monitor);
        self.world.deliver(consequence.to_client);
        self.world
            .expected
            .retain(|(client, id)| self.router.clients.get(&ClientId(*client)).is_some_and(|ids| ids.contains_key(id)));
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Ask(client, id) => {
                let vm = Name::new("vm").expect("a good name");
                self.ask(client, id, Request::StartVm { vm });
            }
            Act::Open(client, id) => self.ask(client, id, Request::EventsFollow { from: 0, which: Followed::All }),
            Act::Close(client, id, stream) => self.ask(client, id, Request::Close { stream }),
            Act::Replace(client) => {
                let closes = self.router.leave(ClientId(client));
                self.world.receive(closes);
                self.world.expected.retain(|(owner, _)| *owner != client);
                self.router.enter(ClientId(client));
            }
            Act::Answer(index) | Act::Refuse(index) => {
                let is_refused = matches!(act, Act::Refuse(_));
                if let Some(id) = pick(&index, self.world.pending.keys().copied()) {
                    let message = self.world.answer(id, is_refused);
                    self.monitor_says(message);
                }
            }
            Act::Data(index) => {
                if let Some(id) = pick(&index, self.world.streams.iter().copied()) {
                    let body = Body::Stream(StreamData::PortState { guest_open: true });
                    self.monitor_says(ServerMessage { id, body });
                }
            }
            Act::End(index) => {
                if let Some(id) = pick(&index, self.world.streams.iter().copied()) {
                    self.world.streams.remove(&id);
                    let body = Body::Stream(StreamData::End(StreamEnd::VmGone));
                    self.monitor_says(ServerMessage { id, body });
                }
            }
            Act::Succeed => {
                (self.world.pending, self.world.streams) = <_>::default();
                for told in self.router.lose_all(Name::new("c0").expect("a good name")) {
                    self.world.deliver(Some(told));
                }
                assert_eq!(self.world.expected, BTreeSet::new(), "somebody waits for ever");
            }
            Act::Stray(id) => self.monitor_says(ServerMessage { id, body: Body::Reply(Reply::Done) }),
        }
    }
}

proptest! {
    #[test]
    fn nobody_gets_what_he_did_not_ask_for_and_nothing_is_forgotten(acts in vec(act(), 0..200)) {
        let hello = ServerHello {
            version: PROTOCOL_VERSION,
            machine: Name::new("m").expect("a good name"),
            monitor: String::new(),
        };
        let mut run = Run { router: Router::new(hello), world: World::default() };
        for client in 0..3 {
            run.router.enter(ClientId(client));
        }
        for act in acts {
            run.act(act);
        }
        // All clients go, and the monitor answers all that is left: then nothing is left anywhere.
        for client in 0..3 {
            let closes = run.router.leave(ClientId(client));
            run.world.receive(closes);
        }
        run.world.expected.clear();
        while let Some(id) = run.world.pending.keys().next().copied() {
            let message = run.world.answer(id, false);
            run.monitor_says(message);
        }
        prop_assert!(run.world.streams.is_empty(), "streams that nobody closes: {:?}", run.world.streams);
        prop_assert!(run.router.routes.is_empty(), "routes that nobody needs: {:?}", run.router.routes);
        prop_assert!(run.router.clients.is_empty());
    }
}
