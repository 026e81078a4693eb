//! The switch's rules, and random traffic against a naive switch.

use std::vec;
use std::vec::Vec;

use control::MacAddress;
use proptest::prelude::*;

use crate::*;

const AGEING: u64 = 1_000;
const BROADCAST: MacAddress = MacAddress([0xff; 6]);

fn mac(number: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, number])
}

fn bytes(to: MacAddress, from: MacAddress, len: usize) -> Vec<u8> {
    let mut bytes = [to.0.as_slice(), &from.0, &[0x08, 0x00]].concat();
    bytes.resize(len.max(MIN_FRAME), 0x42);
    bytes
}

/// A switch with headers of numbers, which remembers who was notified.
struct Net {
    subnet: Subnet<u64>,
    ports: Vec<PortId>,
    notified: Vec<u64>,
    now: u64,
}

impl Net {
    /// Ports with cookies 0, 1, 2 ...
    fn new(kinds: &[PortKind]) -> Self {
        Self::with_limits(kinds, QueueLimits::default())
    }

    fn with_limits(kinds: &[PortKind], limits: QueueLimits) -> Self {
        let mut subnet = Subnet::new(AGEING);
        let attach = |(cookie, kind): (u64, &PortKind)| subnet.attach(&PortSpec { kind: *kind, limits, cookie });
        let ports = (0..).zip(kinds).map(attach).collect::<Result<_, _>>().unwrap();
        Self { subnet, ports, notified: vec![], now: 0 }
    }

    fn send(&mut self, port: usize, to: MacAddress, from: MacAddress) -> Result<(), DropReason> {
        self.send_bytes(port, 7, &bytes(to, from, 60))
    }

    fn send_bytes(&mut self, port: usize, header: u64, frame: &[u8]) -> Result<(), DropReason> {
        let frame = self.subnet.allocator().copy_of(frame).unwrap();
        let notified = &mut self.notified;
        self.subnet.send(self.ports[port], header, frame, self.now, &mut |cookie| notified.push(cookie))
    }

    /// The ports that got something since the last call; empties all queues.
    fn receivers(&mut self) -> Vec<usize> {
        let mut receivers = vec![];
        for (number, port) in self.ports.iter().enumerate() {
            while self.subnet.take(*port).is_some() {
                receivers.push(number);
            }
        }
        receivers
    }
}

#[test]
fn a_frame_says_who_sent_it() {
    let mut net = Net::new(&[PortKind::Nic(mac(1)), PortKind::Nic(mac(2)), PortKind::Nic(mac(3))]);
    net.send(0, mac(2), mac(1)).unwrap();
    net.send(2, BROADCAST, mac(3)).unwrap();
    let senders = [(); 2].map(|()| net.subnet.take(net.ports[1]).unwrap().sender());
    assert_eq!(senders, [net.ports[0], net.ports[2]]);
}

#[test]
fn vms_reach_each_other_and_nobody_else_listens() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Nic(mac(1)), PortKind::Nic(mac(2)), PortKind::Uplink]);
    net.send(0, mac(1), mac(0)).unwrap();
    assert_eq!(net.notified, [1]);
    assert_eq!(net.receivers(), [1]);
    net.send(0, BROADCAST, mac(0)).unwrap();
    assert_eq!(net.receivers(), [1, 2, 3]);
    // Unknown: only the uplink can lead there.
    net.send(0, mac(99), mac(0)).unwrap();
    assert_eq!(net.receivers(), [3]);
}

#[test]
fn frames_cross_whole_with_their_headers() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Nic(mac(1))]);
    let frame = bytes(mac(1), mac(0), MAX_FRAME);
    net.send_bytes(0, 0xdead_beef, &frame).unwrap();
    let peeked = net.subnet.peek(net.ports[1]).unwrap();
    let taken = net.subnet.take(net.ports[1]).unwrap();
    assert_eq!((peeked.bytes(), *taken.header()), (frame.as_slice(), 0xdead_beef));
    assert!(net.subnet.peek(net.ports[1]).is_none());
    drop(peeked);
    assert!(net.subnet.allocator().used_bytes() > MAX_FRAME);
    drop(taken);
    assert_eq!(net.subnet.allocator().used_bytes(), 0);
}

#[test]
fn addresses_cannot_be_borrowed() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Promiscuous(mac(1)), PortKind::Uplink]);
    assert_eq!(net.send(0, BROADCAST, mac(9)), Err(DropReason::Spoofed));
    assert_eq!(net.send(1, BROADCAST, mac(0)), Err(DropReason::Spoofed));
    assert_eq!(net.send(2, BROADCAST, mac(0)), Err(DropReason::Spoofed));
    assert_eq!(net.send(2, BROADCAST, mac(1)), Err(DropReason::Spoofed));
    assert_eq!(net.send(1, BROADCAST, mac(9)), Ok(()));
    assert_eq!(net.subnet.metrics(net.ports[2]).dropped_spoofed, 2);
    assert_eq!(net.receivers(), [0, 2]);
}

#[test]
fn malformed_and_reserved_frames_go_nowhere() {
    let mut net = Net::new(&[PortKind::Promiscuous(mac(0)), PortKind::Nic(mac(1))]);
    assert_eq!(net.send(0, mac(1), BROADCAST), Err(DropReason::Malformed));
    assert_eq!(net.send(0, mac(1), MacAddress([0; 6])), Err(DropReason::Malformed));
    assert_eq!(net.send(0, MacAddress([1, 0x80, 0xc2, 0, 0, 0x0e]), mac(0)), Err(DropReason::Filtered));
    assert_eq!(net.send(0, mac(0), mac(0)), Err(DropReason::Filtered));
    let metrics = net.subnet.metrics(net.ports[0]);
    assert_eq!((metrics.dropped_malformed, metrics.dropped_filtered, metrics.sent_frames), (2, 2, 0));
    let allocator = net.subnet.allocator();
    assert_eq!(allocator.copy_of(&[0; 13]).unwrap_err(), FrameRefused::TooShort { len: 13 });
    assert_eq!(allocator.frame(MAX_FRAME + 1).unwrap_err(), FrameRefused::TooLong { len: MAX_FRAME + 1 });
    assert_eq!(net.receivers(), []);
    assert_eq!(net.subnet.allocator().used_bytes(), 0);
}

#[test]
fn outside_addresses_are_learned_move_and_age() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Uplink, PortKind::Promiscuous(mac(2))]);
    net.send(1, mac(0), mac(50)).unwrap();
    assert_eq!(net.receivers(), [0]);
    net.send(0, mac(50), mac(0)).unwrap();
    assert_eq!(net.receivers(), [1]);
    // It has moved behind the bridge.
    net.send(2, mac(0), mac(50)).unwrap();
    net.receivers();
    net.send(0, mac(50), mac(0)).unwrap();
    assert_eq!(net.receivers(), [2]);
    net.now += AGEING;
    net.send(0, mac(50), mac(0)).unwrap();
    assert_eq!(net.receivers(), [1, 2]);
    // The VMs' own addresses never age.
    net.send(1, mac(0), mac(51)).unwrap();
    assert_eq!(net.receivers(), [0]);
}

#[test]
fn a_flood_of_addresses_stays_bounded_and_pushes_only_its_own_out() {
    let mut net = Net::new(&[PortKind::Uplink, PortKind::Promiscuous(mac(1))]);
    net.send(0, mac(1), mac(2)).unwrap();
    for number in 0..5_000_u16 {
        net.now += 1;
        let [high, low] = number.to_be_bytes();
        let _ = net.send(1, mac(1), MacAddress([6, 0, 0, 0, high, low]));
        net.send(1, mac(2), MacAddress([6, 0, 0, 0, high, low])).unwrap();
        net.receivers();
    }
    assert!(net.subnet.learned(net.ports[1]) <= 512);
    assert_eq!(net.subnet.learned(net.ports[0]), 1);
}

#[test]
fn a_slow_vm_harms_only_itself() {
    let limits = QueueLimits { frames: 8, bytes: 20_000 };
    let mut net = Net::with_limits(&[PortKind::Nic(mac(0)), PortKind::Nic(mac(1)), PortKind::Nic(mac(2))], limits);
    for _ in 0..100 {
        net.send(0, mac(1), mac(0)).unwrap();
        net.send(0, mac(2), mac(0)).unwrap();
        assert!(net.subnet.take(net.ports[2]).is_some());
    }
    assert_eq!((net.subnet.waiting(net.ports[1]), net.subnet.metrics(net.ports[1]).dropped_full), (8, 92));
    assert_eq!(net.subnet.metrics(net.ports[2]).dropped_full, 0);
    while net.subnet.take(net.ports[1]).is_some() {}
    // By bytes as well.
    for _ in 0..3 {
        net.send_bytes(0, 1, &bytes(mac(1), mac(0), 9_000)).unwrap();
    }
    assert_eq!(net.subnet.waiting(net.ports[1]), 2);
    // Only the first of a queue is announced.
    assert_eq!(net.notified.iter().filter(|cookie| **cookie == 1).count(), 2);
}

#[test]
fn frame_memory_is_bounded_whoever_holds_it() {
    let net = Net::new(&[PortKind::Nic(mac(0))]);
    let allocator = net.subnet.allocator();
    let held: Vec<_> = core::iter::from_fn(|| allocator.frame(MAX_FRAME).ok()).collect();
    assert!((16..40).contains(&held.len()), "{}", held.len());
    assert_eq!(allocator.frame(MAX_FRAME).unwrap_err(), FrameRefused::NoMemory);
    drop(held);
    assert!(allocator.frame(MAX_FRAME).is_ok());
    assert_eq!(allocator.used_bytes(), 0);
}

#[test]
fn ports_come_and_go() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Nic(mac(1))]);
    let spec = |kind| PortSpec { kind, limits: QueueLimits::default(), cookie: 9 };
    let taken = net.subnet.attach(&spec(PortKind::Nic(mac(1))));
    assert_eq!(taken, Err(AttachError::AddressInUse { mac: mac(1) }));
    let group = net.subnet.attach(&spec(PortKind::Nic(BROADCAST)));
    assert_eq!(group, Err(AttachError::NotAnInterface { mac: BROADCAST }));
    net.send(0, mac(1), mac(0)).unwrap();
    net.subnet.detach(net.ports[1]);
    assert_eq!(net.subnet.allocator().used_bytes(), 0);
    assert_eq!(net.send(1, mac(0), mac(1)), Err(DropReason::NotConnected));
    net.send(0, mac(1), mac(0)).unwrap();
    assert!(net.subnet.attach(&spec(PortKind::Nic(mac(1)))).is_ok());
    // The late heir gets nothing that was meant for the old port.
    assert!(net.subnet.take(net.ports[1]).is_none());
    let more: Vec<_> = (2..=255).map(|number| net.subnet.attach(&spec(PortKind::Nic(mac(number))))).collect();
    assert!(more.iter().all(Result::is_ok));
    assert_eq!(net.subnet.attach(&spec(PortKind::Uplink)), Err(AttachError::TooManyPorts));
}

#[test]
fn a_link_that_is_down_carries_nothing() {
    let mut net = Net::new(&[PortKind::Nic(mac(0)), PortKind::Nic(mac(1))]);
    net.send(0, mac(1), mac(0)).unwrap();
    net.subnet.set_link(net.ports[1], false);
    net.send(0, mac(1), mac(0)).unwrap();
    assert_eq!(net.send(1, mac(0), mac(1)), Err(DropReason::NotConnected));
    assert_eq!(net.subnet.waiting(net.ports[1]), 0);
    net.subnet.set_link(net.ports[1], true);
    net.send(0, mac(1), mac(0)).unwrap();
    assert_eq!(net.receivers(), [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: usize, bytes: Vec<u8> },
    Take { port: usize },
    Wait(u64),
    Relink { port: usize, is_up: bool },
}

fn any_mac() -> impl Strategy<Value = MacAddress> {
    prop_oneof![6 => (0..8_u8).prop_map(mac), 1 => Just(BROADCAST), 1 => any::<[u8; 6]>().prop_map(MacAddress)]
}

fn step() -> impl Strategy<Value = Step> {
    let frame = prop_oneof![
        8 => (any_mac(), any_mac(), 14..200_usize).prop_map(|(to, from, len)| bytes(to, from, len)),
        1 => prop::collection::vec(any::<u8>(), 14..40),
    ];
    prop_oneof![
        8 => (0..6_usize, frame).prop_map(|(from, bytes)| Step::Send { from, bytes }),
        3 => (0..6_usize).prop_map(|port| Step::Take { port }),
        1 => (0..AGEING).prop_map(Step::Wait),
        1 => (0..6_usize, any::<bool>()).prop_map(|(port, is_up)| Step::Relink { port, is_up }),
    ]
}

proptest! {
    /// Ports 0 to 3 are VMs, 4 is a bridge, 5 the uplink. Whatever is sent: a VM gets only what is for it or for all,
    /// nobody gets his own frames or a forged one, frames stay in order, and all memory comes back.
    #[test]
    fn traffic_goes_where_it_should(steps in prop::collection::vec(step(), 1..300), frames in 1..20_usize) {
        let kinds = [PortKind::Nic(mac(0)), PortKind::Nic(mac(1)), PortKind::Nic(mac(2)), PortKind::Nic(mac(3)),
                     PortKind::Promiscuous(mac(4)), PortKind::Uplink];
        let mut net = Net::with_limits(&kinds, QueueLimits { frames, bytes: 4_000 });
        let mut senders = vec![];
        let mut last_seen = [None; 6];
        for step in steps {
            match step {
                Step::Send { from, bytes } => {
                    let number = senders.len() as u64;
                    senders.push(from);
                    let sent = net.send_bytes(from, number, &bytes);
                    let source = MacAddress(bytes[6..12].try_into().unwrap());
                    let owner = (0..5_u8).find(|owner| mac(*owner) == source).map(usize::from);
                    if owner.is_some_and(|owner| owner != from) || (from < 4 && owner != Some(from)) {
                        prop_assert!(sent.is_err());
                    }
                }
                Step::Take { port } => {
                    let peeked = net.subnet.peek(net.ports[port]);
                    let taken = net.subnet.take(net.ports[port]);
                    prop_assert_eq!(peeked.is_some(), taken.is_some());
                    let Some(frame) = taken else { continue };
                    let number = *frame.header();
                    prop_assert!(senders[number as usize] != port);
                    prop_assert!(last_seen[port].is_none_or(|last| last < number));
                    last_seen[port] = Some(number);
                    let to = MacAddress(frame.bytes()[..6].try_into().unwrap());
                    if port < 4 {
                        prop_assert!(to.is_multicast() || to == mac(port as u8));
                    } else {
                        prop_assert!(to.is_multicast() || !(0..4).any(|vm| to == mac(vm)));
                    }
                }
                Step::Wait(ticks) => net.now += ticks,
                Step::Relink { port, is_up } => net.subnet.set_link(net.ports[port], is_up),
            }
            for port in &net.ports {
                prop_assert!(net.subnet.waiting(*port) <= frames);
            }
        }
        net.receivers();
        prop_assert_eq!(net.subnet.allocator().used_bytes(), 0);
    }
}
