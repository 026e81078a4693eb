#!/bin/busybox sh
# First process of a Mirrorball lab guest: load the drivers of the virtual platform, mount the root disk, hand over.
# Kernel command line: root=/dev/vda (default), rootflags=..., init=..., ro or rw; when there is no root to mount the guest
# powers off, or with mirrorball.rescue opens a shell.
/bin/busybox mkdir -p /dev /proc /sys /run /sysroot
/bin/busybox mount -t devtmpfs -o nosuid,mode=0755 dev /dev
/bin/busybox mount -t proc -o nosuid,noexec,nodev proc /proc
/bin/busybox mount -t sysfs -o nosuid,noexec,nodev sys /sys
/bin/busybox mount -t tmpfs -o nosuid,nodev,mode=0755 run /run

root=/dev/vda flags= init=/sbin/init mode=-r rescue=
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in
        root=*) root=${word#root=} ;;
        rootflags=*) flags="-o ${word#rootflags=}" ;;
        init=*) init=${word#init=} ;;
        rw) mode=-w ;;
        mirrorball.rescue) rescue=yes ;;
    esac
done

give_up() {
    echo "initrd: $1"
    [ -z "$rescue" ] || /bin/busybox setsid -c /bin/busybox sh
    /bin/busybox poweroff -f
}

while read -r module; do
    /bin/busybox insmod "/modules/$module.ko" || echo "initrd: cannot load $module"
done </modules/order

tries=0
while [ ! -b "$root" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
        give_up "no root disk $root after 20 s; block devices: $(/bin/busybox ls /sys/class/block)"
    fi
    /bin/busybox usleep 100000
done
# A disk given whole that has a partition table means its first partition.
if [ -b "${root}1" ]; then
    root=${root}1
fi
# shellcheck disable=SC2086  # flags is empty or two words
/bin/busybox mount -t ext4 $mode $flags "$root" /sysroot || give_up "cannot mount $root"
for dir in dev proc sys run; do
    /bin/busybox mount -o move "/$dir" "/sysroot/$dir"
done
exec /bin/busybox switch_root /sysroot "$init"
