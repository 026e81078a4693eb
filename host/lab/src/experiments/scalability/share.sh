#!/bin/sh
# The files of experiment `scalability` over NFS: VM 1 serves a folder of its memory with the sources in it and a folder for the
# jobs of each VM, its own included, and the others mount it. As in the paper the server is one of those that compile.
#   share open      the folder is there, with all in it
#   share forget    nothing of it is in a client's memory
#   share close     a client has left; the server returns when all have
set -eu
server=10.9.0.1
# A client is known to the server by its host's name: of the same name, each would end what the others have open.
hostname "vm$vm"
enter() {
    /nfs/nfs mount $server /srv rw
    mkdir -p "/srv/vm$vm"
}
# Does it again until it works; what it is waited for takes seconds, and much more on a busy host.
patiently() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 1
    done
}
is_alone() {
    [ -z "$(ls /proc/fs/nfsd/clients)" ]
}
if [ "$vm" != 1 ]; then
    case $1 in
        open)
            /nfs/nfs attach "10.9.0.$vm/24"
            patiently enter
            ;;
        forget)
            umount /srv
            enter
            ;;
        close) umount /srv ;;
    esac
    exit
fi
case $1 in
    open)
        mkdir -p /srv
        mount -t tmpfs srv /srv
        cp -r /usr/src/bzip2 /srv/bzip2
        mkdir /srv/vm1
        /nfs/nfs attach $server/24
        /nfs/nfs serve /srv rw
        ;;
    forget) ;;
    # One that has failed and powered off is a client until its lease is over.
    close) patiently is_alone ;;
esac
