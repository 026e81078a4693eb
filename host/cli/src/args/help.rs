//! The longer texts of `--help`.

pub const ABOUT: &str = "\
Runs emulated NUMA machines under the Mirrorball monitor, watches them and manages their virtual machines.

Mirrorball is a bare-metal virtual machine monitor for RISC-V with the hypervisor extension. `mirrorball run` boots \
it on a machine that QEMU emulates, described by a TOML file with nodes, disks, subnets and VMs. All other commands \
talk to a machine that runs.";

pub const OVERVIEW: &str = "\
Examples:
  mirrorball run examples/hello.toml        boot a machine and watch it
  mirrorball ls                             what runs
  mirrorball console debian                 its console; Ctrl-] detaches
  mirrorball exec debian -- uname -a        run a command in it
  mirrorball COMMAND --help                 more about a command

Exit status: 0 success, 1 failure, 2 wrong usage or description; `exec` passes on the status of its command, and has \
124 to 127 of its own.";

pub const OVERVIEW_LONG: &str = "\
Examples:
  mirrorball check examples/demo.toml       is the description right?
  mirrorball run examples/hello.toml        boot a machine and watch it
  mirrorball run --detach examples/demo.toml
  mirrorball ls                             what runs
  mirrorball console debian                 its console; Ctrl-] detaches
  mirrorball exec debian -- uname -a        run a command in it
  mirrorball top                            harts, VMs, vCPUs, exits and memory, live
  mirrorball stats --json | jq .vms         all counters, for programs
  mirrorball events --follow                what the monitor does and why
  mirrorball shutdown                       power off

Exit status:
  0  success
  1  failure; one line on standard error says what is wrong and what to do
  2  wrong usage, or a machine or VM file with errors
  `exec` ends with the status of its command (128 and its number if a signal ended it), or with one of its own:
  124  the command still runs after --timeout; it goes on in the VM
  125  mirrorball itself failed, or was used wrongly
  126  the command cannot be run
  127  the VM has no such command

Environment:
  MIRRORBALL_MACHINE      the machine meant, as --machine
  MIRRORBALL_MONITOR      the monitor's image, as `run --monitor`
  MIRRORBALL_CACHE        where `cache:` paths of machine files lead
  MIRRORBALL_RUNTIME_DIR  where running machines are found
  NO_COLOR                no colour, if set and not empty";

pub const RUN: &str = "\
On a terminal the live view of `top` comes up, with the machine's own log; q asks whether to power the machine off or \
to leave it running. Without a terminal, or with --plain, progress is printed line by line until the machine ends; \
an interrupt powers it off.

With --restricted the machine file may name files of its own folder and of the cache, write to those of its folder, \
and nothing else: no other emulator, monitor or arguments, no way into this host's network.

Examples:
  mirrorball run examples/hello.toml
  mirrorball run --detach examples/demo.toml && mirrorball top
  mirrorball run --plain examples/plic.toml | tee run.log";

pub const CHECK: &str = "\
Every problem is printed with file, line, key, what is wrong and what would be right, but those that only follow from \
another one. A file that is no TOML is told line by line, and looked at no further. Exit status 2 if there is an error; warnings \
alone are no error.

What a machine file asks of this host is told as well: one from somebody else may run programs, open files and lead to \
the network. `run --restricted` refuses all of that, and --restricted here says why.

Examples:
  mirrorball check examples/demo.toml
  mirrorball check --no-files examples/demo.toml    on a machine without the images";

pub const LS: &str = "\
RESIDENT is the machine memory behind a VM, with the monitor's own bookkeeping for it.

Examples:
  mirrorball ls
  mirrorball ls --json | jq -r '.machines[].vms[] | select(.state == \"running\") | .name'";

pub const CELLS: &str = "\
A machine has one cell unless its file says otherwise. EPOCH counts the cells lost so far; of a lost cell it is the first \
without it. docs/cells.md has more.

Examples:
  mirrorball cells
  mirrorball cells --json | jq -r '.cells[] | select(.state == \"lost\") | .name'";

pub const TOP: &str = "\
Keys:
  1-7, Tab       overview, vCPUs, exits, memory, places, events, log
  Up, Down, j, k select a VM, or scroll
  Enter          console of the selected VM (Ctrl-] comes back)
  s, r           sort by the next column, reverse
  +, -           look more or less often
  ?              help        q  quit";

pub const STATS: &str = "\
Counters count since boot, or since the VM's creation. With --rates the machine is looked at twice, and the second \
look carries rates over the time between. A hart has its interrupts off from a guest's exit, or the end \
of its sleep, to the next entry or sleep; TIMES INTERRUPTS OFF counts that, and the columns behind say how long 99.9 % of these \
times were at most, how long the longest was, and what it was for.

Examples:
  mirrorball stats
  mirrorball stats --rates 1s --json | jq '.harts[] | {index, load}'
  mirrorball stats web";

pub const EVENTS: &str = "\
Examples:
  mirrorball events -n 20
  mirrorball events --follow --vm web
  mirrorball events --json | jq 'select(.event == \"vm-stopped\")'";

pub const TRACE: &str = "\
Every vCPU keeps its latest exits, also when its VM has stopped: what a guest was doing when it failed. \
Machine files switch it off with `trace = false` in [options].

Examples:
  mirrorball trace web --vcpu 0 -n 10
  mirrorball trace web --json | jq '.[].exits[-1]'";

pub const MODEL: &str = "\
For machines whose file has a section [model]. Times are the machine's own. Misses are those of each node's harts on \
memory of their own node and of others; pages are those that other nodes miss on most.

Examples:
  mirrorball model
  mirrorball model off
  mirrorball model --json | jq '.nodes[] | {id, local_misses, remote_misses}'";

pub const CRASH: &str = "\
A monitor that panics writes a block of lines to its machine's log: the message, and of each hart its registers, the return \
addresses on its stack, the latest exits of its vCPU and its latest events. The stack is searched, not unwound: calls that \
returned long ago may be among them.

Examples:
  mirrorball crash                          the latest
  mirrorball -m demo crash                  of this machine, running again or not
  mirrorball crash uart.log --elf monitor   of a board";

pub const INJECT: &str = "\
For machines whose file says firmware = \"faults\" in [machine]. The firmware stops harts and closes memory for all \
survivors, then interrupts them; docs/abi/faults.md has the details. Times are the machine's own.

Examples:
  mirrorball inject node-power 2
  mirrorball inject router 2,3 --at 30s
  mirrorball inject link 0,1 --after-instructions 500000000 --hart 0
  mirrorball inject page 0x90000000
  mirrorball inject --list --json | jq '.faults[-1]'";

pub const CONSOLE: &str = "\
Output that the monitor has kept is printed first. On a terminal, keys go to the guest as they are, and the escape \
key (Ctrl-] unless --escape says otherwise) detaches; the VM goes on. Otherwise standard input is sent to the guest, \
and output is copied until the VM stops, --until is seen, or --timeout is over.

Examples:
  mirrorball console web
  mirrorball console web --dump > boot.log
  echo 'uname -a' | mirrorball console web --no-scrollback --until Linux --timeout 10s";

pub const EXEC: &str = "\
The VM needs qemu-guest-agent, on the port org.qemu.guest_agent.0 that every VM has unless its file says otherwise. \
Output comes as the command prints it. \
The exit status is the command's own, 128 and its number if a signal ended it. 127: the VM has no such command. 126: it \
cannot be run. 125: mirrorball itself failed, or was used wrongly. 124: the command still runs after --timeout; it goes on.

Examples:
  mirrorball exec web -- uname -a
  tar c site | mirrorball exec -i web -- tar x -C /srv
  mirrorball exec web -- 'dmesg | tail -n 3'";

pub const CREATE: &str = "\
The files that the VM boots from are uploaded first. It starts unless its file says `autostart = false`.

Examples:
  mirrorball create extra.toml
  mirrorball create extra.toml --name extra-2 --no-start";

pub const SET: &str = "\
Keys and values are those of VM files. The VM need not stop: vCPUs that wait for a hart have the new weight at once. All \
settings are made or, if one is refused, none. They last until the VM is destroyed, over resets and starts; files stay \
as they are.

Examples:
  mirrorball set web weight=200
  mirrorball set batch weight=50 gang=no";

pub const STOP: &str = "\
The guest agent is asked for an orderly shutdown. A guest without an agent, or one that hangs, can only be killed: \
`mirrorball kill VM`.";

pub const SNAPSHOT: &str = "\
The disk must have an overlay (`overlay = ...` in its description). The VM goes on; the snapshot is what its disk showed \
between two writes, as after a power failure. A new VM's disk begins as it with `snapshot = \"NAME\"`.

Examples:
  mirrorball snapshot debian root golden
  mirrorball volumes";

pub const VOLUMES: &str = "\
A store is a disk or partition that descriptions name as `overlay`. A VM's disk there is the volume VM/DISK; it stays when \
the VM is destroyed, and a VM of that name finds it again.

Examples:
  mirrorball volumes
  mirrorball volumes --remove debian-2/root
  mirrorball volumes --remove golden --store data/overlays";

pub const PUT: &str = "\
Examples:
  mirrorball put Image --name kernel-next
  mirrorball put initrd.cpio --replace";

pub const DEMO: &str = "\
Boots the machine, waits for the guest agents, runs the command in all VMs at once, and prints what each VM and the \
monitor took. Exit status 1 if a command fails or a sum differs.

Example:
  mirrorball demo examples/demo.toml --exec mirrorball-build --reference reference.txt";

pub const BENCH: &str = "\
Each experiment boots machines of its own and measures virtual time or instructions, never host time, so it may run \
beside other work. The report gives every figure with its target, what the paper and today's peer reach, and what it is \
made of; JSON, table and charts (SVG, PNG) also go to a folder.

Each run is stored in the cache as soon as it ends, under a key of all that it depends on. An experiment that was \
interrupted goes on where it stopped; a result of another monitor, workload, machine or emulator is not used.

Examples:
  mirrorball bench list
  mirrorball bench exits --quick
  mirrorball bench exits --json > exits.json
  mirrorball bench overhead --fresh --out overhead-now
  mirrorball bench report";

pub const SIM: &str = "\
Nothing boots: vCPUs are programs of steps (compute, sleep, wait at a barrier, hold a lock), and the scheduler that decides \
is the crate that the monitor runs. The same file always gives the same result.

Examples:
  mirrorball sim examples/sim/gangs.toml
  mirrorball sim examples/sim/gangs.toml --svg gangs.svg --from-ms 500
  mirrorball sim examples/sim/sim_128.toml --trace sim.json    for ui.perfetto.dev";

pub const COMPLETION: &str = "\
Examples:
  source <(mirrorball completion bash)
  mirrorball completion zsh > ~/.zfunc/_mirrorball
  mirrorball completion fish > ~/.config/fish/completions/mirrorball.fish";

pub const LAUNCH: &str = "\
The image is one of the store (`mirrorball image ls`), or a file, which is taken into the store first: a disk with a GPT, \
an EFI system partition and a boot loader for 64-bit RISC-V, as distributions publish for clouds. It is not changed. The \
VM gets a disk over it, its own keys, a user with sudo and without a password, and a machine of its own, which goes on \
when this command has ended. It stays defined: `start` starts it again, `rm` forgets it.

Nothing of it is open but its SSH port, on 127.0.0.1, and the ports given with --port; it reaches nothing unless \
--network is given.

Exit status, besides 0, 1 and 2:
  3  the image is none, or cannot be booted here
  4  it is cut off or damaged
  5  it is for another architecture
  6  it is encrypted
  7  a port is in use
  8  no room on this host's disk
  9  nobody could log in in time; the VM goes on

Examples:
  mirrorball launch                                  the project's Debian, as VM debian
  mirrorball launch noble.qcow2 --name web --port 8080:80
  mirrorball launch --memory 2G --cpus 4 --disk 20G --network --package git";

pub const SSH: &str = "\
Runs `ssh` with the VM's port, key and host key; its exit status is passed on.

Examples:
  mirrorball ssh debian
  mirrorball ssh debian uname -a";

pub const CP: &str = "\
Examples:
  mirrorball cp notes.txt debian:                    to the user's home
  mirrorball cp -r debian:/var/log logs";

pub const IMAGE: &str = "\
Images are kept in the cache, as raw disks with holes. What is added is looked at first: format, size, partition table, \
boot loader; `launch --help` tells the exit statuses.

Examples:
  mirrorball image add noble.qcow2
  mirrorball image add Fedora.raw --name fedora
  mirrorball image ls";

pub const GDB: &str = "\
gdb's threads are the VM's vCPUs, from 1. All of them stop when one does. A step (`stepi`) runs one vCPU alone, with its \
interrupts kept away. When gdb goes, its breakpoints go, too, and the VM goes on.

Without --listen, Debian's gdb-multiarch is started; install that first.

Examples:
  mirrorball gdb debian --program vmlinux
  mirrorball gdb debian -- -ex 'info threads' -ex 'x/4i $pc'
  mirrorball gdb debian --listen 127.0.0.1:1234";

pub const DUMP: &str = "\
The file is an ELF core: RAM by guest-physical address, the kernel's part of it by virtual address, too, and a thread \
for each vCPU. Pages that are zero are holes in the file.

Examples:
  mirrorball dump debian debian.core
  gdb-multiarch -c debian.core vmlinux";

pub const PERF: &str = "\
Looks at vCPUs that run, a bounded number of times a second, at their program counters and those of their callers as far \
as code keeps frame pointers: Debian's kernel does. Functions of user programs are addresses.

Examples:
  mirrorball perf debian --for 10s
  mirrorball perf debian --flame debian.svg
  mirrorball perf debian --map System.map --folded stacks.txt";

pub const METRICS: &str = "\
The text is in the OpenMetrics format; docs/metrics.md names each metric with its unit. A dashboard for Grafana is in \
share/grafana/mirrorball.json. However many collectors ask, the machine is asked once a second at most.

Examples:
  mirrorball metrics --listen 127.0.0.1:9777
  mirrorball metrics > /var/lib/prometheus/node-exporter/mirrorball.prom";
