//! The mapped file that monitor and tools read, and ask through.
//
// UNSAFETY: the file is mapped memory that other processes and the guest write as well.
#![expect(unsafe_code)]

use std::fs::OpenOptions;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use model_file::Header;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// The shared file. Whatever others write into it is a wish, never a fact.
pub struct Shared {
    start: NonNull<u8>,
    header: Header,
}

// SAFETY: the mapping is never undone, and is accessed by atomic operations only.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the file, which has its size, and writes the header.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or is too short.
    pub fn open(path: &Path, header: Header) -> Result<Self, String> {
        let failed = |why: String| format!("{}: {why}", path.display());
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| failed(error.to_string()))?;
        let found = file.metadata().map_err(|error| failed(error.to_string()))?.len();
        let wanted = header.file_bytes();
        if found < wanted {
            return Err(failed(format!("{found} bytes are too few for the model's file, {wanted} are needed")));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), wanted as usize, access, MapFlags::SHARED, &file, 0) };
        let start = start.map_err(|error| failed(error.to_string()))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| failed("not mapped".into()))?;
        let shared = Self { start, header };
        for (at, word) in header.encode().as_chunks().0.iter().enumerate().rev() {
            // The magic number comes last: a reader that sees it sees the rest.
            shared.word(at as u64 * 8).store(u64::from_le_bytes(*word), Ordering::Release);
        }
        Ok(shared)
    }

    /// The machine that the file describes.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The word at this offset, which is one of the layout's.
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.header.file_bytes(), "a word of the file");
        // SAFETY: within the mapping and aligned, as the mapping is.
        unsafe { AtomicU64::from_ptr(self.start.add(offset as usize).cast().as_ptr()) }
    }

    /// The page counter at this offset, which is one of the layout's.
    pub fn counter(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.header.file_bytes(), "a counter of the file");
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.add(offset as usize).cast().as_ptr()) }
    }

    /// Writes words from this offset on.
    pub fn write(&self, offset: u64, words: &[u64]) {
        for (at, word) in words.iter().enumerate() {
            self.word(offset + at as u64 * 8).store(*word, Ordering::Relaxed);
        }
    }
}
