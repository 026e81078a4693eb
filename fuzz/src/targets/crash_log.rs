//! What a panic left in the machine's log. Guests write to the same log.

use crc::{CRC_32_ISO_HDLC, Crc};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// A log. Each line whose last word is `@` gets its right checksum there: whoever writes knows how it is made.
pub fn crash_log(bytes: &[u8]) {
    let mut log = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.strip_suffix(b" @") {
            Some(text) => {
                log.extend(text);
                log.extend(format!(" {:08x}", CRC.checksum(text)).bytes());
            }
            None => log.extend(line),
        }
        log.push(b'\n');
    }
    for crash in crash::read(&log) {
        assert!(crash.harts.len() <= crash::MAX_HARTS);
        let _ = (crash.culprit().is_some(), crash.message().len());
    }
}
