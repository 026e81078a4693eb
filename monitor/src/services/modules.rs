//! Modules: the kernels, initrds and firmware that VMs boot from, out of the boot bundle or uploaded.

use alloc::{string::String, sync::Arc, vec::Vec};
use control::{ControlError, EventKind, Label, ModuleInfo};
use spin::Mutex;

/// Bytes of one piece of an uploaded module. The heap grows by 2 MiB, so pieces have to be smaller.
const PIECE: usize = 512 << 10;
/// The largest module that is taken.
const MAX_BYTES: u64 = 256 << 20;

/// The content of a module.
#[derive(Clone, Debug)]
pub enum Content {
    /// Part of the boot bundle, in machine memory for good.
    Bundled(&'static [u8]),
    /// Uploaded, in pieces.
    Uploaded(Arc<Pieces>),
}

/// Bytes in pieces of [`PIECE`].
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Vec<u8>>,
    len: u64,
}

impl Pieces {
    /// Appends bytes.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.pieces.last().is_none_or(|piece| piece.len() == PIECE) {
                self.pieces.push(Vec::with_capacity(PIECE));
            }
            if let Some(piece) = self.pieces.last_mut() {
                let (now, later) = bytes.split_at(bytes.len().min(PIECE - piece.len()));
                piece.extend_from_slice(now);
                bytes = later;
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }
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

/// Refuses a module that may not be uploaded, by its name and size.
///
/// # Errors
/// [`ControlError::ModuleExists`], [`ControlError::TooLarge`].
pub fn check_new(name: &Label, bytes: u64) -> Result<(), ControlError> {
    if bytes == 0 || bytes > MAX_BYTES {
        return Err(ControlError::TooLarge { what: "module".into(), value: bytes, max: MAX_BYTES });
    }
    if MODULES.lock().iter().any(|(known, _)| known == name) {
        return Err(ControlError::ModuleExists { name: name.clone() });
    }
    Ok(())
}

/// Adds an uploaded module.
///
/// # Errors
/// [`ControlError::ModuleExists`] when somebody was faster.
pub fn store(name: Label, pieces: Pieces) -> Result<(), ControlError> {
    let bytes = pieces.len();
    check_new(&name, bytes)?;
    MODULES.lock().push((name.clone(), Content::Uploaded(Arc::new(pieces))));
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
    modules.swap_remove(at);
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
