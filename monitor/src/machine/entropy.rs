//! The machine's entropy: where guests' random numbers come from.
//!
//! The pool is fed at boot with the device tree's `rng-seed`, which firmware and emulators give for this, with what the
//! machine's entropy device gives if there is one, and with the jitter of the boot's own timing, which is worth little.
//! Each VM draws from a fork of its own. Without seed and device, guests are served all the same: they would not be
//! better off without.

use super::devices::DirectPlatform;
use entropy::Pool;
use machine_io::Found;
use rv::{csr, guarded};
use spin::Mutex;
use virtio::rng::EntropySource;

static POOL: Mutex<Pool> = Mutex::new(Pool::new());
/// Readings of the clocks that go into the pool at boot.
const JITTER_SAMPLES: u64 = 64;
/// Seconds that an entropy device has to answer. One that an emulator plays is slow where its host is busy, and only one that
/// is broken delays the boot.
const PATIENCE_S: u64 = 2;

/// Boot: takes the firmware's seed in, who we are of those that it gave it to, and the moment.
pub fn init(seed: &[u8], cell: u64) {
    let mut pool = POOL.lock();
    pool.mix(seed);
    pool.mix(&cell.to_le_bytes());
    for _ in 0..JITTER_SAMPLES {
        // How long the last round took is what there is to know here.
        pool.mix(&csr::time::read().to_le_bytes());
        pool.mix(&guarded::try_read_cycle().unwrap_or_default().to_le_bytes());
    }
}

/// Boot: takes in what an entropy device gives. The bytes it gave.
///
/// # Errors
/// It gave none.
pub fn draw_from(device: Found) -> Result<usize, machine_io::IoError> {
    let deadline = csr::time::read() + PATIENCE_S * super::capabilities().timebase_hz;
    let (bytes, given) = machine_io::read_entropy::<DirectPlatform, _>(device, || csr::time::read() < deadline)?;
    POOL.lock().mix(&bytes[..given]);
    Ok(given)
}

/// A stream for one VM.
#[must_use]
pub fn stream() -> Stream {
    let mut pool = POOL.lock();
    pool.mix(&csr::time::read().to_le_bytes());
    Stream(pool.fork())
}

/// Random numbers for one VM.
#[derive(Debug)]
pub struct Stream(Pool);

impl EntropySource for Stream {
    fn fill(&mut self, buf: &mut [u8]) {
        self.0.fill(buf);
    }
}
