#!/bin/sh
# Workload compile ("pmake"): `make -jN` of real C sources by Debian's gcc, everything in memory.
# small: bzip2; full: Lua.
set -e -o pipefail
case $size in
    small) source=bzip2 ;;
    full) source=lua ;;
esac
build=/tmp/build
flags="-Wall -O1"
case $1 in
    prepare)
        cp -r "/usr/src/$source" $build
        # The compiler and its headers lie in memory already; the programs are linked once, so that what only a first run
        # does is done.
        echo 'int main(void) { return 0; }' >/tmp/first.c
        gcc $flags -o /tmp/first /tmp/first.c
        ;;
    run)
        cd $build
        export SOURCE_DATE_EPOCH=0
        case $size in
            small) make -j"$threads" CC=gcc CFLAGS="$flags -D_FILE_OFFSET_BITS=64" AR="ar -D" RANLIB="ranlib -D" \
                libbz2.a bzip2 bzip2recover ;;
            full) make -C src -j"$threads" CC=gcc CFLAGS="$flags -DLUA_COMPAT_5_3 -DLUA_USE_POSIX" AR="ar -Drc" \
                RANLIB="ranlib -D" MYLIBS= MYLDFLAGS= lua luac ;;
        esac
        ;;
    result)
        cd $build
        case $size in
            small) files="libbz2.a bzip2 bzip2recover" ;;
            full) files="src/liblua.a src/lua src/luac" ;;
        esac
        for file in $files; do
            # A missing or empty file would have a checksum, too.
            [ -s "$file" ]
        done
        # shellcheck disable=SC2086  # several names
        sha256sum $files | sha256sum | cut -c 1-16
        ;;
esac
