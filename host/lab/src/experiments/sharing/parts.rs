//! What a Linux guest says of its own memory: the parts that no other guest can have in common with it.

use super::MIB;
use crate::compare::ratio;
use crate::store::Value;

/// Bytes of Linux' description of a page.
const PAGE_DESCRIPTION: u64 = 64;
const MIB_BYTES: u64 = 1 << 20;

/// Kernel memory of a guest by part, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    slab: u64,
    page_tables: u64,
    stacks: u64,
    per_hart: u64,
    page_array: u64,
    modules: u64,
    bss: u64,
    /// Memory of programs, for the account only.
    programs: u64,
}

impl Parts {
    /// Reads `/proc/meminfo`, `/proc/modules` and `/proc/iomem`, one behind the other, of a guest with so much memory.
    pub fn of(text: &str, memory_bytes: u64) -> Self {
        let mut parts = Self { page_array: memory_bytes / 4096 * PAGE_DESCRIPTION, ..Self::default() };
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                [field, kib, "kB"] => parts.add_field(field, kib.parse::<u64>().unwrap_or(0) * 1024),
                // Name, size, users, who they are, state, address.
                [_, bytes, _, _, "Live", ..] => parts.modules += bytes.parse::<u64>().unwrap_or(0),
                [range, ":", "Kernel", "bss"] => parts.bss = length(range).unwrap_or(0),
                _ => {}
            }
        }
        parts
    }

    fn add_field(&mut self, field: &str, bytes: u64) {
        let part = match field {
            "Slab:" => &mut self.slab,
            "PageTables:" => &mut self.page_tables,
            "KernelStack:" => &mut self.stacks,
            "Percpu:" => &mut self.per_hart,
            "AnonPages:" | "Shmem:" => &mut self.programs,
            _ => return,
        };
        *part += bytes;
    }

    /// All parts with their sum, `private_mib_per_vm`; `image` is what the guest has of its kernel's image for itself, `own`
    /// all machine memory that only this guest has. What is in no part is programs, and memory that is free or unknown.
    pub fn values(&self, image: u64, own: u64) -> Vec<Value> {
        let kernel = [
            ("kernel_image_mib", image + self.bss),
            ("slab_mib", self.slab),
            ("page_tables_mib", self.page_tables),
            ("page_array_mib", self.page_array),
            ("kernel_stacks_mib", self.stacks),
            ("per_hart_mib", self.per_hart),
            ("modules_mib", self.modules),
        ];
        let sum: u64 = kernel.iter().map(|(_, bytes)| bytes).sum();
        let others = [
            ("private_mib_per_vm", sum),
            ("programs_mib", self.programs),
            ("other_own_mib", own.saturating_sub(sum + self.programs)),
        ];
        let value = |(name, bytes): (&str, u64)| Value::new(name, ratio(bytes, MIB_BYTES), MIB, 1);
        others.into_iter().chain(kernel).map(value).collect()
    }
}

/// Bytes of `first-last` in hexadecimal.
fn length(range: &str) -> Option<u64> {
    let (first, last) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    number(last)?.checked_sub(number(first)?)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_account_is_read() {
        let text = "MemTotal:  192312 kB\nAnonPages: 7712 kB\nShmem: 1208 kB\nSlab:      13668 kB\nKernelStack: 960 kB\n\
                    PageTables:  1208 kB\nPercpu: 164 kB\nHugePages_Total:       0\n\
                    ext4 7385088 1 - Live 0xffffffff02000000\ncrc16 12288 1 ext4, Live 0xffffffff01c00000\n\
                    80000000-8fffffff : System RAM\n  80202000-80c76977 : Kernel code\n  81fb9000-8206a337 : Kernel bss\n";
        let parts = Parts::of(text, 256 << 20);
        let wanted = Parts {
            slab: 13668 << 10,
            page_tables: 1208 << 10,
            stacks: 960 << 10,
            per_hart: 164 << 10,
            page_array: 4 << 20,
            modules: 7_385_088 + 12_288,
            bss: 0xb1338,
            programs: (7712 + 1208) << 10,
        };
        assert_eq!(parts, wanted);
        let values = parts.values(1 << 20, 64 << 20);
        let find = |name: &str| values.iter().find(|value| value.name == name).and_then(|value| value.number).unwrap();
        let kernel = [
            "kernel_image_mib",
            "slab_mib",
            "page_tables_mib",
            "page_array_mib",
            "kernel_stacks_mib",
            "per_hart_mib",
            "modules_mib",
        ];
        assert!((kernel.iter().map(|name| find(name)).sum::<f64>() - find("private_mib_per_vm")).abs() < 1e-9);
        assert!(find("other_own_mib") > 20.0);
        assert_eq!(Parts::of("nonsense\n: :\n", 0), Parts::default());
    }
}
