#!/bin/sh
# On the NFS disk of a Debian guest, or in folder /nfs of an initial file system: serves a folder, or mounts what another guest
# serves. NFS version 4 alone, which needs no port mapper.
#   nfs attach ADDRESS/BITS      the network device has this address from now on
#   nfs serve FOLDER [rw]        to everybody, read-only if not said otherwise, as the root of the server
#   nfs mount HOST FOLDER [rw]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
load() {
    while read -r module; do
        [ -d "/sys/module/$module" ] || insmod "$here/modules/$module.ko"
    done <"$here/modules/$1"
}
# Debian's own programs, with the libraries that they were unpacked with.
program() {
    name=$1
    shift
    LD_LIBRARY_PATH=$here/usr/lib/riscv64-linux-gnu "$here/usr/sbin/$name" "$@"
}
case $1 in
    attach)
        load network
        nic=$(ls /sys/class/net | grep -v '^lo$')
        ip addr add "$2" dev "$nic"
        ip link set lo up
        ip link set "$nic" up
        ;;
    serve)
        load server
        mkdir -p /var/lib/nfs/v4recovery /run/rpc_pipefs
        touch /var/lib/nfs/etab /var/lib/nfs/rmtab
        [ -e /proc/fs/nfsd/threads ] || mount -t nfsd nfsd /proc/fs/nfsd
        # A server that has just begun waits for clients of its former life. There are none.
        echo 10 >/proc/fs/nfsd/nfsv4leasetime
        echo 10 >/proc/fs/nfsd/nfsv4gracetime
        program exportfs -i -o "${3:-ro},async,no_root_squash,insecure,no_subtree_check,fsid=0" "*:$2"
        program rpc.mountd --no-nfs-version 3
        # The port as a number: not every guest has a list of services.
        program rpc.nfsd --port 2049 --no-nfs-version 3 --no-udp 4
        ;;
    mount)
        load client
        mkdir -p "$3"
        own=$(ip -o route get "$2" | sed 's/.* src \([^ ]*\).*/\1/')
        # No helper: it would ask the port mapper, and the kernel needs no more than this.
        mount -i -t nfs4 -o "${4:-ro},vers=4.2,addr=$2,clientaddr=$own" "$2:/" "$3"
        ;;
    *)
        echo "nfs: $1 is neither attach, serve nor mount" >&2
        exit 2
        ;;
esac
