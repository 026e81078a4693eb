//! A look at the machine model of a running machine, through the file that it shares.
//!
//! The file is read and written by offset, never mapped: what a look takes may be some microseconds apart, and nothing
//! that the file says is believed before it is checked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use control::Name;
use model_file::{HEADER_BYTES, HartClock, Header, LayoutError, Mode, ModeCounters, PAGE_BYTES, Request, at};
use thiserror::Error;

use crate::rundir::RunDir;

/// Time between two looks at whether a request was taken.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes of page counters read at once.
const CHUNK: usize = 1 << 20;

/// The shared file of a machine model.
#[derive(Debug)]
pub struct SharedModel {
    file: File,
    path: PathBuf,
    header: Header,
}

/// Why it cannot be used.
#[derive(Debug, Error)]
pub enum SharedError {
    /// The machine has none.
    #[error("machine {name} runs without the machine model: give its file a section [model]")]
    NoModel {
        /// The machine.
        name: Name,
    },
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {source}")]
    Layout {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: LayoutError,
    },
    /// A request was not taken in time.
    #[error("the machine model has not taken the request within {seconds} s: does the emulator still run?")]
    Deaf {
        /// How long was waited.
        seconds: u64,
    },
}

/// The model at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// Whether it is on.
    pub is_on: bool,
    /// The machine's time.
    pub now_ps: u64,
    /// How often it was switched.
    pub switches: u64,
    /// Hot pages that found the queue full.
    pub dropped: u64,
    /// Its harts, by number.
    pub harts: Vec<HartState>,
}

/// A hart at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HartState {
    /// Its clock and its node.
    pub clock: HartClock,
    /// What it did in each [`Mode`], in the order of [`Mode::ALL`].
    pub modes: [ModeCounters; Mode::ALL.len()],
}

/// Misses on a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageMisses {
    /// Its machine address.
    pub address: u64,
    /// The node whose memory it is.
    pub home: usize,
    /// Misses of each node.
    pub misses: Vec<u32>,
}

impl PageMisses {
    /// Misses of other nodes than its own.
    #[must_use]
    pub fn remote(&self) -> u64 {
        let all = self.misses.iter().enumerate();
        all.filter(|(node, _)| *node != self.home).map(|(_, misses)| u64::from(*misses)).sum()
    }
}

impl SharedModel {
    /// The model of a running machine.
    ///
    /// # Errors
    /// It has none, or its file is not what it should be.
    pub fn of(dir: &RunDir) -> Result<Self, SharedError> {
        let path = super::ModelFiles::shared_file(dir.path());
        if !path.exists() {
            return Err(SharedError::NoModel { name: dir.name().clone() });
        }
        Self::open(&path)
    }

    /// The model behind this file.
    ///
    /// # Errors
    /// The file cannot be read, or is not what it should be.
    pub fn open(path: &Path) -> Result<Self, SharedError> {
        let failed = |source| SharedError::Io { path: path.to_owned(), source };
        let wrong = |source| SharedError::Layout { path: path.to_owned(), source };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes < HEADER_BYTES as u64 {
            return Err(wrong(LayoutError::Short { found: bytes, want: HEADER_BYTES as u64 }));
        }
        let mut start = [0; HEADER_BYTES];
        file.read_exact_at(&mut start, 0).map_err(failed)?;
        let header = Header::decode(&start, bytes).map_err(wrong)?;
        Ok(Self { file, path: path.to_owned(), header })
    }

    /// The machine that is modelled.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn state(&self) -> Result<ModelState, SharedError> {
        Ok(ModelState {
            is_on: self.word(at::IS_ON)? == 1,
            now_ps: self.word(at::NOW)?,
            switches: self.word(at::SWITCHES)?,
            dropped: self.word(at::DROPPED)?,
            harts: (0..self.header.harts()).map(|hart| self.hart(hart)).collect::<Result<_, _>>()?,
        })
    }

    /// The pages with the most remote misses, at most `count` of them, most first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn hottest(&self, count: usize) -> Result<Vec<PageMisses>, SharedError> {
        let nodes = self.header.nodes().len();
        let (mut hottest, mut first) = (Vec::new(), 0);
        let per_chunk = CHUNK / (nodes * 4);
        while let Some(start) = self.header.misses_at(first, 0) {
            let pages = (self.header.pages() - first).min(per_chunk as u64);
            let bytes = self.bytes(start, pages as usize * nodes * 4)?;
            let counters: Vec<u32> = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
            for (page, misses) in (first..).zip(counters.chunks(nodes)) {
                hottest.extend(self.page(page, misses).filter(|page| page.remote() > 0));
            }
            // Few are kept at any time, however many pages were touched.
            hottest.sort_by_key(|page: &PageMisses| (std::cmp::Reverse(page.remote()), page.address));
            hottest.truncate(count);
            first += pages;
        }
        Ok(hottest)
    }

    /// Asks something of the model and waits until it has taken that.
    ///
    /// # Errors
    /// [`SharedError::Deaf`] after `timeout`.
    pub fn request(&self, request: Request, timeout: Duration) -> Result<(), SharedError> {
        let deadline = Instant::now() + timeout;
        self.file.write_all_at(&(request as u64).to_le_bytes(), at::REQUEST).map_err(|source| self.failed(source))?;
        while self.word(at::REQUEST)? != 0 {
            if Instant::now() >= deadline {
                return Err(SharedError::Deaf { seconds: timeout.as_secs() });
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn hart(&self, hart: u64) -> Result<HartState, SharedError> {
        let there = "the header says how many harts there are";
        let clock = self.array(self.header.clock_at(hart).expect(there))?;
        let mut modes = [ModeCounters::default(); Mode::ALL.len()];
        for (mode, counters) in modes.iter_mut().enumerate() {
            *counters = ModeCounters::decode(&self.array(self.header.counters_at(hart, mode).expect(there))?);
        }
        Ok(HartState { clock: HartClock::decode(&clock), modes })
    }

    fn page(&self, page: u64, misses: &[u32]) -> Option<PageMisses> {
        let address = self.header.ram_base() + page * PAGE_BYTES;
        let home =
            self.header.nodes().iter().position(|node| (node.base..node.base + node.bytes).contains(&address))?;
        Some(PageMisses { address, home, misses: misses.to_vec() })
    }

    fn word(&self, offset: u64) -> Result<u64, SharedError> {
        Ok(u64::from_le_bytes(self.array(offset)?))
    }

    fn array<const BYTES: usize>(&self, offset: u64) -> Result<[u8; BYTES], SharedError> {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, offset).map_err(|source| self.failed(source))?;
        Ok(bytes)
    }

    fn bytes(&self, offset: u64, count: usize) -> Result<Vec<u8>, SharedError> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, offset).map_err(|source| self.failed(source))?;
        Ok(bytes)
    }

    fn failed(&self, source: io::Error) -> SharedError {
        SharedError::Io { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use model_file::Node;

    use super::*;

    const MIB: u64 = 1 << 20;
    const WATCHDOG: Duration = Duration::from_secs(30);

    /// A file as the plugin writes it, of two nodes of 2 + 1 harts.
    fn file() -> (tempfile::TempDir, PathBuf, Header) {
        let nodes = [
            Node { base: 0x8000_0000, bytes: 2 * MIB, harts: 2 },
            Node { base: 0x8020_0000, bytes: 4 * MIB, harts: 1 },
        ];
        let header = Header::new(&nodes, 16, 5000, |from, to| if from == to { 300 } else { 900 }).expect("it is good");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("model.bin");
        let file = File::create(&path).expect("it is writable");
        file.set_len(header.file_bytes()).expect("there is room");
        file.write_all_at(&header.encode(), 0).expect("there is room");
        (dir, path, header)
    }

    fn put(path: &Path, offset: Option<u64>, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(path).expect("it was made");
        file.write_all_at(bytes, offset.expect("there is such a place")).expect("there is room");
    }

    #[test]
    fn counters_are_found_where_they_are() {
        let (_dir, path, header) = file();
        let counters = ModeCounters { instructions: 7, time_ps: 9, ..ModeCounters::default() };
        put(&path, header.counters_at(2, Mode::VU as usize), &counters.encode());
        put(&path, header.clock_at(2).map(|clock| clock + 16), &1_u64.to_le_bytes());
        put(&path, Some(at::IS_ON), &1_u64.to_le_bytes());
        put(&path, Some(at::NOW), &5_u64.to_le_bytes());
        let state = SharedModel::open(&path).and_then(|model| model.state()).expect("it is good");
        assert_eq!((state.is_on, state.now_ps, state.switches, state.harts.len()), (true, 5, 0, 3));
        let hart = &state.harts[2];
        assert_eq!((hart.clock.node, hart.modes[Mode::VU as usize]), (1, counters));
        assert_eq!(state.harts[0].modes, [ModeCounters::default(); 6]);
    }

    #[test]
    fn the_hottest_pages_are_those_with_remote_misses() {
        let (_dir, path, header) = file();
        let misses = |page, node, count: u32| put(&path, header.misses_at(page, node), &count.to_le_bytes());
        misses(1, 0, 1000); // its own node's
        misses(2, 1, 5);
        misses(512, 0, 9); // the first page of node 1
        misses(1535, 0, 5); // the last
        misses(1535, 1, 2);
        let hottest = SharedModel::open(&path).and_then(|model| model.hottest(3)).expect("it is good");
        let found: Vec<_> = hottest.iter().map(|page| (page.address, page.home, page.misses.clone())).collect();
        let want = [(0x8020_0000, 1, vec![9, 0]), (0x8000_2000, 0, vec![0, 5]), (0x805f_f000, 1, vec![5, 2])];
        assert_eq!(found, want);
        let only = SharedModel::open(&path).and_then(|model| model.hottest(1)).expect("it is good");
        assert_eq!(only, hottest[..1]);
    }

    #[test]
    fn a_request_is_waited_for() {
        let (_dir, path, _) = file();
        let model = SharedModel::open(&path).expect("it is good");
        assert!(matches!(model.request(Request::On, Duration::ZERO), Err(SharedError::Deaf { seconds: 0 })));
        let plugin = SharedModel::open(&path).expect("it is good");
        assert_eq!(plugin.word(at::REQUEST).ok().and_then(Request::from_word), Some(Request::On));
        let taker = thread::spawn(move || {
            while plugin.word(at::REQUEST).expect("it is good") != Request::Off as u64 {
                thread::yield_now();
            }
            plugin.file.write_all_at(&[0; 8], at::REQUEST).expect("there is room");
        });
        model.request(Request::Off, WATCHDOG).expect("it is taken");
        taker.join().expect("it ended");
    }

    #[test]
    fn other_files_are_refused() {
        let (dir, path, _) = file();
        let message = |path: &Path| {
            let error = SharedModel::open(path).map(drop).expect_err("it is wrong").to_string();
            error.replace(&dir.path().display().to_string(), "DIR")
        };
        assert_eq!(message(&dir.path().join("no")), "DIR/no: No such file or directory (os error 2)");
        put(&path, Some(8), &99_u64.to_le_bytes());
        assert_eq!(message(&path), "DIR/model.bin: layout version 99, this build knows version 2");
        put(&path, Some(0), &[0; 8]);
        assert_eq!(message(&path), "DIR/model.bin: not a file of the machine model: it starts with 0x0");
        File::create(&path).and_then(|file| file.set_len(10)).expect("it is writable");
        assert!(message(&path).starts_with("DIR/model.bin: 10 bytes are too few for the machine model's file"));
    }
}
