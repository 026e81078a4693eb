#!/bin/bash
# The workload: builds a Debian source package in C with gcc, runs the program's own tests, and prints one line:
#   mirrorball-build: ok sha256=HASH seconds=S user=S system=S jobs=N
# The hash covers every program and library built; equal sources and compilers give equal hashes. Exit status 0 means
# that all went well. Usage: mirrorball-build [-j JOBS] [FOLDER]; the folder is emptied (default /var/tmp/mirrorball-build).
set -u -o pipefail
jobs=2
if [ "${1-}" = -j ]; then
    jobs=$2
    shift 2
fi
folder=${1:-/var/tmp/mirrorball-build}
log=$folder.log

fail() {
    echo "mirrorball-build: failed: $1"
    tail -n 20 "$log" 2>/dev/null
    exit 1
}

export LC_ALL=C SOURCE_DATE_EPOCH=0
rm -rf "$folder"
cp -r /usr/src/workload "$folder" || fail "cannot copy the source"
cd "$folder" || fail "no folder"
started=$EPOCHREALTIME
# -O1 keeps four builds at once on an emulated machine within minutes; it is as much a compiler's work as -O2 is.
make -j"$jobs" CC=gcc CFLAGS="-Wall -O1 -D_FILE_OFFSET_BITS=64" AR="ar -D" RANLIB="ranlib -D" libbz2.a bzip2 bzip2recover >"$log" 2>&1 || fail "make"
make test CFLAGS="-Wall -O1 -D_FILE_OFFSET_BITS=64" >>"$log" 2>&1 || fail "the program's own tests"
ended=$EPOCHREALTIME
sum=$(sha256sum libbz2.a bzip2 bzip2recover | sha256sum | cut -d ' ' -f 1)
micros=$((${ended/./} - ${started/./}))
# The shell's `times` would be that of a subshell in a pipe; the second line is that of its children.
times >"$folder.times"
read -r user system < <(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); printf "%.2f ", t[1] * 60 + t[2] } }' "$folder.times")
printf 'mirrorball-build: ok sha256=%s seconds=%d.%02d user=%s system=%s jobs=%s\n' \
    "$sum" $((micros / 1000000)) $((micros % 1000000 / 10000)) "$user" "$system" "$jobs"
