#!/bin/sh
# First process of the KVM host of experiment `sharing`: starts Debian guests all at once, each on a throw-away
# overlay of the same disk, has each do the line in /guest/work, if there is one, and says how much memory the host has free when all
# has settled; then it ends one after the other, and says it again: so a boot, which takes long one level further down, is waited for
# once. KSM is on, which Debian leaves to the owner. Kernel command line:
#   guests=N memory=MIB     how many guests, and the memory of each
#   reporting=on|off        whether guests tell QEMU which pages are free, and these are given back (on)
#   settle=SECONDS          how long guests are left alone after they have come up, before KSM is waited for
export PATH=/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /tmp /run /unpacked
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
: "${guests:=2}" "${memory:=256}" "${reporting:=on}" "${settle:=60}"
end() {
    echo "KVM $*"
    poweroff -f
}
while read -r module; do
    insmod "/modules/$module.ko" || end "failed reason=cannot load $module"
done </modules/order
[ -c /dev/kvm ] || end "failed reason=no /dev/kvm"
# The guest's own initial file system brings the host's driver of the disk, too: they are of one kernel.
(cd /unpacked && cpio -i </guest/initrd 2>/dev/null)
insmod /unpacked/modules/virtio_blk.ko || end "failed reason=cannot load virtio_blk"
tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || end "failed reason=no disk"
    usleep 100000
done
rm -r /unpacked

ksm=/sys/kernel/mm/ksm
echo 1000 >$ksm/pages_to_scan
echo 20 >$ksm/sleep_millisecs
echo 1 >$ksm/use_zero_pages
echo "KVM host kernel=$(uname -r) hugepages=$(sed 's/.*\[\(.*\)\].*/\1/' /sys/kernel/mm/transparent_hugepage/enabled)" \
    "ksm=on reporting=$reporting guests=$guests memory_mib=$memory"

# One level further down a boot takes minutes: the guest's first process is to have more patience than usual, and to say
# how far it is.
patience="systemd.show_status=1 systemd.default_device_timeout_sec=3600 systemd.default_timeout_start_sec=3600"
run_guest() {
    qemu-system-riscv64 -pidfile "/tmp/pid-$1" -nodefaults -display none -no-reboot -M virt,aia=aplic-imsic -accel kvm -cpu host -m "${memory}M" \
        -smp 1 -kernel /guest/Image -initrd /guest/initrd \
        -append "console=ttyS0 root=/dev/vda1 rw quiet systemd.hostname=vm-$1 $patience" -serial stdio -monitor none \
        -drive if=none,id=root,file=/dev/vda,format=raw,snapshot=on -device virtio-blk-device,drive=root \
        -device virtio-balloon-device,free-page-reporting=$reporting -device virtio-rng-device <>"/tmp/keys-$1" 2>&1 | busybox tee "/tmp/console-$1" | sed "s/^/$1: /"
    echo "KVM guest $1 ended"
}
# Two scans of everything after the last change: what KSM can find, it has found.
settled() {
    echo 1 >$ksm/run
    scans=$(($(cat $ksm/full_scans) + 3))
    until [ "$(cat $ksm/full_scans)" -ge $scans ]; do
        sleep 2
    done
    # It takes a good part of a hart.
    echo 0 >$ksm/run
}
say_free() {
    # What a disk holds, too, is not the guests': their own page caches are in their memory.
    sync
    echo 3 >/proc/sys/vm/drop_caches
    echo "KVM free guests=$1 kib=$(sed -n 's/^MemFree: *\([0-9]*\) kB/\1/p' /proc/meminfo)" \
        "ksm_saved_pages=$(cat $ksm/pages_sharing) zero_pages=$(cat $ksm/ksm_zero_pages 2>/dev/null)"
}
say_free 0
# Waits until guest $1 has said $2, which tells that it $3.
wait_for() {
    tries=0
    until grep -q "$2" "/tmp/console-$1" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -ge 6000 ] || grep -q "Kernel panic" "/tmp/console-$1" 2>/dev/null; then
            tail -n 20 "/tmp/console-$1"
            end "failed reason=guest $1 does not get where it $3"
        fi
        sleep 1
    done
    echo "KVM guest $1 $3 after $(cut -d. -f1 /proc/uptime) s"
}
for index in $(seq 1 "$guests"); do
    mkfifo "/tmp/keys-$index"
    run_guest "$index" &
done
for index in $(seq 1 "$guests"); do
    wait_for "$index" "Reached target.*multi-user.target" "is up"
done
if [ -e /guest/work ]; then
    # The console's shell: root is logged in there.
    for index in $(seq 1 "$guests"); do
        wait_for "$index" "root@vm-$index" "can be told what to do"
        # The last few characters wait in the emulated UART for more to come: empty lines bring them.
        (
            cat /guest/work
            for _ in 1 2 3 4 5 6; do
                sleep 5
                echo
            done
        ) >"/tmp/keys-$index" &
    done
    for index in $(seq 1 "$guests"); do
        wait_for "$index" "^worked=[0-9]" "has done its work"
        echo "KVM work guest=$index $(grep "^worked=[0-9]" "/tmp/console-$index")"
    done
fi
sleep "$settle"
settled
left=$guests
while [ "$left" -gt 0 ]; do
    say_free "$left"
    pid=$(cat "/tmp/pid-$left")
    kill -9 "$pid"
    while [ -d "/proc/$pid" ]; do
        sleep 1
    done
    left=$((left - 1))
done
echo "WORKLOAD done"
end "done"
