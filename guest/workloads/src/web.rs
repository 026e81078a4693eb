//! Workload `web`: clients that ask a web server on the same machine for pages. The server is another's; here are its
//! pages, the clients' requests, and what the answers must be.

use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::digest::Digest;
use crate::random::Random;
use crate::{Crew, Size};

/// How many pages there are.
pub const PAGES: u32 = 64;
/// How many requests go over one connection.
const PER_CONNECTION: u64 = 8;
/// Longest head of an answer.
const LONGEST_HEAD: usize = 2048;

/// A way to the server.
pub trait Connection {
    /// Sends all; whether that was possible.
    fn send(&mut self, bytes: &[u8]) -> bool;

    /// Receives some bytes; 0 at the end and after a failure.
    fn receive(&mut self, to: &mut [u8]) -> usize;
}

/// The content of page `number`: words, half a KiB to 64 KiB, most of them short.
pub fn page(number: u32) -> Vec<u8> {
    let mut random = Random::new(u64::from(number) + 1);
    let length = (512 << random.below(8).min(random.below(8))) + random.below(512) as usize;
    let letter = |random: &mut Random| if random.below(6) == 0 { b' ' } else { b'a' + random.below(26) as u8 };
    (0..length).map(|_| letter(&mut random)).collect()
}

/// How many requests there are in all.
pub const fn requests(size: Size) -> u64 {
    size.pick(800, 16_000)
}

/// The sum of what all requests must give.
pub fn expected(size: Size) -> u64 {
    let pages: Vec<u64> = (0..PAGES).map(|number| digest_of(&page(number))).collect();
    (0..requests(size)).fold(0, |sum: u64, request| sum.wrapping_add(pages[page_of(request) as usize]))
}

/// Asks for everything, each thread over connections of its own made by `connect`.
///
/// # Errors
/// An answer is not what HTTP has, or there is none.
pub fn run<C: Connection>(
    crew: &dyn Crew,
    size: Size,
    connect: &(dyn Fn() -> Option<C> + Sync),
) -> Result<u64, &'static str> {
    let (next, sum, failures) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let groups = requests(size) / PER_CONNECTION;
    crew.each(&|_| {
        let mut buffer = vec![0; 256 << 10];
        loop {
            // Relaxed: the numbers are all that is shared; `each` orders the end.
            let group = next.fetch_add(1, Ordering::Relaxed);
            if group >= groups {
                return;
            }
            let first = group * PER_CONNECTION;
            match connect().ok_or("no connection").and_then(|mut to| ask(&mut to, first, &mut buffer)) {
                Ok(part) => sum.fetch_add(part, Ordering::Relaxed),
                Err(_) => failures.fetch_add(1, Ordering::Relaxed),
            };
        }
    });
    if failures.into_inner() == 0 { Ok(sum.into_inner()) } else { Err("requests failed") }
}

/// Which page a request is for.
fn page_of(request: u64) -> u32 {
    Random::new(request).below(PAGES)
}

fn digest_of(bytes: &[u8]) -> u64 {
    let mut digest = Digest::default();
    digest.add(bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        digest.add(chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
    digest.value()
}

/// A connection's requests, from `first` on.
fn ask(connection: &mut impl Connection, first: u64, buffer: &mut [u8]) -> Result<u64, &'static str> {
    let mut sum = 0_u64;
    for request in first..first + PER_CONNECTION {
        let number = page_of(request);
        let digits = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        let parts: [&[u8]; 3] = [b"GET /", &digits, b".html HTTP/1.1\r\nHost: guest\r\n\r\n"];
        if !connection.send(&parts.concat()) {
            return Err("a request cannot be sent");
        }
        sum = sum.wrapping_add(answer(connection, buffer)?);
    }
    Ok(sum)
}

/// Receives one answer, and gives its body's digest.
fn answer(connection: &mut impl Connection, buffer: &mut [u8]) -> Result<u64, &'static str> {
    let mut held = 0;
    let body = loop {
        if let Some(place) = end_of_head(&buffer[..held]) {
            break place;
        }
        held += some(connection, &mut buffer[held..LONGEST_HEAD])?;
    };
    let head = &buffer[..body];
    if !head.starts_with(b"HTTP/1.1 200 ") {
        return Err("the server refuses");
    }
    let end = body + content_length(head).ok_or("the head says no length")?;
    if end > buffer.len() {
        return Err("an answer is too long");
    }
    while held < end {
        held += some(connection, &mut buffer[held..end])?;
    }
    Ok(digest_of(&buffer[body..end]))
}

fn some(connection: &mut impl Connection, to: &mut [u8]) -> Result<usize, &'static str> {
    match connection.receive(to) {
        0 => Err("an answer ends early"),
        count => Ok(count),
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|place| place + 4)
}

fn content_length(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let mut lines = head.split(|byte| *byte == b'\n');
    let line = lines.find(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)))?;
    core::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crew::tests::HostCrew;

    /// A server that answers in pieces of so many bytes.
    struct Server {
        waiting: Vec<u8>,
        piece: usize,
        status: &'static str,
    }

    impl Connection for Server {
        fn send(&mut self, bytes: &[u8]) -> bool {
            let number = std::str::from_utf8(&bytes[5..7]).unwrap().parse().unwrap();
            let body = page(number);
            let head = format!("HTTP/1.1 {}\r\nServer: x\r\nContent-Length: {}\r\n\r\n", self.status, body.len());
            self.waiting.extend(head.bytes().chain(body));
            true
        }

        fn receive(&mut self, to: &mut [u8]) -> usize {
            let count = to.len().min(self.piece).min(self.waiting.len());
            to[..count].copy_from_slice(&self.waiting[..count]);
            drop(self.waiting.drain(..count));
            count
        }
    }

    fn run_with(piece: usize, status: &'static str) -> Result<u64, &'static str> {
        run(&HostCrew(2), Size::Small, &|| Some(Server { waiting: Vec::new(), piece, status }))
    }

    #[test]
    fn answers_in_pieces_give_the_known_sum() {
        assert_eq!(run_with(1400, "200 OK"), Ok(expected(Size::Small)));
        assert_eq!(run_with(1 << 20, "200 OK"), Ok(expected(Size::Small)));
    }

    #[test]
    fn refusals_and_lost_answers_are_failures() {
        assert!(run_with(1400, "404 Not Found").is_err());
        assert!(run_with(0, "200 OK").is_err());
        assert!(run::<Server>(&HostCrew(1), Size::Small, &|| None).is_err());
    }

    #[test]
    fn pages_differ_in_length() {
        let lengths: Vec<usize> = (0..PAGES).map(|number| page(number).len()).collect();
        assert!(lengths.iter().any(|length| *length > 16 << 10) && lengths.iter().any(|length| *length < 2 << 10));
    }
}
