#!/bin/sh
# First process of a workload guest. The kernel command line says what to do, as environment variables here:
#   workload=NAME    a script /loads/NAME or, where there is none, one of the workloads of program `load`
#   size=small|full  how much (small)
#   threads=N        how many threads, processes or clients (as many as there are harts)
#   unchecked=1      no known result yet: print it and do not judge it (that is how the known ones are made)
# The measured part lies between two marks. The last line is `WORKLOAD done name=... result=...`, or `WORKLOAD failed ...`;
# then the guest powers off.
export PATH=/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /tmp /run
mount -t tmpfs -o mode=1777 shm /dev/shm
ln -sf /proc/self/fd /dev/fd
ip link set lo up
hostname guest
: "${workload:=compute}" "${size:=small}" "${threads:=$(nproc)}"
export workload size threads

end() {
    echo "WORKLOAD $*"
    # Waits until the console has sent it: the end of the machine does not.
    stty sane
    poweroff -f
}
fail() {
    # The last lines of what it said, for whoever must find out.
    tail -n 30 /tmp/log 2>/dev/null
    end "failed name=$workload size=$size threads=$threads reason=$*"
}

case $size in small | full) ;; *) fail "size=$size is neither small nor full" ;; esac
case $threads in '' | 0 | *[!0-9]*) fail "threads=$threads is not a number of threads" ;; esac

script=/loads/$workload
if [ -x "$script" ]; then
    "$script" prepare >/tmp/log 2>&1 || fail "it cannot be prepared"
    set -- "$script" run
else
    set -- load "$workload" "$size" "$threads"
fi
# What the kernel and the preparation still have to do would count for the workload.
sync
sleep 1
echo "WORKLOAD begins name=$workload size=$size threads=$threads"
if [ -x /bin/load ]; then
    load measure "$@" >/tmp/log 2>&1 || fail "it ended with an error"
else
    "$@" >/tmp/log 2>&1 || fail "it ended with an error"
fi
if [ -x "$script" ]; then
    result=$("$script" result 2>>/tmp/log) || fail "it has no result"
    expected=$(cat "/loads/$workload.$size.expected" 2>/dev/null)
    if [ -z "$unchecked" ] && [ "$result" != "$expected" ]; then
        fail "the result is $result, not ${expected:-known}"
    fi
else
    result=$(sed -n 's/^result=//p' /tmp/log)
    [ -n "$result" ] || fail "it printed no result"
fi
sed -n '/^part /p' /tmp/log
time=$(sed -n 's/^measured //p' /tmp/log)
end "done name=$workload size=$size threads=$threads result=$result $time"
