//! The machine's time, as a server sees it.

use std::io;

/// The machine's clock and the server's hold on it. Times are picoseconds.
pub trait MachineClock: Send + 'static {
    /// The machine's time; 0 before it starts.
    ///
    /// # Errors
    /// The clock cannot be read.
    fn now_ps(&self) -> io::Result<u64>;

    /// How often the machine has rung a device's doorbell, and when that was last; 0 times if the model does not say.
    ///
    /// # Errors
    /// The clock cannot be read.
    fn doorbells(&self) -> io::Result<(u64, u64)>;

    /// All requests of the first `doorbells` doorbells were seen: time may jump while the machine is idle.
    ///
    /// # Errors
    /// The clock cannot be written.
    fn acknowledge(&self, doorbells: u64) -> io::Result<()>;

    /// Time may not pass this; `None`: it may pass.
    ///
    /// # Errors
    /// The clock cannot be written.
    fn hold(&self, limit_ps: Option<u64>) -> io::Result<()>;

    /// Whether a server is there that acknowledges doorbells.
    ///
    /// # Errors
    /// The clock cannot be written.
    fn attach(&self, is_attached: bool) -> io::Result<()>;
}
