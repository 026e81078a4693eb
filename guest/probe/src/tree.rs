//! What the probe wants to know from its device tree.
//
// UNSAFETY: the tree is read where the boot protocol put it.
#![expect(unsafe_code)]

use dtoolkit::{
    Node as _, Property as _,
    fdt::{Fdt, FdtNode},
};

/// The machine as the tree describes it.
pub struct Machine {
    /// The command line.
    pub bootargs: &'static str,
    /// Harts.
    pub harts: u64,
    /// First byte of RAM.
    pub ram_start: u64,
    /// Bytes of RAM.
    pub ram_bytes: u64,
    /// Whether there is an IMSIC at the usual address.
    pub has_imsic: bool,
    /// What its harts can do.
    pub isa: Isa,
    /// Whether it is a VM of Mirrorball.
    pub is_mirrorball: bool,
    /// Where the tree itself lies: first byte and length.
    tree: (u64, u64),
}

/// What the harts can do.
#[derive(Clone, Copy, Default)]
pub struct Isa {
    /// D: double-precision floating point.
    pub has_double: bool,
    /// V: vectors.
    pub has_vector: bool,
    /// Zicboz: `cbo.zero`.
    pub has_cbo_zero: bool,
}

impl Isa {
    /// Reads a string as `rv64imafdcv_zicboz_zba`.
    fn parse(text: &str) -> Self {
        let mut parts = text.split('_');
        let letters = parts.next().and_then(|base| base.get(4..)).unwrap_or("");
        Self {
            has_double: letters.contains(['d', 'g']),
            has_vector: letters.contains('v'),
            has_cbo_zero: parts.any(|part| part == "zicboz"),
        }
    }
}

impl Machine {
    /// Reads the tree at `at`.
    pub fn read(at: u64) -> Result<Self, &'static str> {
        // SAFETY: the boot protocol: a1 is the address of a flattened device tree, whose header tells its size; the
        // probe never writes there.
        let header = unsafe { core::slice::from_raw_parts(at as *const u8, 8) };
        let size = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
        // SAFETY: as above.
        let blob = unsafe { core::slice::from_raw_parts(at as *const u8, size) };
        let tree = Fdt::new(blob).map_err(|_| "not a device tree")?;
        let mut machine = Self {
            bootargs: "",
            harts: 0,
            ram_start: 0,
            ram_bytes: 0,
            has_imsic: false,
            isa: Isa::default(),
            is_mirrorball: crate::sbi::is_mirrorball(),
            tree: (at, size as u64),
        };
        machine.walk(&tree)?;
        Ok(machine)
    }

    /// Whether any of the `bytes` from `at` on belongs to the tree.
    pub const fn is_tree(&self, at: u64, bytes: u64) -> bool {
        at < self.tree.0 + self.tree.1 && self.tree.0 < at + bytes
    }

    fn walk(&mut self, tree: &Fdt<'static>) -> Result<(), &'static str> {
        for node in tree.root().children() {
            let name = node.name_without_address();
            if name == "chosen" {
                self.bootargs = text(&node, "bootargs").unwrap_or("");
            } else if name == "memory" {
                let reg = bytes(&node, "reg").ok_or("memory without reg")?;
                self.ram_start = be64(reg, 0).ok_or("short reg")?;
                self.ram_bytes = be64(reg, 8).ok_or("short reg")?;
            } else if name == "cpus" {
                for cpu in node.children().filter(|child| child.name_without_address() == "cpu") {
                    self.harts += 1;
                    self.isa = text(&cpu, "riscv,isa").map(Isa::parse).unwrap_or_default();
                }
            } else if name == "soc" {
                self.has_imsic = node
                    .children()
                    .any(|child| child.name() == "interrupt-controller@28000000" || child.name() == "imsics@28000000");
            }
        }
        Ok(())
    }
}

fn bytes(node: &FdtNode<'static>, name: &str) -> Option<&'static [u8]> {
    node.properties()
        .find(|property| property.name() == name)
        .and_then(|property| property.value_as::<&'static [u8]>().ok())
}

fn text(node: &FdtNode<'static>, name: &str) -> Option<&'static str> {
    core::str::from_utf8(bytes(node, name)?.strip_suffix(b"\0")?).ok()
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}
