use std::string::String;
use std::vec::Vec;

use device::{Device, IrqLine, Width};

use super::*;
use crate::spec::F_VERSION_1;
use crate::testing::{Buffer, Driver, TestEnv};
use crate::transport::Trigger;

const AGENT: u32 = 1;
const AGENT_NAME: &str = "org.qemu.guest_agent.0";

#[derive(Default)]
struct Host {
    output: Vec<(u32, u8)>,
    room: usize,
    ready: Vec<u32>,
    opened: Vec<(u32, bool)>,
}

impl Host {
    fn text(&self, port: u32) -> String {
        self.output.iter().filter(|(from, _)| *from == port).map(|&(_, byte)| char::from(byte)).collect()
    }
}

impl ConsoleBackend for Host {
    fn output(&mut self, port: u32, data: &[u8]) -> usize {
        let taken = data.len().min(self.room);
        self.room -= taken;
        self.output.extend(data[..taken].iter().map(|&byte| (port, byte)));
        taken
    }
    fn input_ready(&mut self, port: u32) {
        self.ready.push(port);
    }
    fn port_opened(&mut self, port: u32, is_open: bool) {
        self.opened.push((port, is_open));
    }
}

type Serial = VirtioMmio<Console<Host>>;

fn serial(room: usize) -> Serial {
    let ports = [
        PortConfig { name: None, is_console: true, is_open: true },
        PortConfig { name: Some(AGENT_NAME), is_console: false, is_open: false },
    ];
    let host = Host { room, ..Host::default() };
    VirtioMmio::new(Console::new(host, &ports), IrqLine(5), Trigger::Edge)
}

fn tell(driver: &mut Driver<'_>, device: &mut Serial, id: u32, event: u16, value: u16) {
    let message = driver.readable(&control::encode(id, event, value));
    driver.add(CONTROL_OUTPUT, &[message], false);
    driver.notify(device, CONTROL_OUTPUT).unwrap();
    assert_eq!(driver.used(CONTROL_OUTPUT).len(), 1);
}

/// Posts control buffers and notifies.
fn post_control(driver: &mut Driver<'_>, device: &mut Serial, count: usize) -> Vec<Buffer> {
    let buffers: Vec<Buffer> = (0..count).map(|_| driver.writable(64)).collect();
    for buffer in &buffers {
        driver.add(CONTROL_INPUT, &[*buffer], false);
    }
    driver.notify(device, CONTROL_INPUT).unwrap();
    buffers
}

/// The messages that the device has sent into `buffers`, in order.
fn heard(driver: &mut Driver<'_>, buffers: &[Buffer]) -> Vec<(u32, u16, u16, String)> {
    let used = driver.used(CONTROL_INPUT);
    used.iter()
        .zip(buffers)
        .map(|(used, buffer)| {
            let bytes = driver.bytes(buffer);
            let (id, event, value) = control::decode(bytes[..8].try_into().unwrap());
            (id, event, value, String::from_utf8(bytes[8..used.len as usize].to_vec()).unwrap())
        })
        .collect()
}

fn write(driver: &mut Driver<'_>, device: &mut Serial, port: u32, text: &str) {
    let buffer = driver.readable(text.as_bytes());
    driver.add(output_queue(port), &[buffer], false);
    driver.notify(device, output_queue(port)).unwrap();
}

fn none() -> String {
    String::new()
}

#[test]
fn ports_are_announced_introduced_and_opened() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(100);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    assert_eq!(driver.get(&mut device, 0x104), 2);
    assert_eq!(driver.queue_count(), 6);
    tell(&mut driver, &mut device, 0, spec::DEVICE_READY, 1);
    let buffers = post_control(&mut driver, &mut device, 2);
    let announced = heard(&mut driver, &buffers);
    assert_eq!(announced, [(0, spec::PORT_ADD, 0, none()), (1, spec::PORT_ADD, 0, none())]);
    let buffers = post_control(&mut driver, &mut device, 8);
    tell(&mut driver, &mut device, 0, spec::PORT_READY, 1);
    tell(&mut driver, &mut device, AGENT, spec::PORT_READY, 1);
    device.set_host_open(AGENT, true, &env).unwrap();
    let told = heard(&mut driver, &buffers);
    assert_eq!(
        told,
        [
            (0, spec::CONSOLE_PORT, 1, none()),
            (0, spec::PORT_OPEN, 1, none()),
            (1, spec::PORT_NAME, 1, String::from(AGENT_NAME)),
            (1, spec::PORT_OPEN, 1, none()),
        ]
    );
    tell(&mut driver, &mut device, AGENT, spec::PORT_OPEN, 1);
    assert!(device.model().is_guest_open(AGENT));
    device.set_host_open(AGENT, false, &env).unwrap();
    assert_eq!(heard(&mut driver, &buffers[4..]), [(1, spec::PORT_OPEN, 0, none())]);
    driver.start(&mut device, u64::MAX);
    assert_eq!(device.model().backend().opened, [(AGENT, true), (AGENT, false)]);
}

#[test]
fn output_waits_in_the_ring_while_the_host_is_full() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(3);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    write(&mut driver, &mut device, 0, "hello ");
    write(&mut driver, &mut device, 0, "world");
    assert_eq!(device.model().backend().text(0), "hel");
    assert!(driver.used(output_queue(0)).is_empty());
    device.model_mut().backend_mut().room = 4;
    device.kick(output_queue(0), &env).unwrap();
    assert_eq!(driver.used(output_queue(0)).len(), 1);
    device.model_mut().backend_mut().room = 100;
    device.kick(output_queue(0), &env).unwrap();
    assert_eq!(device.model().backend().text(0), "hello world");
    assert_eq!(driver.used(output_queue(0)).len(), 1);
}

#[test]
fn output_to_a_closed_end_is_discarded() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(100);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    write(&mut driver, &mut device, AGENT, "lost");
    assert_eq!(driver.used(output_queue(AGENT)).len(), 1);
    assert_eq!(device.model().metrics().bytes_discarded, 4);
}

#[test]
fn input_waits_with_the_host_until_the_guest_listens_and_has_buffers() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(0);
    let mut driver = Driver::new(&env);
    assert_eq!(device.input(AGENT, b"early", &env), Ok(0));
    driver.start(&mut device, u64::MAX);
    let (a, b) = (driver.writable(4), driver.writable(4));
    driver.add(input_queue(AGENT), &[a], false);
    driver.notify(&mut device, input_queue(AGENT)).unwrap();
    assert_eq!(device.input(AGENT, b"request", &env), Ok(0), "nobody listens");
    assert!(device.model().backend().ready.is_empty());
    tell(&mut driver, &mut device, AGENT, spec::PORT_OPEN, 1);
    assert_eq!(device.model().backend().ready, [AGENT]);
    assert_eq!(device.input(AGENT, b"request", &env), Ok(4));
    driver.add(input_queue(AGENT), &[b], false);
    driver.notify(&mut device, input_queue(AGENT)).unwrap();
    assert_eq!(device.model().backend().ready, [AGENT, AGENT]);
    assert_eq!(device.input(AGENT, b"est", &env), Ok(3));
    assert_eq!(driver.used(input_queue(AGENT)).iter().map(|used| used.len).collect::<Vec<_>>(), [4, 3]);
    assert_eq!([driver.bytes(&a), driver.bytes(&b)].concat()[..7], *b"request");
}

#[test]
fn a_driver_without_multiport_has_one_open_console() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(100);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, F_VERSION_1);
    write(&mut driver, &mut device, 0, "plain");
    let buffer = driver.writable(16);
    driver.add(input_queue(0), &[buffer], false);
    assert_eq!(device.input(0, b"yes", &env), Ok(3));
    assert_eq!(device.model().backend().text(0), "plain");
    device.write(0x108, Width::Word, u64::from(b'!'), &env).unwrap();
    assert_eq!(device.model().backend().text(0), "plain!", "emergency write");
}

#[test]
fn nonsense_on_the_control_queue_is_counted_or_asks_for_a_reset() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(100);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    for (id, event) in [(2, spec::PORT_READY), (u32::MAX, spec::PORT_OPEN), (0, 99)] {
        tell(&mut driver, &mut device, id, event, 1);
    }
    assert_eq!(device.model().metrics().control_refused, 3);
    let small = driver.writable(7);
    driver.add(CONTROL_INPUT, &[small], false);
    tell(&mut driver, &mut device, 0, spec::DEVICE_READY, 1);
    assert!(!device.is_live(), "a control buffer must hold a message");
    driver.start(&mut device, u64::MAX);
    let short = driver.readable(&[0; 7]);
    driver.add(CONTROL_OUTPUT, &[short], false);
    driver.notify(&mut device, CONTROL_OUTPUT).unwrap();
    assert!(!device.is_live());
}

#[test]
fn a_huge_chain_is_taken_in_bounded_steps() {
    let env = TestEnv::new(4 << 20);
    let mut device = serial(usize::MAX);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    let huge = std::vec![b'x'; 200_000];
    let buffer = driver.readable(&huge);
    driver.add(output_queue(0), &[buffer], false);
    driver.notify(&mut device, output_queue(0)).unwrap();
    assert_eq!(device.model().backend().output.len() as u64, BUDGET_BYTES);
    while device.has_backlog() {
        device.poll(&env).unwrap();
    }
    assert_eq!(device.model().backend().output.len(), huge.len());
    assert_eq!(driver.used(output_queue(0)).len(), 1);
}

/// A host that has room again asks until nothing is left: one call moves a bounded piece.
#[test]
fn a_long_output_comes_in_pieces_and_says_that_there_is_more() {
    const LONG: usize = 100_000;
    let env = TestEnv::new(4 << 20);
    let mut device = serial(0);
    let mut driver = Driver::new(&env);
    driver.start(&mut device, u64::MAX);
    for _ in 0..LONG / 1000 {
        write(&mut driver, &mut device, 0, &"x".repeat(1000));
    }
    device.model_mut().backend_mut().room = usize::MAX;
    let (mut kicks, mut seen) = (0, 0);
    while kicks == 0 || device.has_backlog() {
        device.kick(output_queue(0), &env).unwrap();
        let text = device.model().backend().text(0).len();
        assert!(text - seen <= 2 * BUDGET_BYTES as usize, "one call moved {}", text - seen);
        (kicks, seen) = (kicks + 1, text);
        assert!(kicks <= LONG / 1000, "it says for ever that there is more");
    }
    assert_eq!(seen, LONG);
}
