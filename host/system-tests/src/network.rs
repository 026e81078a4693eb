//! Transfers over TCP whose content is checked: between guests, and between a guest and this program, which stands for
//! the world outside.

use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use md5::{Digest, Md5};

use crate::debian::Shell;
use crate::ok;

/// Where a guest finds this program, through its subnet's gateway and QEMU's user network.
const OUTSIDE: &str = "10.0.2.2";
const PORT: &str = "7000";
const MIB: usize = 1 << 20;

/// Sends a file and prints what comes, both at the same time. The first argument is a port to wait at, or whom to call;
/// perl's core is in every Debian.
const TALK: &str = r#"
use IO::Socket::INET;
my ($peer, $file) = @ARGV;
my ($socket, $bytes);
if ($peer =~ /:/) {
    until ($socket = IO::Socket::INET->new(PeerAddr => $peer)) { select(undef, undef, undef, 0.2) }
} else {
    my $door = IO::Socket::INET->new(LocalPort => $peer, Listen => 1, ReuseAddr => 1) or die "listen: $!";
    $socket = $door->accept or die "accept: $!";
}
my $child = fork // die "fork: $!";
if ($child == 0) {
    open(my $data, "<", $file) or die "$file: $!";
    while (sysread($data, $bytes, 1 << 17)) { print $socket $bytes or die "send: $!" }
    $socket->flush;
    shutdown($socket, 1);
    exit 0;
}
my $got;
while ($got = sysread($socket, $bytes, 1 << 17)) { print $bytes or die "print: $!" }
defined $got or die "receive: $!";
waitpid($child, 0);
exit($? >> 8);
"#;

/// The guest's address, once it has one from DHCP.
///
/// # Panics
/// If it gets none.
#[track_caller]
pub fn address(shell: &mut Shell) -> Ipv4Addr {
    let wait = "until ip -4 -o addr show scope global | grep -o 'inet [0-9.]*'; do sleep 0.2; done";
    let text = shell.run(wait);
    ok(text.trim_start_matches("inet ").parse())
}

/// Two guests send each other so many random MiB at the same time.
///
/// # Panics
/// If anything arrives changed, or does not arrive.
pub fn exchange(left: &mut Shell, right: &mut Shell, mib: usize) {
    let sent = [make_data(left, mib), make_data(right, mib)];
    let callee = format!("{}:{PORT}", address(right));
    let received = thread::scope(|scope| {
        let waiting = scope.spawn(|| talk(right, PORT));
        let called = talk(left, &callee);
        [waiting.join().expect("the waiting guest has it all"), called]
    });
    assert_eq!(received, sent, "data changed on its way");
}

/// A guest and this program send each other so many MiB at the same time.
///
/// # Panics
/// If anything arrives changed, or does not arrive.
pub fn exchange_with_outside(shell: &mut Shell, mib: usize) {
    address(shell);
    let sent = make_data(shell, mib);
    let listener = ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let port = ok(listener.local_addr()).port();
    let pattern = pattern(mib);
    let pattern_sum = sum(&pattern);
    let outside = thread::spawn(move || serve(&ok(listener.accept()).0, &pattern));
    let received = talk(shell, &format!("{OUTSIDE}:{port}"));
    assert_eq!(received, pattern_sum, "what came in through the gateway changed");
    let received = ok(outside.join().expect("the guest sent it all"));
    assert_eq!(received, sent, "what went out through the gateway changed");
}

/// A guest of a machine whose network is closed calls this program in vain, at an address that otherwise leads here.
///
/// # Panics
/// If it is heard.
pub fn call_outside_in_vain(shell: &mut Shell) {
    address(shell);
    let listener = ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let port = ok(listener.local_addr()).port();
    let call = r#"print IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 20) ? "heard" : "in vain""#;
    let said = shell.run_with("perl -MIO::Socket::INET -e \"$1\" \"$2\"", &[call, &format!("{OUTSIDE}:{port}")]);
    assert_eq!(said, "in vain");
    ok(listener.set_nonblocking(true));
    assert_eq!(listener.accept().map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::WouldBlock));
}

/// This program calls a guest at a port of the host, and both send each other so many MiB.
///
/// # Panics
/// If anything arrives changed, or does not arrive.
pub fn exchange_through(host_port: u16, shell: &mut Shell, mib: usize) {
    let sent = make_data(shell, mib);
    let pattern = pattern(mib);
    let pattern_sum = sum(&pattern);
    let (received_inside, received_outside) = thread::scope(|scope| {
        // What forwards takes the call before the guest listens, and drops it: called again until something comes back.
        let outside = scope.spawn(move || {
            loop {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, host_port));
                match stream.and_then(|stream| serve(&stream, &pattern)) {
                    Ok(received) if received != sum(b"") => break received,
                    _ => thread::sleep(Duration::from_millis(200)),
                }
            }
        });
        let inside = talk(shell, PORT);
        (inside, outside.join().expect("it is called"))
    });
    assert_eq!((received_inside, received_outside), (pattern_sum, sent), "data changed on its way");
}

/// The port at which a guest waits in [`exchange_through`].
pub const GUEST_PORT: u16 = 7000;

/// Writes random data to `/run/data`; its checksum.
#[track_caller]
fn make_data(shell: &mut Shell, mib: usize) -> String {
    first_word(&shell.run(&format!("head -c {mib}M /dev/urandom >/run/data; md5sum </run/data")))
}

/// Sends that, and receives; the checksum of what came.
#[track_caller]
fn talk(shell: &mut Shell, peer: &str) -> String {
    first_word(&shell.run_with("perl -e \"$1\" \"$2\" /run/data | md5sum", &[TALK, peer]))
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Sends `pattern`, and receives all that comes; its checksum.
fn serve(stream: &TcpStream, pattern: &[u8]) -> io::Result<String> {
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut out = stream;
            out.write_all(pattern)?;
            stream.shutdown(Shutdown::Write)
        });
        let mut received = Vec::new();
        let mut from = stream;
        from.read_to_end(&mut received)?;
        sender.join().expect("sending returns an error at worst")?;
        Ok(sum(&received))
    })
}

fn pattern(mib: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(mib * MIB / 8).flatten().collect()
}

fn sum(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Md5::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
