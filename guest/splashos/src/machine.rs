//! What the system wants to know from the VM's device tree.

use dtoolkit::{Node as _, Property as _, fdt::Fdt};

/// Most vCPUs that are used; further ones stay off.
pub const MAX_VCPUS: usize = 64;
/// Most ranges of memory that are used.
const MAX_RANGES: usize = 8;
/// Most bytes of the command line that are kept.
const MAX_LINE: usize = 512;

/// A vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vcpu {
    /// What the SBI calls it.
    pub hart: u64,
    /// Its node, as far as the VM is shown nodes.
    pub node: u32,
}

/// A range of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub start: u64,
    /// The first byte behind it.
    pub end: u64,
    /// Its node.
    pub node: u32,
}

/// The machine as the tree describes it.
#[derive(Debug)]
pub struct Machine {
    vcpus: [Vcpu; MAX_VCPUS],
    vcpu_count: usize,
    ranges: [Range; MAX_RANGES],
    range_count: usize,
    /// Ticks of the clock in a second.
    pub timebase_hz: u64,
    /// Whether vCPUs have interrupt files.
    pub has_imsic: bool,
    /// What the boot loader put into memory besides: first and last byte but one; empty if nothing.
    pub initrd: (u64, u64),
    line: [u8; MAX_LINE],
    line_bytes: usize,
}

impl Machine {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            vcpus: [Vcpu { hart: 0, node: 0 }; MAX_VCPUS],
            vcpu_count: 0,
            ranges: [Range { start: 0, end: 0, node: 0 }; MAX_RANGES],
            range_count: 0,
            timebase_hz: 0,
            has_imsic: false,
            initrd: (0, 0),
            line: [0; MAX_LINE],
            line_bytes: 0,
        }
    }

    /// Reads a flattened tree. The vCPU that SBI calls `boot` becomes the first.
    ///
    /// # Errors
    /// It is no device tree, or describes no machine that a program can run on.
    pub fn read(&mut self, blob: &[u8], boot: u64) -> Result<(), &'static str> {
        let tree = Fdt::new(blob).map_err(|_| "a1 points to no device tree")?;
        for node in tree.root().children() {
            let bytes = |name: &str| bytes_of(&node, name);
            match node.name_without_address() {
                "chosen" => {
                    self.keep_line(bytes("bootargs").unwrap_or_default());
                    let place = |name| bytes(name).and_then(number).unwrap_or(0);
                    self.initrd = (place("linux,initrd-start"), place("linux,initrd-end"));
                }
                "memory" => self.add_memory(bytes("reg").unwrap_or_default(), node_of(bytes("numa-node-id"))),
                "cpus" => {
                    self.timebase_hz = bytes("timebase-frequency").and_then(number).unwrap_or(0);
                    for cpu in node.children().filter(|child| child.name_without_address() == "cpu") {
                        let hart = bytes_of(&cpu, "reg").and_then(number);
                        self.add_vcpu(hart, node_of(bytes_of(&cpu, "numa-node-id")));
                    }
                }
                "soc" => {
                    let is_imsic = |text: &[u8]| text.split(|byte| *byte == 0).any(|word| word == b"riscv,imsics");
                    self.has_imsic = node.children().any(|child| bytes_of(&child, "compatible").is_some_and(is_imsic));
                }
                _ => {}
            }
        }
        let first = self.vcpus().iter().position(|vcpu| vcpu.hart == boot).ok_or("the device tree lacks this vCPU")?;
        self.vcpus.swap(0, first);
        if self.range_count == 0 || self.timebase_hz == 0 {
            return Err("the device tree has no memory or no clock");
        }
        Ok(())
    }

    /// The vCPUs, the one that booted first.
    pub fn vcpus(&self) -> &[Vcpu] {
        self.vcpus.get(..self.vcpu_count).unwrap_or_default()
    }

    /// Memory.
    pub fn ranges(&self) -> &[Range] {
        self.ranges.get(..self.range_count).unwrap_or_default()
    }

    /// The value of word `name=value` on the command line; the last one counts.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let line = core::str::from_utf8(self.line.get(..self.line_bytes)?).ok()?;
        let value = |word: &'_ str| word.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value.len());
        let word = line.split_ascii_whitespace().rfind(|word| value(word).is_some())?;
        Some(&word[name.len() + 1..])
    }

    fn keep_line(&mut self, bytes: &[u8]) {
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        // Cut behind the last word that fits whole.
        let fits = bytes.get(..MAX_LINE).map_or(bytes, |head| {
            head.iter().rposition(|byte| *byte == b' ').map_or(&[] as &[u8], |end| head.get(..end).unwrap_or_default())
        });
        self.line_bytes = fits.len();
        self.line.iter_mut().zip(fits).for_each(|(to, byte)| *to = *byte);
    }

    fn add_vcpu(&mut self, hart: Option<u64>, node: u32) {
        if let (Some(hart), Some(place)) = (hart, self.vcpus.get_mut(self.vcpu_count)) {
            *place = Vcpu { hart, node };
            self.vcpu_count += 1;
        }
    }

    fn add_memory(&mut self, reg: &[u8], node: u32) {
        for pair in reg.chunks_exact(16) {
            let (start, bytes) = pair.split_at(8);
            let (Some(start), Some(bytes)) = (number(start), number(bytes)) else { continue };
            let Some(end) = start.checked_add(bytes) else { continue };
            if let Some(place) = self.ranges.get_mut(self.range_count) {
                *place = Range { start, end, node };
                self.range_count += 1;
            }
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

fn bytes_of<'a>(node: &dtoolkit::fdt::FdtNode<'a>, name: &str) -> Option<&'a [u8]> {
    let property = node.properties().find(|property| property.name() == name)?;
    property.value_as::<&'a [u8]>().ok()
}

/// A big-endian number of one or two cells.
fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|cell| u32::from_be_bytes(cell).into()),
        8 => bytes.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

fn node_of(bytes: Option<&[u8]>) -> u32 {
    bytes.and_then(number).and_then(|node| u32::try_from(node).ok()).unwrap_or(0)
}
