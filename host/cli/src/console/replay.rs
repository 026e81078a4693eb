//! Output that was kept, shown again: without the questions in it.
//!
//! systemd and shells ask a terminal where its cursor is or what it is. That was answered, or not, long ago; a terminal
//! that sees the question again answers again, and the guest's shell takes the answer for typed.

const ESCAPE: u8 = 0x1b;
/// "Who are you?", in one byte.
const ENQUIRY: u8 = 0x05;
/// Longer sequences than any question are passed on.
const MAX_SEQUENCE: usize = 32;

/// Takes the questions to a terminal out of a stream.
#[derive(Debug, Default)]
pub struct Replay {
    /// A control sequence that has begun.
    sequence: Vec<u8>,
}

impl Replay {
    /// What of these bytes, and of those held back before, can be shown.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.take(*byte, &mut shown);
        }
        shown
    }

    /// The begun sequence: what ends it is live.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sequence)
    }

    fn take(&mut self, byte: u8, shown: &mut Vec<u8>) {
        match (self.sequence.as_slice(), byte) {
            (_, ESCAPE) => {
                shown.append(&mut self.sequence);
                self.sequence.push(byte);
            }
            ([], ENQUIRY) => {}
            ([], _) => shown.push(byte),
            ([_], b'[') => self.sequence.push(byte),
            // Parameters and what stands between them and the end.
            ([_, _, ..], 0x20..=0x3f) if self.sequence.len() < MAX_SEQUENCE => self.sequence.push(byte),
            _ => {
                self.sequence.push(byte);
                if is_question(&self.sequence) {
                    self.sequence.clear();
                } else {
                    shown.append(&mut self.sequence);
                }
            }
        }
    }
}

/// ECMA-48 device status (`n`) and device attributes (`c`, `ESC Z`); xterm's window reports (`t`), modes (`$p`) and version
/// (`>q`).
fn is_question(sequence: &[u8]) -> bool {
    match sequence {
        [ESCAPE, b'Z'] => true,
        [ESCAPE, b'[', parameters @ .., end] => {
            matches!(end, b'n' | b'c' | b't')
                || (*end == b'p' && parameters.ends_with(b"$"))
                || (*end == b'q' && parameters.starts_with(b">"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(parts: &[&[u8]]) -> Vec<u8> {
        let mut replay = Replay::default();
        let mut shown: Vec<u8> = parts.iter().flat_map(|part| replay.push(part)).collect();
        shown.extend(replay.finish());
        shown
    }

    #[test]
    fn questions_are_left_out() {
        let asked = b"\x1b[6n\x1b[32766;32766Hon\x1b[c\x1b[>0c\x1bZ\x05\x1b[18te\x1b[?2026$p\x1b[>q";
        assert_eq!(shown(&[asked]), b"\x1b[32766;32766Hone");
    }

    #[test]
    fn everything_else_stays() {
        let colours = b"\x1b[0;1;31mred\x1b[0m\x1b[?2004l\x1b[2J\x1b[!p\x1b]104\x07\x1b[ q end \xff\x1b[";
        assert_eq!(shown(&[colours]), colours);
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"n"].concat();
        assert_eq!(shown(&[&long]), long);
    }

    #[test]
    fn a_question_may_come_in_pieces() {
        assert_eq!(shown(&[b"a\x1b", b"[", b"6", b"nb\x1b[3", b"1mc"]), b"ab\x1b[31mc");
        assert_eq!(shown(&[b"\x1b\x1b[6n"]), b"\x1b");
    }
}
