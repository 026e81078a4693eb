#!/bin/sh
# Makes the database, once, on a plain emulated machine, and writes its files to the machine's disk as an archive.
set -e -o pipefail
. /loads/database.lib
case $1 in
    prepare)
        insmod /modules/virtio_mmio.ko
        insmod /modules/virtio_blk.ko
        mkdir -p $data
        chmod 700 $data
        chown postgres:postgres $data
        start-stop-daemon -S -c postgres:postgres -x $pg/initdb -- -D $data --no-locale --encoding=SQL_ASCII \
            --auth=trust --no-sync --no-instructions --wal-segsize=1
        cat /loads/database.conf >>$data/postgresql.conf
        start_server
        ask no </loads/database-functions.sql
        for pair in small:1 full:10; do
            $pg/psql -X -h /tmp -U postgres -q -c "CREATE SCHEMA tables_${pair%:*}" postgres
            sed "s/@SCALE@/${pair#*:}/g" /loads/database-tables.sql | ask "${pair%:*}"
        done
        echo 'VACUUM (FREEZE, ANALYZE)' | ask no
        echo 'CHECKPOINT' | ask no
        kill -INT "$(head -n 1 $data/postmaster.pid)"
        while [ -e $data/postmaster.pid ]; do
            usleep 100000
        done
        ;;
    run)
        cd /
        find ./var/lib/postgresql | sed 's,^\./,,' | cpio -o -H newc >/tmp/data.cpio
        dd if=/tmp/data.cpio of=/dev/vda bs=1M conv=fsync
        ;;
    result)
        wc -c </tmp/data.cpio
        ;;
esac
