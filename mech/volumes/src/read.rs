//! Reading: from the uppermost layer that has a block, or from the disk below.

use addr::GuestPhysAddr;
use storage::{BLOCK, GuestCopy, Kind, Request, SECTOR, SECTORS_PER_BLOCK, Status};

use crate::contract::{Backend, Target};
use crate::job::{Job, Stop};
use crate::layers::Source;
use crate::store::Store;

/// Looks into layers that count as one block.
const LOOKS_PER_BLOCK: u64 = 32;

impl Store {
    /// Starts to read as much as lies in a row; returns the sectors.
    pub(crate) fn read_part(
        &mut self,
        id: u64,
        job: &mut Job,
        guest: &dyn GuestCopy,
        backend: &mut dyn Backend,
    ) -> Result<u64, Stop> {
        let mounted = self.mounts.get(job.volume.0).ok_or(Stop::End(Status::IoError))?;
        let all_looks = job.work() * LOOKS_PER_BLOCK;
        let mut looks = all_looks;
        let most = job.left.min(job.work() * SECTORS_PER_BLOCK);
        let (source, count) = self.layers.find_run(mounted.top, job.sector, most, &mut looks);
        job.spend(count.div_ceil(SECTORS_PER_BLOCK).max((all_looks - looks).div_ceil(LOOKS_PER_BLOCK)));
        let data = job.window(count * SECTOR);
        let (to, sector) = match source {
            Source::Base => (Target::Base(job.volume), job.sector),
            Source::Store(sector) => (Target::Store, sector),
            Source::Zero => {
                let is_written = data.iter().all(|(at, len)| write_zeroes(guest, *at, *len));
                return if is_written { Ok(count) } else { Err(Stop::End(Status::IoError)) };
            }
        };
        let request = Request { kind: Kind::Read, sector, sectors: count, segments: &data };
        self.start(id, job, to, request, guest, backend);
        Ok(count)
    }
}

fn write_zeroes(guest: &dyn GuestCopy, at: GuestPhysAddr, len: u32) -> bool {
    static ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];
    let mut done = 0;
    while done < len {
        let Some(to) = at.checked_add(done.into()) else { return false };
        // Page by page, each of which is looked for once. At most a page.
        let part = (len - done).min((BLOCK - to.page_offset()) as u32);
        if guest.write(to, &ZEROES[..part as usize]).is_err() {
            return false;
        }
        done += part;
    }
    true
}
