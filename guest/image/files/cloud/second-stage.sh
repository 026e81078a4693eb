#!/bin/bash
# Run once, as the first process, on an emulated machine: lets every package of the cloud image configure itself, then tidies up.
# The last line on the console says whether it worked.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LC_ALL=C.UTF-8
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true
# systemd's own tools see that they are not to talk to a running systemd.
export SYSTEMD_OFFLINE=1 DPKG_MAINTSCRIPT_NO_SERVICES=1

finish() {
    echo "$1"
    rm -f /usr/sbin/policy-rc.d
    sync
    mount -o remount,ro /
    # poweroff(8) is a link to systemctl, which takes this for a chroot and does nothing.
    echo o >/proc/sysrq-trigger
    sleep 60
}

mount -o remount,rw /
mount -t tmpfs tmpfs /tmp
# Package scripts must not start anything.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
# What udev would say: GRUB's configuration names the root file system by its identity.
mkdir -p /dev/disk/by-uuid
uuid=$(blkid -p -s UUID -o value /dev/vda1)
ln -sf ../../vda1 "/dev/disk/by-uuid/$uuid"

# Users and groups come first: other packages' scripts name them.
info=/var/lib/dpkg/info
for script in base-passwd base-files; do
    [ -x "$info/$script.preinst" ] && DPKG_MAINTSCRIPT_PACKAGE=$script "$info/$script.preinst" install
done
dpkg --force-unsafe-io,confold,depends --configure base-passwd base-files || finish "mirrorball-install: failed: base"
dpkg --force-unsafe-io,confold --configure --pending || finish "mirrorball-install: failed: configure"
dpkg --audit
[ -z "$(dpkg --audit)" ] || finish "mirrorball-install: failed: audit"

ldconfig
# The one kernel of this image may be another than the one that runs here.
for release in /usr/lib/modules/*; do
    depmod -a "${release##*/}"
    [ -e "/boot/initrd.img-${release##*/}" ] || update-initramfs -c -k "${release##*/}"
done
mkdir -p /boot/grub
update-grub || finish "mirrorball-install: failed: update-grub"
grep -q "root=UUID=$uuid" /boot/grub/grub.cfg || finish "mirrorball-install: failed: grub.cfg names no root"

systemctl enable systemd-networkd.service systemd-resolved.service ssh.service
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    systemd-firstboot.service systemd-networkd-wait-online.service
# Names are asked of the server that DHCP tells.
ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
# Each VM has keys of its own.
rm -f /etc/ssh/ssh_host_*
# Caches are as new as the programs: no boot has to build them.
/usr/lib/systemd/systemd-update-done
: >/etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*.log
rm -f /var/lib/systemd/random-seed /var/lib/dbus/machine-id
rm -rf /var/lib/cloud/*
echo debian >/etc/hostname
finish "mirrorball-install: done"
