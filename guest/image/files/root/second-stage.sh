#!/bin/bash
# Run once, as the first process, on an emulated machine: lets every package configure itself, then tidies up.
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
depmod -a "$(uname -r)"
# Idle guests are idle: nothing periodic, no login manager without a message bus, no second console.
systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer systemd-tmpfiles-clean.timer systemd-logind.service getty@tty1.service \
    systemd-networkd-wait-online.service systemd-pstore.service systemd-firstboot.service
systemctl enable systemd-networkd.service
# Half of a boot's time went into these: consoles that nobody sees, file systems that nothing uses, state that is kept for a
# next boot of a disk that forgets, and searches for hardware that the virtual platform does not have.
systemctl mask getty-static.service serial-getty@hvc0.service systemd-ask-password-console.path \
    systemd-ask-password-wall.path dev-hugepages.mount dev-mqueue.mount run-lock.mount sys-kernel-config.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount \
    systemd-binfmt.service systemd-random-seed.service systemd-journal-flush.service systemd-machine-id-commit.service \
    systemd-network-generator.service systemd-networkd-persistent-storage.service systemd-modules-load.service \
    systemd-udev-load-credentials.service systemd-tmpfiles-setup-dev-early.service kmod-static-nodes.service
mkdir -p /etc/systemd/system-generators
for generator in debug gpt-auto hibernate-resume rc-local ssh system-update sysv tpm2; do
    ln -sf /dev/null "/etc/systemd/system-generators/systemd-$generator-generator"
done
# Caches are as new as the programs: no boot has to build them.
/usr/lib/systemd/systemd-update-done
: >/etc/machine-id
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/*.log
rm -f /var/lib/systemd/random-seed /var/lib/dbus/machine-id
echo debian >/etc/hostname
finish "mirrorball-install: done"
