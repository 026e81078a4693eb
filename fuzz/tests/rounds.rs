//! A short round of every target: its corpus, and damaged copies of that, always the same ones. What coverage-guided rounds have found is in
//! the corpus, so that it is not found again.

use std::fs;
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target};

/// Damaged copies of all inputs of a target together.
const COPIES: usize = 3_000;

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// The inputs in the tree, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = folder(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("it can be read")).collect()
}

/// The same numbers every time (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    /// A copy with some bytes changed, moved, doubled, cut off, or taken from `other`.
    fn damaged(&mut self, good: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = good.to_vec();
        for _ in 0..=self.next() % 4 {
            let at = if bytes.is_empty() { 0 } else { self.next() % bytes.len() };
            match self.next() % 6 {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.next() as u8),
                2 => bytes.extend_from_slice(&other[..other.len().min(self.next() % 64)]),
                3 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.next() % 5],
                4 if !bytes.is_empty() => bytes[at] ^= 1 << (self.next() % 8),
                _ if !bytes.is_empty() => bytes[at] = self.next() as u8,
                _ => bytes.push(self.next() as u8),
            }
        }
        bytes
    }
}

#[test]
fn no_target_finds_anything() {
    for target in &TARGETS {
        let inputs = corpus(target);
        inputs.iter().for_each(|input| (target.run)(input));
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for _ in 0..COPIES {
            let (one, other) = (numbers.next() % inputs.len(), numbers.next() % inputs.len());
            (target.run)(&numbers.damaged(&inputs[one], &inputs[other]));
        }
        (target.run)(&[]);
    }
}

#[test]
fn corpora_are_small_and_belong_to_targets() {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(parent).expect("it is in the tree") {
        let name = entry.expect("it can be read").file_name().into_string().expect("a plain name");
        assert!(TARGETS.iter().any(|target| target.name == name), "{name} is no target");
    }
    for target in &TARGETS {
        let inputs = corpus(target);
        assert!((1..=64).contains(&inputs.len()), "{} inputs of {}", inputs.len(), target.name);
        let bytes: usize = inputs.iter().map(Vec::len).sum();
        assert!(bytes <= 128 << 10, "{bytes} bytes of {}", target.name);
    }
}
