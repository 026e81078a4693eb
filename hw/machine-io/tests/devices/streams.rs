//! Network interface and control port against a device that does what the test says.

use std::{cell::RefCell, rc::Rc};

use crate::fake::{Chain, Model, Process, Reply, Wire};
use machine_io::{
    ControlPort, DeviceFault, DeviceType, Found, IoError, MAX_FRAME_BYTES, MachineNic, Place, read_entropy,
};

const PLACE: Place = Place::Pci { bus: 0, device: 1, function: 0 };
const MAC: u64 = 1 << 5;
const EVENT_INDEX: u64 = 1 << 29;
const RECEIVE: u16 = 0;

type Log = Rc<RefCell<Vec<Vec<u8>>>>;

/// Keeps receive buffers; logs what is sent, and keeps that too if `holds`.
fn stream(kind: DeviceType, features: u64, holds: bool) -> (Model, Log) {
    let log = Log::default();
    let sent = log.clone();
    let model = Model::new(kind, features, &[2, 0, 0, 0, 0, 9, 0, 0], move |chain| {
        if chain.queue != RECEIVE {
            sent.borrow_mut().push(chain.input());
        }
        if chain.queue == RECEIVE || holds { Reply::Hold } else { Reply::Used(0) }
    });
    (model, log)
}

/// The device delivers `data` in its oldest receive buffer and claims to have written `written` bytes.
fn deliver(wire: &Wire, data: &[u8], written: u32) {
    let mut model = wire.0.borrow_mut();
    model.serve(RECEIVE);
    let position = model.held.iter().position(|chain| chain.queue == RECEIVE).expect("a receive buffer");
    let chain = model.held.remove(position).expect("found");
    chain.output(data);
    model.release(&chain, written);
}

fn nic(model: Model) -> (MachineNic<Process, Wire>, Wire) {
    let wire = Wire::new(model);
    (MachineNic::new(Found::new(wire.clone(), PLACE, None)).expect("a good interface"), wire)
}

fn port(model: Model) -> (ControlPort<Process, Wire>, Wire) {
    let wire = Wire::new(model);
    (ControlPort::new(Found::new(wire.clone(), PLACE, None)).expect("a good port"), wire)
}

#[test]
fn frames_both_ways() {
    let (model, log) = stream(DeviceType::Network, MAC | EVENT_INDEX, false);
    let (mut nic, wire) = nic(model);
    assert_eq!(nic.mac(), Some([2, 0, 0, 0, 0, 9]));
    assert_eq!(wire.0.borrow().accepted, MAC | EVENT_INDEX | 1 << 32);
    let mut frame = [0; 64];
    for round in 0..1000_u32 {
        assert_eq!(nic.send(&round.to_le_bytes()), Ok(()));
        let data: Vec<u8> = [0; 12].into_iter().chain(round.to_be_bytes()).collect();
        deliver(&wire, &data, 16);
        assert_eq!(nic.receive(&mut frame), Ok(Some(4)));
        assert_eq!(frame[..4], round.to_be_bytes());
        assert_eq!(nic.receive(&mut frame), Ok(None));
    }
    let sent = log.borrow();
    assert_eq!(sent.len(), 1000);
    assert!(sent.iter().zip(0_u32..).all(|(frame, n)| frame[..12] == [0; 12] && frame[12..] == n.to_le_bytes()));
}

#[test]
fn a_busy_interface_says_so_and_recovers() {
    let (model, _) = stream(DeviceType::Network, 0, true);
    let (mut nic, wire) = nic(model);
    for _ in 0..64 {
        assert_eq!(nic.send(&[1; MAX_FRAME_BYTES]), Ok(()));
    }
    assert_eq!(nic.send(&[1]), Err(IoError::QueueFull));
    let chain = wire.0.borrow_mut().held.pop_back().expect("a frame");
    wire.0.borrow_mut().release(&chain, 0);
    assert_eq!(nic.send(&[2]), Ok(()));
    let limit = MAX_FRAME_BYTES;
    assert_eq!(nic.send(&[1; MAX_FRAME_BYTES + 1]), Err(IoError::FrameTooLong { bytes: limit + 1, limit }));
}

#[test]
fn runts_are_counted_and_giants_cut() {
    let (model, _) = stream(DeviceType::Network, 0, false);
    let (mut nic, wire) = nic(model);
    deliver(&wire, &[0; 12], 12);
    deliver(&wire, &[], 0);
    deliver(&wire, &[7; 100], u32::MAX);
    let mut frame = [0; 10];
    // One at a time, so that they cannot keep the caller.
    assert_eq!(nic.receive(&mut frame), Ok(Some(0)));
    assert_eq!(nic.receive(&mut frame), Ok(Some(0)));
    assert_eq!(nic.receive(&mut frame), Ok(Some(10)));
    assert_eq!((frame, nic.runts()), ([7; 10], 2));
}

#[test]
fn an_interface_that_lies_is_given_up() {
    let model = Model::new(DeviceType::Network, 0, &[0; 8], |_| Reply::Lie(600));
    let (mut nic, wire) = nic(model);
    let failed = IoError::DeviceFailed(DeviceFault::UnknownDescriptor { id: 600 });
    assert_eq!(nic.receive(&mut [0; 64]), Err(failed.clone()));
    assert!(wire.0.borrow().status.is_empty(), "it was reset");
    assert_eq!(nic.send(&[1]), Err(failed));
}

#[test]
fn a_byte_stream_in_pieces() {
    let (model, log) = stream(DeviceType::Console, EVENT_INDEX, false);
    let (mut port, wire) = port(model);
    let mut buffer = [0; 5];
    assert_eq!(port.read(&mut buffer), Ok(0));
    deliver(&wire, b"hello ", 6);
    deliver(&wire, b"", 0);
    deliver(&wire, b"world", 5);
    assert_eq!((port.read(&mut buffer), &buffer), (Ok(5), b"hello"));
    assert_eq!((port.read(&mut buffer), &buffer), (Ok(5), b" worl"));
    assert_eq!((port.read(&mut buffer), buffer[0]), (Ok(1), b'd'));
    assert_eq!(port.write(b"answer"), Ok(6));
    assert_eq!(port.write(b""), Ok(0));
    assert_eq!(*log.borrow(), [b"answer"]);
}

#[test]
fn a_full_port_takes_what_fits() {
    let (model, log) = stream(DeviceType::Console, 0, true);
    let (mut port, wire) = port(model);
    let data: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    assert_eq!(port.room(), Ok(65_536));
    assert_eq!(port.write(&data), Ok(65_536));
    assert_eq!((port.write(&data), port.room()), (Ok(0), Ok(0)));
    let chain = wire.0.borrow_mut().held.pop_back().expect("a buffer");
    wire.0.borrow_mut().release(&chain, 0);
    assert_eq!(port.write(&data[65_536..]), Ok(4096));
    assert_eq!(log.borrow().concat(), data[..69_632]);
}

/// An entropy device that fills what it is given with `reply`.
fn entropy(reply: impl FnMut(&Chain) -> Reply + 'static) -> Wire {
    Wire::new(Model::new(DeviceType::EntropySource, 0, &[0; 8], reply))
}

#[test]
fn entropy_is_read_once_and_the_device_let_go() {
    let wire = entropy(|chain| {
        chain.output(&[0xa5; 48]);
        Reply::Used(48)
    });
    let (bytes, given) = read_entropy::<Process, _>(Found::new(wire.clone(), PLACE, None), || false).expect("bytes");
    assert_eq!((given, &bytes[..given]), (48, &[0xa5; 48][..]));
    assert!(wire.0.borrow().status.is_empty(), "it was reset");
}

#[test]
fn an_entropy_device_that_is_slow_or_lies_is_let_go() {
    let mut looks = 0;
    let patience = || {
        looks += 1;
        looks < 10
    };
    let wire = entropy(|_| Reply::Hold);
    let outcome = read_entropy::<Process, _>(Found::new(wire.clone(), PLACE, None), patience);
    assert_eq!((outcome, looks), (Err(IoError::Timeout), 10));
    assert!(wire.0.borrow().status.is_empty(), "it was reset");
    let wire = entropy(|_| Reply::Lie(600));
    let outcome = read_entropy::<Process, _>(Found::new(wire, PLACE, None), || false);
    assert_eq!(outcome, Err(IoError::DeviceFailed(DeviceFault::UnknownDescriptor { id: 600 })));
    let wire = entropy(|_| Reply::Used(u32::MAX));
    let outcome = read_entropy::<Process, _>(Found::new(wire, PLACE, None), || false);
    assert_eq!(outcome.map(|(_, given)| given), Ok(64), "it cannot have written more");
    let (model, _) = stream(DeviceType::Console, 0, false);
    let outcome = read_entropy::<Process, _>(Found::new(Wire::new(model), PLACE, None), || false);
    assert_eq!(outcome, Err(IoError::WrongKind));
}
