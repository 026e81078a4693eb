//! Modules: the kernels, initrds and firmware that VMs boot from, out of the boot bundle or uploaded.

use super::promises::Announced;
use crate::machine::{self, heap_reserve, memory};
use addr::BASE_PAGE;
use alloc::{string::String, sync::Arc, vec::Vec};
use control::{ControlError, EventKind, Label, ModuleInfo};
use core::sync::atomic::{AtomicU64, Ordering};
use spin::Mutex;

/// Bytes of one piece of an uploaded module. The heap grows by 2 MiB, so pieces have to be smaller.
const PIECE: usize = 512 << 10;
/// The largest module that is taken.
const MAX_BYTES: u64 = 256 << 20;
/// Modules at a time, bundled ones included: the list of them is part of one answer.
const MAX_MODULES: usize = 256;
/// What uploads may take of the machine's memory: one part of so many.
const SHARE: u64 = 2;

/// Bytes of all pieces: of modules, of uploads under way, and of modules that are forgotten while a VM is loaded from them.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The content of a module.
#[derive(Clone, Debug)]
pub enum Content {
    /// Part of the boot bundle, in machine memory for good.
    Bundled(&'static [u8]),
    /// Uploaded, in pieces.
    Uploaded(Arc<Pieces>),
}

/// An uploaded module, or what has come of one: bytes in pieces of [`PIECE`].
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Vec<u8>>,
    len: u64,
    total: u64,
    /// What has no piece yet.
    announced: Announced,
}

impl Pieces {
    /// Appends bytes, of which no more may come than are missing.
    ///
    /// # Errors
    /// [`ControlError::TooLarge`] or [`ControlError::OutOfMemory`]: nothing was appended.
    pub fn extend(&mut self, mut bytes: &[u8]) -> Result<(), ControlError> {
        self.make_room(bytes.len() as u64)?;
        let mut at = (self.len / PIECE as u64) as usize;
        self.len += bytes.len() as u64;
        while let Some(piece) = self.pieces.get_mut(at)
            && !bytes.is_empty()
        {
            let (now, later) = bytes.split_at(bytes.len().min(piece.capacity() - piece.len()));
            piece.extend_from_slice(now);
            (bytes, at) = (later, at + 1);
        }
        Ok(())
    }

    /// Pieces for so many bytes more.
    fn make_room(&mut self, bytes: u64) -> Result<(), ControlError> {
        let mut room = self.pieces.iter().map(|piece| piece.capacity() as u64).sum::<u64>();
        while room < self.len + bytes {
            // Of a full size but the last one, so that a small module takes little.
            let piece = new_piece((self.total - room).min(PIECE as u64) as usize)?;
            room += piece.capacity() as u64;
            self.announced.have_come(piece.capacity() as u64);
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// How many have still to come.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.total - self.len
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let bytes = self.pieces.iter().map(|piece| piece.capacity() as u64).sum();
        HELD.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Memory for a piece. A machine that has none left keeps what its heap has for itself.
fn new_piece(bytes: usize) -> Result<Vec<u8>, ControlError> {
    let no_memory = || ControlError::OutOfMemory { needed: bytes as u64, free: 0 };
    if heap_reserve::is_short() {
        return Err(no_memory());
    }
    check_total(bytes as u64)?;
    let piece = scarce::room::<u8>(bytes).map_err(|_| no_memory())?;
    HELD.fetch_add(piece.capacity() as u64, Ordering::Relaxed);
    Ok(piece)
}

/// Refuses what would make uploads too many.
fn check_total(more: u64) -> Result<(), ControlError> {
    let (value, max) = (HELD.load(Ordering::Relaxed) + more, machine_bytes() / SHARE);
    if value > max {
        return Err(ControlError::TooLarge { what: "bytes of all uploaded modules".into(), value, max });
    }
    Ok(())
}

fn machine_bytes() -> u64 {
    let pages = |node| memory::frames().counts(node).total();
    machine::description().nodes.ids().map(pages).sum::<u64>() * BASE_PAGE
}

impl Content {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bundled(bytes) => bytes.len() as u64,
            Self::Uploaded(pieces) => pieces.len(),
        }
    }

    /// A number that no other content has while this one is kept.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.pieces().next().map_or(0, |piece| piece.as_ptr() as u64)
    }

    /// The bytes from `offset` on, as many as lie together; none behind the end.
    #[must_use]
    pub fn rest_of_piece(&self, offset: u64) -> &[u8] {
        let at = offset as usize;
        let (piece, at) = match self {
            Self::Bundled(bytes) => (Some(*bytes), at),
            // All pieces but the last are full.
            Self::Uploaded(all) => (all.pieces.get(at / PIECE).map(Vec::as_slice), at % PIECE),
        };
        piece.and_then(|piece| piece.get(at..)).unwrap_or_default()
    }

    /// The bytes in order, in pieces.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (bundled, uploaded) = match self {
            Self::Bundled(bytes) => (Some(*bytes), None),
            Self::Uploaded(pieces) => (None, Some(pieces)),
        };
        bundled.into_iter().chain(uploaded.into_iter().flat_map(|all| all.pieces.iter().map(Vec::as_slice)))
    }
}

static MODULES: Mutex<Vec<(Label, Content)>> = Mutex::new(Vec::new());

/// Adds the boot bundle's modules.
pub fn adopt(bundled: impl IntoIterator<Item = (String, &'static [u8])>) {
    let mut modules = MODULES.lock();
    for (name, bytes) in bundled {
        match Label::new(name.as_str()) {
            Ok(label) => modules.push((label, Content::Bundled(bytes))),
            Err(why) => log::warn!("boot bundle: {name:?}: {why}, left out"),
        }
    }
}

/// Finds a module.
///
/// # Errors
/// [`ControlError::NoSuchModule`].
pub fn find(name: &Label) -> Result<Content, ControlError> {
    let modules = MODULES.lock();
    let found = modules.iter().find(|(known, _)| known == name).map(|(_, content)| content.clone());
    found.ok_or_else(|| ControlError::NoSuchModule { name: name.clone() })
}

/// Begins the upload of a module of `bytes` bytes, if one of that name and size may be had.
///
/// # Errors
/// [`ControlError::ModuleExists`], [`ControlError::TooLarge`], [`ControlError::Promised`].
pub fn begin(name: &Label, bytes: u64) -> Result<Pieces, ControlError> {
    if bytes == 0 || bytes > MAX_BYTES {
        return Err(ControlError::TooLarge { what: "module".into(), value: bytes, max: MAX_BYTES });
    }
    check_new(&MODULES.lock(), name)?;
    // To be told so at once is better than after half of it; others may be faster all the same.
    check_total(bytes)?;
    let announced = Announced::new(bytes)?;
    Ok(Pieces { pieces: Vec::new(), len: 0, total: bytes, announced })
}

fn check_new(modules: &[(Label, Content)], name: &Label) -> Result<(), ControlError> {
    if modules.iter().any(|(known, _)| known == name) {
        return Err(ControlError::ModuleExists { name: name.clone() });
    }
    if modules.len() >= MAX_MODULES {
        let value = modules.len() as u64 + 1;
        return Err(ControlError::TooLarge { what: "number of modules".into(), value, max: MAX_MODULES as u64 });
    }
    Ok(())
}

/// Adds an uploaded module.
///
/// # Errors
/// [`ControlError::ModuleExists`] or [`ControlError::TooLarge`] when somebody was faster.
pub fn store(name: Label, pieces: Pieces) -> Result<(), ControlError> {
    let bytes = pieces.len();
    let mut modules = MODULES.lock();
    check_new(&modules, &name)?;
    modules.push((name.clone(), Content::Uploaded(Arc::new(pieces))));
    drop(modules);
    crate::trace::record(None, EventKind::ModuleStored { name, bytes });
    Ok(())
}

/// Forgets a module.
///
/// # Errors
/// [`ControlError::NoSuchModule`].
pub fn remove(name: &Label) -> Result<(), ControlError> {
    let mut modules = MODULES.lock();
    let at = modules.iter().position(|(known, _)| known == name);
    let at = at.ok_or_else(|| ControlError::NoSuchModule { name: name.clone() })?;
    let forgotten = modules.swap_remove(at);
    drop(modules);
    // Many pieces may go back to the heap.
    drop(forgotten);
    Ok(())
}

/// All modules.
#[must_use]
pub fn list() -> Vec<ModuleInfo> {
    let modules = MODULES.lock();
    modules.iter().map(|(name, content)| ModuleInfo { name: name.clone(), bytes: content.len() }).collect()
}

/// Bytes of all modules.
#[must_use]
pub fn bytes() -> u64 {
    MODULES.lock().iter().map(|(_, content)| content.len()).sum()
}
