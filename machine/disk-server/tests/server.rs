//! The server against a client of the tests' own, with a clock that they move.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use disk_model::{Disk, Preset};
use disk_server::{DiskServer, Image, MachineClock};

const SECTORS: u64 = 4096;
const WATCHDOG: Duration = Duration::from_secs(30);
const US: u64 = 1_000_000;

/// The machine's clock, and what the server did to it.
#[derive(Debug, Default)]
struct Time {
    now_ps: u64,
    doorbells: (u64, u64),
    acknowledged: u64,
    limit: Option<u64>,
    is_attached: bool,
}

#[derive(Clone, Debug, Default)]
struct FakeClock(Arc<Mutex<Time>>);

impl FakeClock {
    fn with<T>(&self, look: impl FnOnce(&mut Time) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics with it"))
    }

    #[track_caller]
    fn wait(&self, is_so: impl Fn(&Time) -> bool) {
        let deadline = Instant::now() + WATCHDOG;
        while !self.with(|time| is_so(time)) {
            assert!(Instant::now() < deadline, "{:?}", self.0);
            thread::yield_now();
        }
    }
}

impl MachineClock for FakeClock {
    fn now_ps(&self) -> io::Result<u64> {
        Ok(self.with(|time| time.now_ps))
    }

    fn doorbells(&self) -> io::Result<(u64, u64)> {
        Ok(self.with(|time| time.doorbells))
    }

    fn acknowledge(&self, doorbells: u64) -> io::Result<()> {
        self.with(|time| time.acknowledged = doorbells);
        Ok(())
    }

    fn hold(&self, limit_ps: Option<u64>) -> io::Result<()> {
        self.with(|time| time.limit = limit_ps);
        Ok(())
    }

    fn attach(&self, is_attached: bool) -> io::Result<()> {
        self.with(|time| time.is_attached = is_attached);
        Ok(())
    }
}

/// A served flash disk whose sectors are filled with their number's lowest byte.
struct Bench {
    dir: tempfile::TempDir,
    clock: FakeClock,
    server: Option<DiskServer>,
    end: Receiver<io::Result<()>>,
}

impl Bench {
    fn new(is_read_only: bool) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let content: Vec<u8> = (0..SECTORS).flat_map(|sector| [sector as u8; 512]).collect();
        fs::write(dir.path().join("disk.img"), content).expect("it is writable");
        let image = Image::open(&dir.path().join("disk.img"), is_read_only).expect("it was made");
        let disk = Disk::new(Preset::Ssd, image.sectors(), 1).expect("it is possible");
        let clock = FakeClock::default();
        let (sender, end) = channel();
        let on_end = move |result| drop(sender.send(result));
        let server = DiskServer::start(&dir.path().join("nbd.sock"), image, disk, clock.clone(), on_end);
        Self { server: Some(server.expect("the path is free")), dir, clock, end }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn client(&self) -> Client {
        let mut client = Client::connect(&self.path("nbd.sock"));
        client.go();
        self.clock.wait(|time| time.is_attached);
        client
    }
}

struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the server listens");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a socket");
        let mut client = Self(stream);
        assert_eq!(&client.bytes::<18>(), b"NBDMAGICIHAVEOPT\x00\x03");
        client.send(&3_u32.to_be_bytes());
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    fn bytes<const BYTES: usize>(&mut self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    fn option(&mut self, option: u32, data: &[u8]) {
        let head = [&b"IHAVEOPT"[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat();
        self.send(&head);
    }

    /// Kind and data of the reply to an option.
    fn option_reply(&mut self, option: u32) -> (u32, Vec<u8>) {
        assert_eq!(u64::from_be_bytes(self.bytes()), 0x3_e889_0455_65a9);
        assert_eq!(u32::from_be_bytes(self.bytes()), option);
        let kind = u32::from_be_bytes(self.bytes());
        let mut data = vec![0; u32::from_be_bytes(self.bytes()) as usize];
        self.0.read_exact(&mut data).expect("the server answers");
        (kind, data)
    }

    /// Begins transmission as QEMU does.
    fn go(&mut self) {
        self.option(8, &[]);
        assert_eq!(self.option_reply(8).0, 1 << 31 | 1, "structured replies are not supported");
        self.option(7, b"\0\0\0\x04disk\0\x01\0\x03");
        let (kind, export) = self.option_reply(7);
        assert_eq!((kind, &export[..2]), (3, &[0, 0][..]));
        assert_eq!(export[2..10], (SECTORS * 512).to_be_bytes());
        assert_eq!(self.option_reply(7).0, 3);
        assert_eq!(self.option_reply(7).0, 1);
    }

    fn request(&mut self, command: u16, cookie: u64, offset: u64, bytes: u32, data: &[u8]) {
        let mut wire = Vec::from(0x2560_9513_u32.to_be_bytes());
        wire.extend(0_u16.to_be_bytes());
        wire.extend(command.to_be_bytes());
        wire.extend(cookie.to_be_bytes());
        wire.extend(offset.to_be_bytes());
        wire.extend(bytes.to_be_bytes());
        wire.extend(data);
        self.send(&wire);
    }

    fn read(&mut self, cookie: u64, sector: u64, sectors: u32) {
        self.request(0, cookie, sector * 512, sectors * 512, &[]);
    }

    /// Error and cookie of the next reply.
    fn reply(&mut self) -> (u32, u64) {
        assert_eq!(u32::from_be_bytes(self.bytes()), 0x6744_6698);
        (u32::from_be_bytes(self.bytes()), u64::from_be_bytes(self.bytes()))
    }

    fn is_silent(&mut self) -> bool {
        self.0.set_nonblocking(true).expect("a socket");
        let silent = self.0.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).expect("a socket");
        silent
    }

    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0)) || self.0.write_all(&[0]).is_err()
    }
}

#[test]
fn an_answer_waits_for_its_time() {
    let bench = Bench::new(false);
    let mut client = bench.client();
    bench.clock.with(|time| time.now_ps = 1000 * US);
    client.read(7, 9, 8);
    // 5 us for the controller, 60 us for the cells, eight sectors on the bus.
    let done = 1065 * US + 8 * 160_000;
    bench.clock.wait(|time| time.limit == Some(done));
    bench.clock.with(|time| time.now_ps = done - 1);
    thread::sleep(Duration::from_millis(5));
    assert!(client.is_silent(), "it is too early");
    bench.clock.with(|time| time.now_ps = done);
    assert_eq!(client.reply(), (0, 7));
    let data = client.bytes::<4096>();
    assert_eq!((data[0], data[4095]), (9, 16));
    bench.clock.wait(|time| time.limit.is_none());
}

#[test]
fn before_the_machine_starts_nothing_takes_time() {
    let bench = Bench::new(false);
    let mut client = bench.client();
    client.read(7, 9, 8);
    assert_eq!(client.reply(), (0, 7));
    assert_eq!(client.bytes::<4096>()[0], 9);
}

#[test]
fn time_stands_still_until_the_answer_is_read() {
    let bench = Bench::new(false);
    let mut client = bench.client();
    bench.clock.with(|time| time.now_ps = 1000 * US);
    client.read(1, 0, 8);
    let done = 1065 * US + 8 * 160_000;
    bench.clock.wait(|time| time.limit == Some(done));
    bench.clock.with(|time| time.now_ps = done);
    assert_eq!(client.reply(), (0, 1));
    thread::sleep(Duration::from_millis(5));
    assert_eq!(bench.clock.with(|time| time.limit), Some(done), "its data is not read");
    let _ = client.bytes::<4096>();
    bench.clock.wait(|time| time.limit.is_none());
}

#[test]
fn a_request_counts_from_its_doorbell() {
    let bench = Bench::new(false);
    let mut client = bench.client();
    bench.clock.with(|time| time.now_ps = 1);
    client.read(1, 0, 8);
    bench.clock.wait(|time| time.limit.is_some());
    bench.clock.with(|time| time.now_ps = 100 * US);
    assert_eq!(client.reply(), (0, 1));
    let _ = client.bytes::<4096>();
    bench.clock.wait(|time| time.limit.is_none());
    // The bytes are on their way before the doorbell is told; the machine has gone on a little since.
    bench.clock.with(|time| (time.now_ps, time.doorbells) = (510 * US, (1, 500 * US)));
    client.read(2, 8, 8);
    bench.clock.wait(|time| time.acknowledged == 1);
    bench.clock.wait(|time| time.limit.is_some());
    let limit = bench.clock.with(|time| time.limit).expect("it is held");
    let from_doorbell = 565 * US + 8 * 160_000;
    assert!([from_doorbell, from_doorbell + 10 * US].contains(&limit), "{limit}: by the doorbell, or by the look");
    bench.clock.with(|time| time.doorbells = (2, 520 * US));
    bench.clock.wait(|time| time.acknowledged == 2);
}

#[test]
fn what_is_written_is_read_again_and_flushed() {
    let bench = Bench::new(false);
    let mut client = bench.client();
    bench.clock.with(|time| time.now_ps = 1);
    client.request(1, 1, 512, 1024, &[0xab; 1024]);
    client.read(2, 2, 1);
    client.request(3, 3, 0, 0, &[]);
    bench.clock.wait(|time| time.limit.is_some());
    bench.clock.with(|time| time.now_ps = 10_000 * US);
    // The write takes 20 us, the read has to wait for the same channel; the flush comes when both are done.
    assert_eq!(client.reply(), (0, 1));
    assert_eq!(client.reply(), (0, 2));
    assert_eq!(client.bytes::<512>(), [0xab; 512]);
    assert_eq!(client.reply(), (0, 3));
    assert_eq!(fs::read(bench.path("disk.img")).expect("it was made")[1535..1537], [0xab, 3]);
}

#[test]
fn requests_that_make_no_sense_are_refused_and_the_next_is_served() {
    let bench = Bench::new(true);
    let mut client = bench.client();
    bench.clock.with(|time| time.now_ps = 1000 * US);
    for (cookie, command, offset, bytes, error) in [
        (1, 0, SECTORS * 512, 512, 22),
        (2, 0, 1, 512, 22),
        (3, 0, 0, 0, 22),
        (4, 6, 0, 512, 22),
        (5, 0, 0, u32::MAX, 22),
    ] {
        client.request(command, cookie, offset, bytes, &[]);
        assert_eq!(client.reply(), (error, cookie));
    }
    client.request(1, 6, 0, 512, &[0; 512]);
    assert_eq!(client.reply(), (1, 6), "the disk is read-only");
    client.read(7, 0, 1);
    bench.clock.wait(|time| time.limit.is_some_and(|limit| limit > 1000 * US));
    bench.clock.with(|time| time.now_ps = 2000 * US);
    assert_eq!(client.reply(), (0, 7));
}

#[test]
fn time_goes_on_when_the_client_or_the_server_ends() {
    for ends in [0, 1, 2] {
        let mut bench = Bench::new(false);
        let mut client = bench.client();
        bench.clock.with(|time| time.now_ps = 1);
        client.read(1, 0, 1);
        bench.clock.wait(|time| time.limit.is_some());
        match ends {
            0 => drop(client),
            1 => client.request(2, 0, 0, 0, &[]),
            _ => drop(bench.server.take()),
        }
        let end = bench.end.recv_timeout(WATCHDOG).expect("the server ends");
        assert!(end.is_ok(), "{end:?}");
        bench.clock.wait(|time| time.limit.is_none() && !time.is_attached);
    }
}

#[test]
fn who_breaks_the_protocol_loses_the_connection() {
    type Breaks = fn(&mut Client);
    let garbage: [(&str, Breaks); 4] = [
        ("a request does not begin as one", |client| {
            client.go();
            client.send(&[0xff; 28]);
        }),
        ("a write is larger than the server takes", |client| {
            client.go();
            client.request(1, 1, 0, 1 << 30, &[]);
        }),
        ("an option does not begin as one", |client| client.send(&[0; 16])),
        ("an option is too long", |client| client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff")),
    ];
    for (why, send) in garbage {
        let bench = Bench::new(false);
        let mut client = Client::connect(&bench.path("nbd.sock"));
        send(&mut client);
        let end = bench.end.recv_timeout(WATCHDOG).expect("the server ends");
        assert_eq!(end.expect_err("it is broken").to_string(), why);
        assert!(client.is_closed() && bench.clock.with(|time| time.limit.is_none() && !time.is_attached));
    }
}

#[test]
fn options_that_make_no_sense_are_refused_politely() {
    let bench = Bench::new(false);
    let mut client = Client::connect(&bench.path("nbd.sock"));
    for data in [&b""[..], b"\0\0\0\x09disk\0\0", b"\0\0\0\x04disk\0\x02\0\x03"] {
        client.option(7, data);
        assert_eq!(client.option_reply(7).0, 1 << 31 | 3);
    }
    client.go();
}

#[test]
fn a_server_without_a_client_ends() {
    let mut bench = Bench::new(false);
    drop(bench.server.take());
    assert!(bench.end.recv_timeout(WATCHDOG).expect("it ends").is_ok());
}

#[test]
fn bad_images_are_told() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let empty = dir.path().join("empty");
    fs::write(&empty, [0; 511]).expect("it is writable");
    assert_eq!(Image::open(&empty, false).expect_err("it is empty").to_string(), "the image has no sector");
    assert!(Image::open(&dir.path().join("no"), true).is_err());
}
