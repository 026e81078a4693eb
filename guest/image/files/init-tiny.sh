#!/bin/busybox sh
# First process of the smallest guest: says that user space was reached, then powers off, or does what the kernel
# command line asks: mirrorball.do=sh (a shell on the console), mirrorball.do=halt (stay idle), mirrorball.do=reboot.
/bin/busybox mkdir -p /dev /proc /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
do=poweroff
for word in $(/bin/busybox cat /proc/cmdline); do
    case $word in mirrorball.do=*) do=${word#mirrorball.do=} ;; esac
done
echo "MIRRORBALL-GUEST-UP harts=$(/bin/busybox grep -c ^processor /proc/cpuinfo)"
case $do in
    sh)
        /bin/busybox --install -s /bin
        export PATH=/bin HOME=/ PS1='guest# '
        # A session of its own, so that the shell has job control and Ctrl-C works.
        /bin/busybox setsid -c /bin/busybox sh
        ;;
    halt) while :; do /bin/busybox sleep 3600; done ;;
    reboot) exec /bin/busybox reboot -f ;;
esac
# Waits until the console has sent everything: the end of the machine does not.
/bin/busybox stty sane
exec /bin/busybox poweroff -f
