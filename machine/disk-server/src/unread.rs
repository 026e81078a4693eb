//! How much of what was sent the client has not read yet.
//
// UNSAFETY: there is no safe wrapper of this ioctl.
#![expect(unsafe_code)]

use std::io;
use std::os::unix::net::UnixStream;

use rustix::ioctl::{Getter, Opcode, ioctl};

/// `SIOCOUTQ`, which Unix sockets answer with the bytes of memory that is sent and not read: 0 when all is read.
const SIOCOUTQ: Opcode = 0x5411;

/// Whether the client has read everything.
pub fn is_all_read(stream: &UnixStream) -> io::Result<bool> {
    // SAFETY: unix(7): the ioctl writes one int through its argument, and does nothing else.
    let unread = unsafe { ioctl(stream, Getter::<SIOCOUTQ, i32>::new()) }?;
    Ok(unread == 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn it_is_read_when_it_is_read() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        assert!(is_all_read(&ours).expect("a socket"));
        ours.write_all(&[7; 100]).expect("there is room");
        assert!(!is_all_read(&ours).expect("a socket"));
        theirs.read_exact(&mut [0; 99]).expect("it was sent");
        assert!(!is_all_read(&ours).expect("a socket"));
        theirs.read_exact(&mut [0; 1]).expect("it was sent");
        assert!(is_all_read(&ours).expect("a socket"));
    }
}
