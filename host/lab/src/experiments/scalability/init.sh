#!/bin/sh
# First process of a guest of experiment `scalability`. The kernel command line says what to do, as environment variables here:
#   jobs=N       compile jobs that run at the same time
#   sources=N    sources that each of them compiles (1 to 6)
#   harts=N      harts that must be there
#   vm=N         this VM's number on a subnet with the others, whose files lie with number 1; /share knows how
#   together=1   begin when a line `begin TICKS` on the console says so, by the machine's clock; else as soon as possible
# The measured part lies between two marks. The last line is `WORKLOAD done ... result=...`, or `WORKLOAD failed ...`; then the
# guest powers off.
export PATH=/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /tmp /run
mount -t tmpfs -o mode=1777 shm /dev/shm
ln -sf /proc/self/fd /dev/fd
export jobs sources vm

end() {
    echo "WORKLOAD $*"
    # Waits until the console has sent it: the end of the machine does not.
    stty sane
    poweroff -f
}
fail() {
    # The last lines of what it said, for whoever must find out.
    tail -n 30 /tmp/log 2>/dev/null
    end "failed name=scalability reason=$*"
}
for number in "$jobs" "$sources" "$harts" "${vm:-1}"; do
    case $number in '' | 0 | *[!0-9]*) fail "jobs, sources, harts and vm are numbers, not '$number'" ;; esac
done
# A firmware that could not start all of them says nothing about it.
[ "$(nproc)" = "$harts" ] || fail "of $harts harts $(nproc) are online"
share() {
    [ -z "$vm" ] || /share "$1" >/tmp/log 2>&1 || fail "the shared files: it cannot $1"
}
share open
# Where the jobs work, and what they compile.
place=/tmp from=/usr/src/bzip2
[ -z "$vm" ] || place=/srv/vm$vm from=/srv/bzip2
export place from

load locks >/tmp/log 2>&1 || fail "the kernel's locks are not found"

/pmake prepare >/tmp/log 2>&1 || fail "it cannot be prepared"
share forget
sync
sleep 1
if [ -z "$together" ]; then
    set -- measure
else
    echo "WORKLOAD ready"
    read -r word ticks </dev/console
    [ "$word" = begin ] || fail "the console said '$word $ticks', not when to begin"
    set -- together "$ticks"
fi
load "$@" /pmake run >/tmp/log 2>&1 || fail "it ended with an error"
result=$(/pmake result 2>>/tmp/log) || fail "it has no result"
time=$(sed -n 's/^measured //p' /tmp/log)
share close
end "done name=scalability jobs=$jobs sources=$sources result=$result $time"
