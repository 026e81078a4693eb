//! Disks in the model's time: a server for each, which the emulator is a client of.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use config::{DiskPlan, Hardware};
use disk_model::Disk;
use disk_server::{DiskServer, Image, MachineClock, ServerError};
use model_file::{Gate, Header, at};

use crate::emulator::Wiring;

/// The machine's clock through the file that the model shares, and one gate of it.
#[derive(Debug)]
struct GateClock {
    file: File,
    gate: u64,
}

impl GateClock {
    fn word(&self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store(&self, offset: u64, word: u64) -> io::Result<()> {
        self.file.write_all_at(&word.to_le_bytes(), self.gate + offset)
    }
}

impl MachineClock for GateClock {
    fn now_ps(&self) -> io::Result<u64> {
        self.word(at::NOW)
    }

    fn doorbells(&self) -> io::Result<(u64, u64)> {
        // The number first: its time was written before it, and a later time is that of a later doorbell.
        let count = self.word(at::DOORBELLS)?;
        Ok((count, self.word(at::DOORBELL_PS)?))
    }

    fn acknowledge(&self, doorbells: u64) -> io::Result<()> {
        self.store(Gate::ACKNOWLEDGED, doorbells)
    }

    fn hold(&self, limit_ps: Option<u64>) -> io::Result<()> {
        self.store(Gate::LIMIT, limit_ps.unwrap_or(Gate::OPEN))
    }

    fn attach(&self, is_attached: bool) -> io::Result<()> {
        self.store(Gate::ATTACHED, is_attached.into())
    }
}

/// Starts a server for each disk with a model. What one says at its end goes to `log`.
pub fn serve(
    hardware: &Hardware,
    wiring: &Wiring,
    shared: &Path,
    header: &Header,
    log: &Path,
) -> Result<Vec<DiskServer>, ServerError> {
    let modelled = hardware.disks.iter().filter_map(|disk| Some((disk, disk.model?)));
    let mut servers = Vec::new();
    for (number, (disk, model)) in (0..).zip(modelled) {
        let path = wiring.disk_file(disk);
        let image = Image::open(&path, disk.read_only);
        let image = image.map_err(|source| ServerError::Image { path: path.clone(), source })?;
        let timing = Disk::new(model.preset, image.sectors(), model.scale);
        let timing = timing.map_err(|source| ServerError::Model { path: path.clone(), source })?;
        let clock = clock(shared, header, number).map_err(|source| ServerError::Image { path, source })?;
        let said = ender(disk, log);
        servers.push(DiskServer::start(&wiring.disk_socket(disk), image, timing, clock, said)?);
    }
    let told = OpenOptions::new().write(true).open(shared);
    let told = told.and_then(|file| file.write_all_at(&(servers.len() as u64).to_le_bytes(), at::GATES));
    told.map_err(|source| ServerError::Image { path: shared.to_owned(), source })?;
    Ok(servers)
}

fn clock(shared: &Path, header: &Header, number: u64) -> io::Result<GateClock> {
    let file = OpenOptions::new().read(true).write(true).open(shared)?;
    let gate = header.gate_at(number).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("at most {} disks can have a model", Gate::COUNT))
    })?;
    Ok(GateClock { file, gate })
}

fn ender(disk: &DiskPlan, log: &Path) -> impl FnOnce(io::Result<()>) + Send + 'static {
    let (name, log) = (disk.name.clone(), log.to_owned());
    move |end| {
        if let Err(why) = end {
            // There is nobody else to be told.
            let file = OpenOptions::new().create(true).append(true).open(log);
            let _ = file.and_then(|mut file| writeln!(file, "disk {name}: {why}"));
        }
    }
}
