//! This cell becomes the leader: it takes over the machine's disks, network and control port, whose cell is lost.
//!
//! What the lost cell had asked the devices to do, they may still do to its memory, which nobody uses any more. Each device is reset
//! before it gets work of this cell. Volumes are read from their logs, as after a loss of power.

use crate::{hart::CONTROL_HART, io, machine, trace};
use control::EventKind;
use rv::csr;

/// Takes the devices over. Once in the life of a cell: whoever leads does so until it is lost.
pub fn take_over() {
    let begin = csr::time::read();
    machine::take_over_devices(CONTROL_HART);
    io::init();
    super::take_reads_over();
    let took_ticks = csr::time::read() - begin;
    log::warn!("this cell drives the machine's devices and answers clients now");
    trace::record(None, EventKind::TookOver { took_ticks });
    let _ = machine::agenda::call();
}
