//! Machine and VM descriptions in TOML: read, checked, and turned into what the launcher and the monitor need.
//!
//! # Key types
//! - [`Loader`]: where to look for files; [`Loader::load`] reads a machine, [`Loader::load_vm`] a single VM.
//! - [`ModelPlan`]: the model that the machine runs with, turned into what the model's plugin is told.
//! - [`MachinePlan`]: the emulated hardware, the boot configuration and the files that the boot bundle carries.
//! - [`ConfigError`]: every problem found, each with file, line, key, what is wrong and what would be right.
//!
//! # A machine file (all keys: `docs/machine-files.md`)
//! ```toml
//! name = "pair"
//!
//! [machine]                # all optional: cpu, interrupts, guest_files, distances, icount, firmware, monitor, qemu,
//!                          # qemu_args
//! cpu = "rva23s64"
//!
//! [[node]]                 # one or more
//! harts = 2
//! memory_mib = 2048
//!
//! [[cell]]                 # optional: nodes with a monitor of their own; or [machine] cells = N
//! name = "a"
//! nodes = [0]
//!
//! [[disk]]                 # `model = "hp97560" | "ssd"` and `scale` with [model]; `file`, or `size_mib` for an empty one that goes with the machine
//! name = "debian"
//! file = "cache:debian/root.img"
//!
//! [model]                  # optional: caches, latencies and time of a NUMA machine; without it QEMU as it is
//! preset = "flash"
//!
//! [network]
//! uplink = true
//!
//! [[subnet]]
//! name = "lan"
//! gateway = true
//!
//! [vm_defaults]            # every VM inherits what it does not say itself
//! vcpus = 4
//! memory_mib = 512
//! kernel = "cache:kernel/Image"
//! cmdline = "console=ttyS0 root=LABEL=root hostname={name}"
//!
//! [[vm]]
//! name = "build-{n}"       # build-1 to build-4
//! count = 4
//! nodes = 2                # the guest sees two nodes, with two of its vCPUs each
//! disk = [{ name = "root", source = "debian" }]
//! net = [{ subnet = "lan" }]
//!
//! [[vm]]
//! file = "router.toml"     # the same keys in a file of their own
//! ```
//! Relative paths count from the file that says them; `cache:` stands for the cache directory
//! (`MIRRORBALL_CACHE`, else `mirrorball` in `XDG_CACHE_HOME` or `~/.cache`).
//!
//! # What it refuses
//! Unknown keys (with the nearest known one), values of the wrong type or range, files that are not there or not of
//! the right kind, a CPU that the monitor cannot use, and all that [`control::BootConfig::problems`] finds. It does not guess and does
//! not correct. What a machine file asks of the host beyond reading its own folder and the cache is told ([`MachinePlan::grants`]), and
//! refused for a file that is not trusted ([`Loader::is_restricted`]). It goes on after a problem, with something that stands in, and tells all that is wrong at once; what can only be
//! told once another problem is mended is left out.
//!
//! Tested by unit tests that compare whole messages.
#![forbid(unsafe_code)]

mod cells;
mod check;
mod cpu;
mod image;
mod machine_file;
mod model;
mod model_file;
mod modules;
mod network;
mod paths;
mod plan;
mod problem;
mod program;
mod qcow2;
mod reader;
mod suggest;
mod vm_file;

pub use machine_file::DEFAULT_CPU;
pub use model::{Latency, ModelError, ModelPlan, Preset};
pub use paths::{CACHE_VARIABLE, Loader, cache_dir};
pub use plan::{
    Backing, BackingImage, DiskModel, DiskPlan, Firmware, Forward, Hardware, ImageFormat, MachineInterrupts,
    MachinePlan, ModuleFile, NodePlan, OnPanic, Reach, Uplink, VmPlan,
};
pub use problem::{ConfigError, Grant, Problem, Severity};
pub use program::{Program, ProgramError, elf as elf_program, flat as flat_program};
pub use qcow2::{Qcow2Header, is_qcow2};
