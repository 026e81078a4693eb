//! Waiting until one can log in.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use control::VmState;
use machine::Client;

use super::Home;
use crate::commands::ssh;
use crate::failure::Failure;

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a server may take to say who it is.
const GREETING: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(2);

/// Waits until a login succeeds, at most so long.
///
/// # Errors
/// The time is over, or the VM or its machine has ended.
pub fn until_up(home: &Home, client: &Client, timeout: Duration) -> Result<(), Failure> {
    let (vm, port) = (home.name(), home.ssh_port()?);
    let deadline = Instant::now() + timeout;
    loop {
        // The emulator accepts for the VM at once, so only what is said counts.
        if greets(port) && ssh::can_log_in(home, port)? {
            return Ok(());
        }
        let summary = client.vm(vm)?;
        if !matches!(summary.state, VmState::Running | VmState::Stopping) {
            let why = summary.reason.map(|reason| format!(" ({reason:?})")).unwrap_or_default();
            let what = format!("VM {vm} has stopped{why} before anyone could log in");
            return Err(Failure::NotUp(format!("{what}; `mirrorball console {vm} --dump` shows what it said")));
        }
        if Instant::now() >= deadline {
            let what = format!("VM {vm} lets nobody in after {} s, and goes on", timeout.as_secs());
            return Err(Failure::NotUp(format!("{what}; `mirrorball console {vm}` shows what it does")));
        }
        thread::sleep(PAUSE);
    }
}

/// Whether an SSH server answers.
fn greets(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, CONNECT) else { return false };
    let mut greeting = [0; 4];
    stream.set_read_timeout(Some(GREETING)).is_ok() && stream.read_exact(&mut greeting).is_ok() && &greeting == b"SSH-"
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_greeting_counts() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let server = thread::spawn(move || {
            // One that closes, one of another kind, one that is right.
            for said in [b"".as_slice(), b"HTTP/1.1 400", b"SSH-2.0-x\r\n"] {
                let (mut stream, _) = listener.accept().expect("a caller");
                stream.write_all(said).expect("it listens");
            }
        });
        assert_eq!([greets(port), greets(port), greets(port)], [false, false, true]);
        server.join().expect("it ends");
        assert!(!greets(port), "nobody listens");
    }
}
