//! The disk server's client.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Write};

use disk_model::{Disk, Preset};
use disk_server::{Command, Image, Requests, Service, negotiate};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::Input;

/// Sectors of the disk.
const SECTORS: u64 = 64;

/// A client that has said all it will say.
struct Client<'a> {
    said: &'a [u8],
    heard: usize,
}

impl Read for Client<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.said.read(buf)
    }
}

impl Write for Client<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

thread_local! {
    /// One file for all runs: what it holds changes nothing but the data of reads.
    static FILE: RefCell<Option<File>> = const { RefCell::new(None) };
}

fn image(is_read_only: bool) -> Image {
    let file = FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| {
            let file = File::from(memfd_create("disk", MemfdFlags::CLOEXEC).expect("memory is a file"));
            file.set_len(SECTORS * 512).expect("it may grow");
            file
        });
        file.try_clone().expect("a file more")
    });
    Image::of(file, is_read_only).expect("it has sectors")
}

/// Chunk size, time and disk, then all that the client says: a handshake first, or only requests.
pub fn nbd(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (has_handshake, is_read_only, chunk) = (input.flag(), input.flag(), usize::from(input.byte()) + 1);
    let image = image(is_read_only);
    let mut client = Client { said: input.rest(), heard: 0 };
    if has_handshake && negotiate(&mut client, &image).is_err() {
        return;
    }
    assert!(client.heard <= 32 * 200 + 1024, "{} bytes for a handshake", client.heard);
    let sectors = image.sectors();
    let disk = Disk::new(Preset::Hp97560, sectors, 1).expect("it has sectors");
    let (mut service, mut requests, mut now) = (Service::new(image, disk), Requests::default(), 1);
    for part in client.said.chunks(chunk) {
        requests.push(part);
        loop {
            let Ok(next) = requests.next_request() else { return };
            let Some((head, data)) = next else { break };
            assert_eq!(data.len(), head.payload() as usize);
            if head.command == Command::Disconnect {
                return;
            }
            let (done, answer) = service.take(head, &data, now);
            assert!(done >= now && answer.len() as u64 <= 16 + sectors * 512, "{head:?}");
            now += 1000;
        }
    }
}
