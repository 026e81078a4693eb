//! Each virtio device over a hostile queue.

use addr::{BASE_PAGE, GuestPhysAddr};
use device::{GuestMemory, IrqLine};
use virtio::balloon::{Balloon, BalloonBackend, Release};
use virtio::block::{Block, BlockBackend, BlockKind, BlockRequest, BlockStatus, BlockTag, Outcome};
use virtio::console::{Console, ConsoleBackend, PortConfig};
use virtio::net::{Net, NetBackend, NetConfig, NetHeader, Transmit, TransmitFrame};
use virtio::rng::{EntropySource, Rng};
use virtio::testing::RAM_BASE;
use virtio::{Trigger, VirtioMmio, VirtioModel};

use super::queue::{RAM, drive};

/// A host that does now one thing and now another.
struct Fickle(u8);

impl Fickle {
    fn flip(&mut self) -> bool {
        self.0 = self.0.wrapping_mul(5).wrapping_add(3);
        self.0 & 4 != 0
    }
}

const SECTORS: u64 = 1 << 20;

struct Disk {
    fickle: Fickle,
    /// Requests under way.
    pending: Vec<BlockTag>,
}

impl BlockBackend for Disk {
    fn capacity_sectors(&self) -> u64 {
        SECTORS
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn can_discard(&self) -> bool {
        true
    }
    fn id(&self) -> [u8; 20] {
        [b'x'; 20]
    }
    fn submit(&mut self, tag: BlockTag, request: BlockRequest<'_>, memory: &dyn GuestMemory) -> Outcome {
        let bytes: u64 = request.segments.iter().map(|segment| u64::from(segment.len)).sum();
        for segment in request.segments {
            assert!(segment.len > 0 && memory.contains(segment.addr, u64::from(segment.len)), "a buffer is outside");
        }
        let has_data = matches!(request.kind, BlockKind::Read | BlockKind::Write);
        assert_eq!(bytes, if has_data { request.sectors * 512 } else { 0 });
        assert!(request.sector + request.sectors <= SECTORS, "behind the disk's end");
        assert_eq!(request.sectors == 0, request.kind == BlockKind::Flush);
        assert!(!self.pending.contains(&tag), "a tag is used twice");
        if self.fickle.flip() {
            self.pending.push(tag);
            return Outcome::Pending;
        }
        Outcome::Done(BlockStatus::Ok)
    }
    fn cancel_all(&mut self) {
        self.pending.clear();
    }
}

/// The first byte decides how the guest is interrupted.
fn device<M: VirtioModel>(bytes: &[u8], model: M) -> VirtioMmio<M> {
    let is_edge = bytes.first().is_none_or(|byte| byte & 1 == 0);
    VirtioMmio::new(model, IrqLine(1), if is_edge { Trigger::Edge } else { Trigger::Level })
}

fn fickle(bytes: &[u8]) -> Fickle {
    Fickle(bytes.first().copied().unwrap_or_default())
}

/// The disk.
pub fn block(bytes: &[u8]) {
    let disk = Disk { fickle: fickle(bytes), pending: Vec::new() };
    drive(bytes, device(bytes, Block::new(disk)), |device, env, input| {
        let raw = input.u32();
        let tag = match device.model().backend().pending.get(usize::from(input.byte())) {
            Some(tag) => *tag,
            None => BlockTag::from_raw(raw.into()),
        };
        device.model_mut().backend_mut().pending.retain(|pending| *pending != tag);
        let _ =
            device.complete(tag, input.pick(&[BlockStatus::Ok, BlockStatus::IoError, BlockStatus::Unsupported]), env);
        let _ = device.poll(env);
    });
}

impl NetBackend for Fickle {
    fn transmit(&mut self, header: &NetHeader, frame: &TransmitFrame<'_>) -> Transmit {
        let mut bytes = vec![0; frame.len()];
        assert_eq!(frame.copy_to(&mut bytes), Ok(frame.len()));
        if let Some(partial) = header.checksum {
            let end = usize::from(partial.start) + usize::from(partial.offset) + 2;
            assert!(end <= bytes.len(), "a checksum behind the frame");
        }
        if self.flip() { Transmit::Busy } else { Transmit::Taken }
    }
}

/// The network card.
pub fn net(bytes: &[u8]) {
    let card = Net::new(fickle(bytes), NetConfig { mac: [2; 6], mtu: 1500 });
    drive(bytes, device(bytes, card), |device, env, input| {
        let mut raw = [0; virtio::offload::NET_HEADER_BYTES];
        let taken = input.bytes(raw.len());
        raw[..taken.len()].copy_from_slice(taken);
        let mut frame = vec![0; usize::from(input.u16())];
        let head = input.bytes(frame.len().min(80));
        frame[..head.len()].copy_from_slice(head);
        if let Ok(header) = NetHeader::decode(&raw, frame.len() as u32) {
            let _ = device.receive(&header, &frame, env);
        }
        device.set_link(input.byte() > 16, env);
        let _ = device.kick(u16::from(input.below(4)), env);
        let _ = device.poll(env);
    });
}

impl ConsoleBackend for Fickle {
    fn output(&mut self, _port: u32, data: &[u8]) -> usize {
        if self.flip() { data.len() / 2 } else { data.len() }
    }
}

/// The console, with a named port.
pub fn console(bytes: &[u8]) {
    let ports = [
        PortConfig { name: None, is_console: true, is_open: true },
        PortConfig { name: Some("stream"), is_console: false, is_open: true },
    ];
    drive(bytes, device(bytes, Console::new(fickle(bytes), &ports)), |device, env, input| {
        let port = u32::from(input.below(4));
        let count = usize::from(input.byte());
        let sent = input.bytes(count);
        assert!(device.input(port, sent, env).unwrap_or_default() <= sent.len());
        let _ = device.set_host_open(port, input.flag(), env);
        let _ = device.kick(u16::from(input.below(8)), env);
        let _ = device.poll(env);
    });
}

impl BalloonBackend for Fickle {
    fn release(&mut self, start: GuestPhysAddr, len: u64) -> Release {
        assert!(start.raw() >= RAM_BASE && start.raw() + len <= RAM_BASE + RAM as u64, "pages outside");
        assert!(start.raw().is_multiple_of(BASE_PAGE) && len.is_multiple_of(BASE_PAGE) && len > 0);
        let bytes = if self.flip() { len } else { (len / 2).next_multiple_of(BASE_PAGE).min(len) };
        Release { bytes, pages: bytes / BASE_PAGE }
    }
}

/// The balloon.
pub fn balloon(bytes: &[u8]) {
    drive(bytes, device(bytes, Balloon::new(fickle(bytes))), |device, env, input| {
        device.set_target_pages(input.u32(), env);
        let _ = device.poll(env);
    });
}

impl EntropySource for Fickle {
    fn fill(&mut self, buf: &mut [u8]) {
        buf.fill(self.0);
    }
}

/// The entropy device.
pub fn entropy(bytes: &[u8]) {
    drive(bytes, device(bytes, Rng::new(fickle(bytes))), |device, env, _| {
        let _ = device.poll(env);
    });
}
