//! Lines out of chunks.

/// Longest line: the agent captures at most 16 MiB of each output, which base64 makes a third longer.
const MAX_LINE: usize = 48 << 20;

/// Lines out of chunks of bytes from a guest.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    /// Bytes at the front that were searched already.
    searched: usize,
    /// The line being received is too long and is dropped.
    is_dropping: bool,
}

impl Lines {
    /// Takes a chunk.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole line that is not empty, without delimiters; an error in place of one that was too long.
    pub fn next_line(&mut self) -> Option<Result<Vec<u8>, String>> {
        loop {
            let Some(end) = self.find_newline() else {
                if self.buffer.len() > MAX_LINE {
                    self.buffer.clear();
                    self.searched = 0;
                    self.is_dropping = true;
                }
                return None;
            };
            let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.searched = 0;
            if std::mem::take(&mut self.is_dropping) {
                return Some(Err(format!("a line of more than {MAX_LINE} bytes")));
            }
            // What stands before 0xff belongs to a conversation that was broken off.
            if let Some(delimiter) = line.iter().rposition(|byte| *byte == 0xff) {
                line.drain(..=delimiter);
            }
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Some(Ok(trimmed.to_vec()));
            }
        }
    }

    fn find_newline(&mut self) -> Option<usize> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let found = fresh.iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
        self.searched = self.buffer.len();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole() {
        let mut lines = Lines::default();
        lines.push(b"one\r\n\ntw");
        assert_eq!(lines.next_line(), Some(Ok(b"one".to_vec())));
        assert_eq!(lines.next_line(), None);
        lines.push(b"o\nrest\xff{}\n");
        assert_eq!(lines.next_line(), Some(Ok(b"two".to_vec())));
        assert_eq!(lines.next_line(), Some(Ok(b"{}".to_vec())));
        assert_eq!(lines.next_line(), None);
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE + 1]);
        assert_eq!(lines.next_line(), None);
        assert!(lines.buffer.is_empty());
        lines.push(b"more\nnext\n");
        assert!(matches!(lines.next_line(), Some(Err(_))));
        assert_eq!(lines.next_line(), Some(Ok(b"next".to_vec())));
    }
}
